"""The core places a task on the best of the nodes that fit, by the task's preferences in order."""

from typing import Any

import numpy as np
import pytest

from parsync_redis.model.claim import Claim, ClaimOutcome, Verdict
from parsync_redis.model.kind import Kind
from parsync_redis.model.near import near_label
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.preferences import preferences_text
from parsync_redis.model.replies import Judged, Snapshot
from parsync_redis.model.task import Taken
from parsync_redis.placement.preferences import rules_of
from parsync_redis.scheduler.core.claim_outcomes import (
    CLAIMS_OF_PERIOD,
    LOST_OF_PERIOD,
    MAX_WIDTH,
    PERIODS_OF_WIDTH,
    Width,
    Widths,
)
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.offers import MAX_CACHED
from tests.kit.core_rig import Queue, claims_of, judge_each, make

SLOTS = 4


def cluster(core: Core, *partitions: dict[str, tuple[int, dict[str, str]]], first: int = 0) -> None:
    """Give the core a read of partitions, one after another.

    Each has by name of a node the number of its free slots, and its labels.
    """
    for p, nodes in enumerate(partitions, first):
        offers = {name: Resources.of(SLOTS, labels=labels) for name, (_, labels) in nodes.items()}
        core.on_nodes(
            p,
            [
                Node(name, "up", 1, False, SLOTS * index, SLOTS, 1.0, offer)
                for index, (name, offer) in enumerate(offers.items())
            ],
            1,
        )
        bits = [slot < free for free, _ in nodes.values() for slot in range(SLOTS)]
        packed = np.packbits(np.array(bits, dtype=bool)).tobytes()
        core.on_snapshot(Snapshot(p, 1, 1, packed, {}), float(p))
    core.plan(place=False, confirm=False)


def test_the_use_of_a_label_is_counted_once_for_a_search() -> None:
    core = make(2)
    cluster(core, {"a": (4, A)}, {"b": (1, B)})
    needs = Resources.needed()
    facts = core.view.cluster_for(needs, None, "spread=zone,pack")
    assert facts.used_by("zone") == {"a": 0.0, "b": 0.75}
    core.on_snapshot(Snapshot(0, 2, 1, b"\x00", {}), 2.0)
    assert facts.used_by("zone") is facts.used_by("zone")
    assert core.view.cluster_for(needs, None, "spread=zone").used_by("zone")["a"] == 1.0
    assert core.view.cluster_for(needs, None, "pack") is core.view.cluster


@pytest.mark.parametrize(("prefer", "is_kept"), [("zone:a,cheap", True), ("zone:a,pack", False)])
def test_ranks_by_what_nodes_are_stay_when_tasks_come_and_go(prefer: str, is_kept: bool) -> None:
    core = make()
    cluster(core, {"a": (4, A), "b": (4, B)})
    partition = core.view.partitions[0]
    rules = rules_of(prefer)
    needs = Resources.needed()
    before = partition.ranks(rules, needs, core.view.cluster)
    partition.reserve(partition.seats(needs), np.array([0]), needs).give_back()
    assert (partition.ranks(rules, needs, core.view.cluster) is before) == is_kept
    partition.set_quality(np.zeros(2))
    assert partition.ranks(rules, needs, core.view.cluster) is not before


@pytest.mark.parametrize("prefer", ["", "spread"])
def test_seats_are_moved_on_only_for_tasks_with_preferences(prefer: str) -> None:
    core = make()
    offers = [Resources.of(100, {"gpu": 1, "mem": 100}), *[Resources.of(1, {"mem": 1})] * 2]
    nodes = [
        Node(f"n{index}", "up", 1, 0, 100 * index, offer.slots, 1.0, offer)
        for index, offer in enumerate(offers)
    ]
    core.on_nodes(0, nodes, 1)
    left = {"n0": "gpu=1 mem=1", "n1": "mem=0", "n2": "mem=0"}
    bits = np.array([slot < 100 for slot in range(300)], dtype=bool)
    core.on_snapshot(Snapshot(0, 1, 1, np.packbits(bits).tobytes(), left), 0.0)
    core.plan(place=False, confirm=False)
    assert core.view.cluster.scarce == {"gpu"}
    queue = Queue(core).add(Kind("work", "slots=1 mem=1", prefer=prefer).text, 1)
    queue.tell()
    (claim,) = claims_of(queue.turn())
    assert (claim == "n0/0") == (not prefer), "99 of 100 random numbers move it"


def test_tasks_near_other_tasks_learn_one_width() -> None:
    widths = Widths()
    for index in range(10 * MAX_CACHED):
        widths.of("slots=1", f"zone:a,{':'.join(near_label(f'n{index}'))},pack")
        widths.of("slots=1", f"warm=m{index % 1000},pack")
    claimed = {}
    for count in range(LOST_OF_PERIOD):
        kind = Kind("work", "slots=1", prefer=f"zone:a,parsync.near:x{count},pack")
        claimed[f"t{count}"] = Taken(f"t{count}", "1@1", kind, 0)
    claims = [Claim(task, "1@1", 0, "n", (0,), 1, "", 0, 1) for task in claimed]
    verdicts = [Verdict(ClaimOutcome.CONFLICT, "")] * len(claims)
    widths.on_judged(Judged(0, 1, 0, claims, verdicts), claimed)
    assert widths.of("slots=1", "zone:a,parsync.near:new,pack") == 2
    assert widths.of("slots=1", "warm=m1,pack") == 1


def nodes_of(
    core: Core, count: int, prefer: list[Any], strategy: str = "", last: str = ""
) -> list[str]:
    """Return the nodes that tasks with these preferences get, in the order of their claims."""
    kind = Kind("work", "slots=1", strategy, prefer=preferences_text(prefer))
    queue = Queue(core).add(kind.text, count)
    queue.last = last
    queue.tell()
    return [claim.partition("/")[0] for claim in claims_of(queue.turn())]


A = {"zone": "a"}
B = {"zone": "b"}


def test_the_first_rule_outweighs_the_later_rules_and_the_next_decides_among_equals() -> None:
    for prefer, expected in (
        (["zone=a", "pack"], ["a-full", "a-empty", "b-full"]),
        (["pack", "zone=a"], ["a-full", "b-full", "a-empty"]),
        (["pack", "zone=b"], ["b-full", "a-full", "b-empty"]),
    ):
        core = make()
        nodes = {"a-full": (1, A), "a-empty": (4, A), "b-full": (1, B), "b-empty": (4, B)}
        cluster(core, nodes)
        places = [nodes_of(core, 1, prefer)[0] for _ in range(2)]
        assert places == expected[:2], prefer


def test_a_preferred_node_is_no_requirement() -> None:
    core = make()
    cluster(core, {"a": (2, A), "b": (4, B)})
    assert sorted(nodes_of(core, 5, ["zone=a"])) == ["a", "a", "b", "b", "b"]


def test_among_equal_nodes_the_partition_that_was_read_last_goes_first() -> None:
    core = make(3)
    cluster(core, {"old": (4, A)}, {"older": (4, B)}, {"new": (4, A)})
    assert nodes_of(core, 5, ["zone=a"]) == ["new"] * 4 + ["old"]


def test_latency_puts_freshness_before_the_preferences() -> None:
    core = make(2)
    cluster(core, {"a": (4, A)}, {"b": (4, B)})
    assert nodes_of(core, 1, ["zone=a"], Strategy.QUALITY) == ["a"]
    assert nodes_of(core, 1, ["zone=a"], Strategy.LATENCY) == ["b"]


def test_adaptive_puts_freshness_before_the_preferences_while_delays_are_long() -> None:
    for strategy in ("", "adaptive"):
        core = make(2, Strategy.ADAPTIVE)
        cluster(core, {"a": (4, A)}, {"b": (4, B)})
        assert nodes_of(core, 1, ["zone=a"], strategy) == ["a"]
        core.selector.observe([60.0])
        assert nodes_of(core, 1, ["zone=a"], strategy) == ["b"]


def test_a_task_that_runs_again_goes_elsewhere_before_its_preferences_count() -> None:
    core = make()
    cluster(core, {"a": (4, A), "b": (4, B)})
    assert nodes_of(core, 1, ["zone=a"], last="a") == ["b"]
    core = make()
    cluster(core, {"a": (4, A)})
    assert nodes_of(core, 1, ["zone=a"], last="a") == ["a"], "no other node has a seat"


def test_spread_by_a_label_counts_all_nodes_of_the_value() -> None:
    core = make(2)
    cluster(core, {"a1": (0, A), "a2": (4, A)}, {"b1": (3, B), "b2": (3, B)})
    assert nodes_of(core, 1, ["spread:zone"])[0] in ("b1", "b2")
    assert nodes_of(core, 1, ["spread"]) == ["a2"]


def test_spread_by_a_label_judges_a_partition_whose_nodes_lack_the_label() -> None:
    core = make(2)
    cluster(core, {"plain": (1, {})}, {"a": (3, A)})
    assert nodes_of(core, 1, ["spread:zone"]) == ["a"]


@pytest.mark.parametrize("count", [1, 3, 9, 16])
def test_many_tasks_get_the_best_seats_together(count: int) -> None:
    core = make(2)
    cluster(core, {"a1": (4, A), "b1": (4, B)}, {"a2": (4, A), "c": (4, {})})
    places = nodes_of(core, count, [{"zone": {"a": 0, "b": 1}}])
    ranks = [{"a": 0, "b": 1, "c": 2}[place[0]] for place in places]
    assert sorted(ranks) == ([0] * 8 + [1] * 4 + [2] * 4)[:count]


def judged(width: Width, share: float, periods: int = 1) -> None:
    """Let a width see whole periods in which this share of the claims is lost."""
    for _ in range(periods):
        if not share:
            for _ in range(CLAIMS_OF_PERIOD):
                width.on_judged(won=True)
            continue
        for _ in range(LOST_OF_PERIOD):
            for _ in range(round(1 / share) - 1):
                width.on_judged(won=True)
            width.on_judged(won=False)


def test_tasks_choose_among_more_seats_only_while_that_lowers_the_share_of_lost_claims() -> None:
    width = Width()
    judged(width, 0.0, 3)
    assert width.seats == 1
    judged(width, 0.1)
    assert width.seats == 2
    judged(width, 0.05)
    assert width.seats == 4, "the doubling helped, and claims are still lost"
    judged(width, 0.05)
    assert width.seats == 2, "the second doubling did not help"
    judged(width, 0.05, PERIODS_OF_WIDTH - 1)
    assert width.seats == 2, "it rests"
    judged(width, 0.05)
    assert width.seats == 4, "it is tried again"
    judged(width, 0.04, 3)
    assert width.seats == MAX_WIDTH
    judged(width, 0.0, 2)
    assert width.seats == 1, "claims are not lost any more"


def lose_claims(core: Core, kind: Kind) -> None:
    """Let the core lose 30 claims in a row for a kind, and 30 of the next 42."""
    cluster(core, {f"x{i}": (SLOTS, A) for i in range(50)})
    queue = Queue(core).add(kind.text, LOST_OF_PERIOD)
    queue.tell()
    verdicts = {ClaimOutcome.HELD: Verdict(ClaimOutcome.HELD, "1")}
    verdicts[ClaimOutcome.CONFLICT] = Verdict(ClaimOutcome.CONFLICT, "x")
    plan = queue.turn()
    for held, lost in ((0, 30), (12, 18), (6, 12), (12, 0)):
        words = [ClaimOutcome.CONFLICT] * lost + [ClaimOutcome.HELD] * held
        judge_each(core, plan, [verdicts[word] for word in words])
        plan = core.plan(confirm=False)
    assert not core.in_flight


def test_only_the_last_rule_gives_way_and_only_a_rule_about_room_or_score() -> None:
    """4 tasks that choose among 4 seats each have all 14 seats to choose from."""
    for prefer, expected in (
        (["zone=a", "spread"], {"a-full", "a-empty"}),
        (["spread", "zone=a"], {"a-empty"}),
        (["spread"], {"a-full", "a-empty", "b-full", "b-empty"}),
        ([], {"a-full", "a-empty", "b-full", "b-empty"}),
    ):
        core = make()
        nodes = {"a-full": (3, A), "a-empty": (4, A), "b-full": (3, B), "b-empty": (4, B)}
        kind = Kind("work", "slots=1", prefer=preferences_text(prefer))
        lose_claims(core, kind)
        places = set[str]()
        for _ in range(8):
            cluster(core, nodes)
            places |= {*nodes_of(core, 4, prefer)}
        assert places == expected, prefer

"""The preference `fast`: learnt run times by node class decide where tasks go, and whose turn it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import parse_needs
from parsync_redis.model.node import Node
from parsync_redis.model.order import ORDERS_OF_MS, PATIENCE_MS
from parsync_redis.model.replies import Snapshot
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.model.times import (
    MIN_CLASS_RUNS,
    PLAIN,
    LearntTimes,
    RunTimes,
    class_of,
    field_of,
    field_of_class,
)
from parsync_redis.placement.facts import NodeFacts
from parsync_redis.placement.preferences import rules_of
from parsync_redis.placement.preferences.fast import TIMES_AS_LONG, FastPreference, times_of
from parsync_redis.placement.ranked_nodes import nodes_now, rank_for
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.run_times import MAX_FAST_NAMES
from tests.kit.core_rig import Queue, claims_of, judge, make

SLOTS = 2
CLASSES = ("k80", "p100", "v100")


def learnt(of_names: Mapping[str, Mapping[str, float]], runs: int = MIN_CLASS_RUNS) -> LearntTimes:
    """Return run times (ms) by name and by the label `gpu`; '' for nodes without labels."""
    times = LearntTimes()
    for name, by_gpu in of_names.items():
        for gpu, ms in by_gpu.items():
            for field in {name, field_of_class(name, f"gpu:{gpu}" if gpu else PLAIN)}:
                for _ in range(runs):
                    times.setdefault(field, RunTimes()).add(ms)
    return times


def cluster(core: Core, free: Mapping[str, int]) -> None:
    """Give the core a node of each class, with so many free slots of SLOTS."""
    nodes = [
        Node(gpu, "up", 1, False, SLOTS * i, SLOTS, 1.0, parse_needs(f"slots={SLOTS} gpu:{gpu}"))
        for i, gpu in enumerate(free)
    ]
    core.on_nodes(0, nodes, 1)
    see(core, free)
    core.plan(place=False, confirm=False)


def see(core: Core, free: Mapping[str, int], version: int = 1) -> None:
    """Give the core a read of the free slots."""
    bits = [slot < count for count in free.values() for slot in range(SLOTS)]
    packed = np.packbits(np.array(bits, dtype=bool)).tobytes()
    core.on_snapshot(Snapshot(0, version, 1, packed, {}), float(version))


def kind(name: str, prefer: str = "fast", tenant: str = "") -> str:
    return Kind(name, "slots=1", "", tenant, prefer=prefer).text


def nodes_of(core: Core, name: str, count: int = 1, prefer: str = "fast") -> list[str]:
    """Return the nodes that tasks of a name get, in the order of their claims."""
    queue = Queue(core).add(kind(name, prefer), count)
    queue.tell()
    return [claim.partition("/")[0] for claim in claims_of(queue.turn())]


@pytest.mark.parametrize(
    ("closed", "needs"),
    [({"state": "down"}, "slots=1"), ({"drain": 1}, "slots=1"), ({}, "slots=1 mem=1")],
)
def test_the_fastest_class_is_one_of_open_nodes_that_fit(
    closed: dict[str, Any], needs: str
) -> None:
    core = make()
    there = [
        Node(gpu, "up", 1, 0, SLOTS * i, SLOTS, 1.0, parse_needs(f"slots={SLOTS} mem=1 gpu:{gpu}"))
        for i, gpu in enumerate(CLASSES)
    ]
    without_memory = parse_needs(f"slots={SLOTS} gpu:v100")
    there[2] = replace(there[2], **closed, offer=there[2].offer if closed else without_memory)
    core.on_nodes(0, there, 1)
    packed = np.packbits(np.ones(3 * SLOTS, dtype=bool)).tobytes()
    core.on_snapshot(Snapshot(0, 1, 1, packed, {node.name: "mem=1" for node in there}), 1.0)
    core.plan(place=False, confirm=False)
    times = LearntTimes()
    for node, ms in zip(there, (60_000.0, 6000.0, 1000.0), strict=True):
        for _ in range(MIN_CLASS_RUNS):
            times.setdefault(field_of("a", node.offer), RunTimes()).add(ms)
    core.view.run_times.of("a")
    core.view.run_times.set(times)
    asked = parse_needs(needs)
    cluster_now = core.view.cluster_for(asked, None, "fast")
    ranks = core.view.partitions[0].ranks(rules_of("fast", name="a")[1:], asked, cluster_now)
    assert ranks.tolist()[:2] == [4, 0]
    nodes = [
        NodeFacts(node.name, node.state, bool(node.drain), node.offer, SLOTS, {"mem": 1000})
        for node in there
    ]
    of_plan = nodes_now(nodes, asked, times, {})
    buckets = FastPreference("a").buckets(of_plan, asked)
    assert buckets.tolist()[:2] == [4, 0], "people are told the same"


# -- what is known ---------------------------------------------------------------------------------


def test_means_are_of_known_classes_and_one_class_alone_says_nothing() -> None:
    times = learnt({"a": {"k80": 400.0, "v100": 100.0}, "b": {"k80": 5.0}})
    assert times.means_of("a", {"gpu:k80", "gpu:v100", "gpu:p100"}) == {
        "gpu:k80": 400.0,
        "gpu:v100": 100.0,
    }
    assert times.means_of("a", {"gpu:k80", "gpu:p100"}) == {}, "nothing to compare"
    assert times.means_of("b", {"gpu:k80", "gpu:v100"}) == {}
    assert times.means_of("c", {"gpu:k80", "gpu:v100"}) == {}
    few = learnt({"a": {"k80": 400.0, "v100": 100.0}}, MIN_CLASS_RUNS - 1)
    assert few.means_of("a", {"gpu:k80", "gpu:v100"}) == {}


def test_nodes_without_labels_have_the_runs_that_no_other_class_has() -> None:
    times = learnt({"a": {"v100": 100.0, "": 700.0}})
    assert times["a"].mean_ms == 400.0, "the field of a name has all of its runs"
    assert times.means_of("a", {PLAIN, "gpu:v100"}) == {PLAIN: 700.0, "gpu:v100": 100.0}


def test_runs_on_classes_that_have_gone_count_to_no_class() -> None:
    times = learnt({"a": {"k80": 60_000.0, "v100": 6000.0}})
    assert times.means_of("a", {PLAIN, "gpu:v100"}) == {}, "no run on plain nodes is known"
    times = learnt({"a": {"k80": 60_000.0, "v100": 6000.0, "": 1000.0}})
    assert times.means_of("a", {PLAIN, "gpu:v100"}) == {PLAIN: 1000.0, "gpu:v100": 6000.0}


@given(st.dictionaries(st.sampled_from(CLASSES), st.floats(1.0, 1e6), min_size=2))
def test_the_fastest_class_is_in_bucket_0_and_a_longer_run_in_no_better_bucket(
    run_ms: dict[str, float],
) -> None:
    buckets = {c: int(np.searchsorted(TIMES_AS_LONG, times_of(run_ms, c), "right")) for c in run_ms}
    ordered = sorted(run_ms, key=lambda c: run_ms[c])
    assert buckets[ordered[0]] == 0
    assert [buckets[c] for c in ordered] == sorted(buckets.values())


def test_each_bucket_has_a_sentence() -> None:
    rule = FastPreference("a")
    assert [rule.sentence(bucket) for bucket in range(5)] == [
        "less than 1.1 times the run time of the fastest class",
        "1.1 to 1.5 times the run time of the fastest class",
        "1.5 to 2.5 times the run time of the fastest class, or not known yet",
        "2.5 to 5 times the run time of the fastest class",
        "5 times the run time of the fastest class, or more",
    ]


def test_rules_of_different_names_are_different_though_people_see_one_name() -> None:
    of_a, of_b = (rules_of("fast", name=name)[-1] for name in "ab")
    assert of_a.name == of_b.name == "fast"
    assert of_a.key != of_b.key


def test_a_class_is_what_a_node_offers_besides_its_slots() -> None:
    assert class_of(parse_needs("slots=4 gpu=1 gpu_model:a100")) == "gpu=1 gpu_model:a100"
    assert class_of(parse_needs("slots=4")) == PLAIN


# -- where tasks go --------------------------------------------------------------------------------


def test_tasks_go_to_the_class_on_which_their_name_runs_fastest() -> None:
    core = make()
    cluster(core, {"k80": 2, "p100": 2, "v100": 2})
    times = {"a": {"k80": 900.0, "p100": 200.0, "v100": 100.0}, "b": {"k80": 1.0, "v100": 10.0}}
    core.view.run_times.set(learnt(times))
    assert nodes_of(core, "a", 3) == ["v100", "v100", "p100"]
    core = make()
    cluster(core, {"k80": 2, "p100": 2, "v100": 2})
    core.view.run_times.set(learnt(times))
    assert nodes_of(core, "b", 3) == ["k80", "k80", "p100"], "an untried class before a slow one"
    assert set(core.view.run_times.asked) == {"b"}


def test_new_run_times_count_at_once() -> None:
    core = make()
    cluster(core, {"k80": 1, "v100": 2})
    core.view.run_times.set(learnt({"a": {"k80": 100.0, "v100": 900.0}}))
    assert nodes_of(core, "a") == ["k80"]
    core.view.run_times.set(learnt({"a": {"k80": 900.0, "v100": 100.0}}))
    see(core, {"k80": 1, "v100": 2}, version=2)
    assert nodes_of(core, "a") == ["v100"]


def test_a_class_that_has_left_is_not_the_fastest() -> None:
    core = make()
    cluster(core, {"k80": 1, "p100": 1})
    core.view.run_times.set(learnt({"a": {"k80": 900.0, "p100": 600.0, "v100": 10.0}}))
    assert core.view.run_times.of("a") == {"gpu:k80": 900.0, "gpu:p100": 600.0}


def test_a_scheduler_keeps_the_run_times_of_the_names_asked_for_last() -> None:
    run_times = make().view.run_times
    for number in range(MAX_FAST_NAMES + 5):
        run_times.of(f"t{number}")
    assert len(run_times.asked) == MAX_FAST_NAMES
    assert "t4" not in run_times.asked
    assert f"t{MAX_FAST_NAMES + 4}" in run_times.asked


def test_people_who_ask_before_the_start_see_the_node_that_a_scheduler_would_take() -> None:
    times = learnt({"a": {"k80": 900.0, "v100": 100.0}})
    offers = {gpu: parse_needs(f"slots={SLOTS} gpu:{gpu}") for gpu in CLASSES}
    facts = [NodeFacts(gpu, "up", False, offer, SLOTS, {}) for gpu, offer in offers.items()]
    task = TaskStatus("t", TaskState.WAITING, "a", prefer="fast")
    ranked = rank_for(task, "", parse_needs("slots=1"), facts, CLASSES, times).nodes
    assert [(node.node, node.ranked[-1].bucket) for node in ranked] == [
        ("v100", 0),
        ("p100", 2),
        ("k80", 4),
    ]
    core = make()
    cluster(core, dict.fromkeys(CLASSES, 1))
    core.view.run_times.set(times)
    assert nodes_of(core, "a") == ["v100"]


# -- whose turn it is ------------------------------------------------------------------------------

TIMES = {"picky": {"k80": 60_000.0, "v100": 10_000.0}, "easy": {"k80": 11_000.0, "v100": 10_000.0}}
"""On a k80 `picky` loses 50 s, `easy` 1 s."""


def seated(free: Mapping[str, int], ages_ms: Mapping[str, float], **kinds: str) -> list[str]:
    """Return the names of tasks in the turns in which they get seats; the first has the first turn.

    ages_ms: by name, how much older than the youngest each task is.
    """
    core = make()
    cluster(core, free)
    core.view.run_times.set(learnt(TIMES))
    queue = Queue(core)
    for name, age_ms in ages_ms.items():
        first = round((PATIENCE_MS - age_ms) * ORDERS_OF_MS)
        queue.add(kinds.get(name, kind(name)), 1, first, name)
    queue.tell()
    plan = core.plan()
    return [Kind.of(text).name for look in plan.shard_looks.values() for text, _ in look.take]


def test_a_slow_seat_goes_to_the_task_that_loses_least_there() -> None:
    assert seated({"k80": 1, "v100": 0}, {"picky": 40_000, "easy": 0}) == ["easy"]


def test_a_task_lets_pass_no_task_that_is_younger_by_more_than_it_would_lose() -> None:
    assert seated({"k80": 1, "v100": 0}, {"picky": 60_000, "easy": 0}) == ["picky"]


def test_a_seat_that_nobody_else_wants_goes_to_a_task_all_the_same() -> None:
    assert seated({"k80": 1, "v100": 0}, {"picky": 0}) == ["picky"]


def test_at_a_fast_seat_the_oldest_task_goes_first() -> None:
    assert seated({"k80": 0, "v100": 1}, {"picky": 1, "easy": 0}) == ["picky"]


def test_only_tasks_whose_first_rule_is_fast_let_others_pass() -> None:
    later = {"picky": kind("picky", "gpu:k80,fast")}
    assert seated({"k80": 1, "v100": 0}, {"picky": 1, "easy": 0}, **later) == ["picky"]


def test_as_many_seats_as_are_good_are_given_before_the_next_turn() -> None:
    core = make()
    cluster(core, {"k80": 2, "v100": 1})
    core.view.run_times.set(learnt(TIMES))
    queue = Queue(core).add(kind("picky"), 50, 1, "p").add(kind("easy"), 2, 2, "e")
    queue.tell()
    plan = core.plan()
    takes = dict(take for look in plan.shard_looks.values() for take in look.take)
    assert takes == {kind("picky"): 1, kind("easy"): 2}


def test_a_task_that_lost_its_seat_goes_back_rather_than_to_a_slow_seat() -> None:
    core = make()
    cluster(core, {"k80": 1, "v100": 1})
    core.view.run_times.set(learnt(TIMES))
    queue = Queue(core).add(kind("picky"), 1)
    queue.tell()
    plan = queue.turn()
    assert claims_of(plan) == ["v100/0"]
    judge(core, plan, ClaimOutcome.CONFLICT)
    assert [(task, word) for task, _, word in core.plan().give_back] == [("t1", "undo")]


def test_a_task_that_lost_its_seat_gets_another_seat_that_is_as_fast() -> None:
    core = make()
    cluster(core, {"k80": 1, "v100": 2})
    core.view.run_times.set(learnt(TIMES))
    queue = Queue(core).add(kind("picky"), 1)
    queue.tell()
    plan = queue.turn()
    judge(core, plan, ClaimOutcome.CONFLICT)
    plan = core.plan()
    assert not plan.give_back
    assert claims_of(plan) == ["v100/1"] or claims_of(plan) == ["v100/0"]


def test_with_tenants_the_tree_decides_whose_turn_it_is() -> None:
    tenants = {name: kind(name, tenant="acme") for name in TIMES}
    assert seated({"k80": 1, "v100": 0}, {"picky": 1, "easy": 0}, **tenants) == ["picky"]

"""A node that gives less than it offers is judged by what it gives: forecasts, bookings, remedies,
totals, and the soft rules.
"""

from dataclasses import replace

import numpy as np
import pytest

from parsync_redis.model.account_line import AccountLine
from parsync_redis.model.capacity import capacity_of, read_capacity
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.node import Node
from parsync_redis.model.times import LearntTimes
from parsync_redis.model.used_share import shares_held
from parsync_redis.placement.backfill import LargeTask, by_lack, choose
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.forecast import (
    ExpectedEnd,
    WaitingTasks,
    expected_start_ms,
    has_room_now,
)
from parsync_redis.placement.now import classify
from parsync_redis.placement.preferences import rules_of
from parsync_redis.placement.ranked_nodes import nodes_now
from parsync_redis.placement.remedies import find_remedies
from parsync_redis.scheduler.core.view import View
from parsync_redis.store.reads.live_nodes import LiveNode, facts_of, open_amounts

OFFER = parse_needs("slots=10 mem=100")
LARGE = parse_needs("slots=4")
SHRUNK = NodeFacts("n1", "up", False, OFFER, 2, {"mem": 100_000}, capacity="slots=2")
GPUS = Resources.of(8, devices={"gpu": ["0", "1"]}, of_devices={"gpu.mem": "40GiB"})


def record(name: str, first: int, offer: Resources, capacity: str = "", state: str = "up") -> Node:
    """Return a node; the slots that it does not give are shut."""
    node = Node(name, state, 1, 0, first, offer.slots, 1.0, offer, capacity=capacity)
    return replace(node, ahead=(node.given.slots - offer.slots) or None)


def view_of(nodes: list[Node], free: list[int], amounts_left: dict[str, str]) -> View:
    """Return a view of one partition. free: of each node, its first slots are free."""
    view = View(1)
    view.partitions[0].set_nodes(nodes, 1)
    bits = [
        slot < count
        for node, count in zip(nodes, free, strict=True)
        for slot in range(node.offer.slots)
    ]
    packed = np.packbits(np.array(bits, dtype=bool)).tobytes()
    view.partitions[0].set_free(packed, amounts_left, 1)
    view.rescale()
    return view


def ranks_of(view: View, prefer: str, needs: Resources) -> list[int]:
    """Return the ranks of the nodes by a preference alone."""
    cluster = view.cluster_for(needs, None, prefer)
    return view.partitions[0].ranks(rules_of(prefer)[1:], needs, cluster).tolist()


# -- forecasts, bookings and remedies --------------------------------------------------------------


def test_a_large_task_books_the_node_that_will_have_room_and_not_a_shrunk_node() -> None:
    full = NodeFacts("n2", "up", False, OFFER, 0, {"mem": 100_000})
    ends = {"n1": [], "n2": [ExpectedEnd(Holder("n2", f"t{i}", {}), 11_000) for i in range(10)]}
    nodes = {"k": by_lack(LARGE, [SHRUNK, full])}
    bookings = choose([LargeTask("k", LARGE, "big", 1e6)], nodes, ends, (), 2, 1000)
    assert [(booking.node, booking.from_ms) for booking in bookings] == [("n2", 11_000)]


def test_the_forecast_of_a_full_shrunk_node_is_the_end_of_its_tasks() -> None:
    node = replace(SHRUNK, free=0)
    holders = [Holder("n1", f"t{i}", {}) for i in range(2)]
    task = WaitingTasks("work", parse_needs("slots=1"), [node])
    assert not has_room_now(task, [], [(holder, "work") for holder in holders], ["n1"])
    ends = [ExpectedEnd(holder, 9000) for holder in holders]
    assert expected_start_ms(task.needs, [node], ends, 1000) == 9000
    assert expected_start_ms(LARGE, [node], ends, 1000) is None
    memory = replace(node, capacity="mem=30")
    assert expected_start_ms(parse_needs("slots=1 mem=40"), [memory], [], 1000) is None


@pytest.mark.parametrize(("state", "draining"), [("down", False), ("up", True)])
def test_a_remedy_does_not_count_on_slots_that_a_closed_node_does_not_give(
    state: str, draining: bool
) -> None:
    node = replace(SHRUNK, state=state, draining=draining, free=0)
    (remedy,) = find_remedies("work", LARGE, classify(LARGE, [node]), {"n1": node}, {})
    assert remedy.endswith(" and 2 more free slots on n1")


# -- totals ----------------------------------------------------------------------------------------


def test_slots_that_a_shrunk_node_does_not_give_are_neither_there_nor_held() -> None:
    node = record("n1", 0, OFFER, "slots=4,mem=40")
    live = LiveNode(0, node, 2, 0, {"mem": 20_000}, "", None)
    totals = {"slots": 4000, "mem": 40_000}
    used = {"slots": 2000, "mem": 20_000}
    assert open_amounts([live]) == (totals, used)
    view = view_of([node], [2], {"n1": "mem=20"})
    assert (view.totals(), view.used()) == (totals, used)
    shares = shares_held({"@a": AccountLine.of("n=2 mem=20 slots=2")}, totals, used)
    assert shares == {"a": 0.5, "a/-": 0.5}, "no task without a tenant runs"
    assert facts_of(live, "work", {}).given.slots == 4


def test_a_node_that_has_grown_since_its_record_was_read_holds_nothing() -> None:
    nodes = [record("n1", 0, OFFER, "slots=4,mem=40"), record("n2", 10, OFFER)]
    view = view_of(nodes, [10, 7], {"n1": "mem=100", "n2": "mem=80"})
    assert view.used() == {"slots": 3000, "mem": 20_000}, "what tasks hold on n2"


# -- soft rules ------------------------------------------------------------------------------------


def test_spread_and_pack_go_by_what_a_node_gives() -> None:
    nodes = [record("n1", 0, OFFER, "slots=4"), record("n2", 10, OFFER)]
    view = view_of(nodes, [4, 5], {"n1": "mem=100", "n2": "mem=100"})
    assert ranks_of(view, "spread", parse_needs("slots=1")) == [0, 2]
    assert ranks_of(view, "pack", parse_needs("slots=3")) == [1, 0]


def test_spread_over_a_label_counts_open_nodes_and_what_they_give() -> None:
    in_a = parse_needs("slots=10 zone:a")
    in_b = parse_needs("slots=10 zone:b")
    nodes = [record("a0", 0, in_a), record("a1", 10, in_a, state="down")]
    nodes += [record("b0", 20, in_b, "slots=4"), replace(record("b1", 30, in_b), drain=1)]
    view = view_of(nodes, [5, 0, 3, 10], {})
    assert view.used_by("zone") == {"a": 0.5, "b": 0.25}
    facts = [
        facts_of(LiveNode(0, node, free, 0, {}, "", None), "work", {})
        for node, free in zip(nodes, [5, 0, 3, 10], strict=True)
    ]
    now = nodes_now(facts, parse_needs("slots=1"), LearntTimes(), {})
    assert now.cluster.used_by("zone") == {"a": 0.5, "b": 0.25}


@pytest.mark.parametrize(
    ("offer", "capacity", "needs", "size"),
    [
        (OFFER, "", "slots=1", 1),
        (OFFER, "slots=2", "slots=1", 4),
        (OFFER, "mem=20", "slots=1 mem=10", 4),
        (OFFER, "mem=0", "slots=1 mem=10", 6),
        (GPUS, "", f"slots=1 gpu.mem={20 * 2**30}", 2),
        (GPUS, "gpu@0=0", f"slots=1 gpu.mem={20 * 2**30}", 4),
        (GPUS, "", "slots=1 gpu=0.6", 4),
    ],
)
def test_a_warm_set_has_room_for_its_tasks(
    offer: Resources, capacity: str, needs: str, size: int
) -> None:
    """A set for 5 tasks at a time; FILLED (0.7) of the tasks that fit count."""
    nodes = [record(f"n{i}", 10 * i, offer, capacity) for i in range(6)]
    nodes = [replace(node, first=offer.slots * i) for i, node in enumerate(nodes)]
    view = view_of(nodes, [node.given.slots for node in nodes], {})
    asked = parse_needs(needs)
    warm_set = view.warm_sets.of("llama", asked, None, view.partitions)
    assert warm_set.ring.size_for(5.0) == size
    facts = [facts_of(LiveNode(0, node, 0, 0, {}, "", None), "work", {}) for node in nodes]
    of_plan = nodes_now(facts, asked, LearntTimes(), {"llama": 4}).cluster.warm_set("llama")
    assert of_plan is not None
    assert of_plan.size == size


def test_pack_and_spread_count_the_memory_of_devices() -> None:
    nodes = [record("n1", 0, GPUS), record("n2", 8, GPUS)]
    gib = 2**30
    left = f"gpu.mem@0={10 * gib} gpu.mem@1={10 * gib} gpu@0=1 gpu@1=1"
    full = GPUS.text.partition(" ")[2]
    view = view_of(nodes, [8, 8], {"n1": left, "n2": full})
    needs = Resources.needed(1, {"gpu.mem": "10GiB"})
    assert ranks_of(view, "pack=gpu.mem", needs) == [0, 3]
    assert ranks_of(view, "pack", needs) == [0, 3]
    assert ranks_of(view, "spread", needs) == [3, 0]
    pair = Resources.needed(1, {"gpu": 2, "gpu.mem": "9GiB"})
    assert ranks_of(view, "pack=gpu.mem", pair) == [0, 3]
    view = view_of(nodes[1:], [8], {"n2": full})
    assert ranks_of(view, "pack=gpu.mem", Resources.needed(1, {"gpu": 2, "gpu.mem": "35GiB"})) == [
        0
    ], "each of its two devices gives 35 GiB"


# -- the text of a source --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "capacity", "cut"),
    [
        ("gpu=1", "gpu@1=0", []),
        ("gpu@0=0 gpu=1", "gpu@0=0", []),
        ("gpu=1 gpu@0=0", "gpu@0=0", []),
        ("gpu=2", "", []),
        ("gpu=3", "", ["gpu"]),
        ("gpu.mem=8GiB", f"gpu.mem@0={8 * 2**30},gpu.mem@1={8 * 2**30}", []),
        ("gpu.mem=8GiB gpu.mem@1=4GiB", f"gpu.mem@0={8 * 2**30},gpu.mem@1={4 * 2**30}", []),
        ("gpu.mem=50GiB", "", ["gpu.mem"]),
        ("mem=3", "", ["mem"]),
    ],
)
def test_the_capacity_of_devices(text: str, capacity: str, cut: list[str]) -> None:
    assert capacity_of(GPUS, read_capacity(text)) == (capacity, cut)

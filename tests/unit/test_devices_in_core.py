"""Devices in a scheduler's core: reserved seats, amounts put back, blocked tasks, and the order of
nodes.
"""

import numpy as np

from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Judged, Snapshot
from parsync_redis.placement.preferences.marks import not_asked
from parsync_redis.placement.preferences.preference import find_scarce
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.partition import PartitionCopy
from tests.kit.core_rig import Queue, bitmap, claims_of, make, node, tasks_of

HALF = parse_needs("slots=1 gpu=0.5")
MEMORY = parse_needs("slots=1 gpu.mem=8")


def gpus(
    name: str, first: int = 0, slots: int = 4, score: float = 1.0, shared: bool = False
) -> Node:
    """Return a node with two GPUs."""
    offer = Resources.of(slots, None, None, (), {"gpu": [0, 1]}, {"gpu.mem": 16}, shared)
    # name, state, incarnation, drain, first bit, slots, score, offer
    return Node(name, "up", 1, False, first, slots, score, offer)


def full(*nodes: Node) -> dict[str, str]:
    return {some.name: some.offer.asked for some in nodes if some.offer.amounts}


def copy_of(*nodes: Node) -> PartitionCopy:
    copy = PartitionCopy(0)
    copy.set_nodes(nodes, 1)
    copy.set_free(bitmap(sum(some.span for some in nodes)), full(*nodes), 1)
    return copy


def see(
    core: Core, nodes: list[Node], left: dict[str, str] | None = None, version: int = 1
) -> None:
    """Give the core a read of a partition with these nodes, all of whose slots are free."""
    if version == 1:
        core.on_nodes(0, nodes, 1)
    free = bitmap(sum(some.span for some in nodes))
    core.on_snapshot(Snapshot(0, version, 1, free, full(*nodes) if left is None else left), 0.0)
    core.plan(place=False, confirm=False)


def test_an_unclaimed_amount_goes_back_to_its_devices() -> None:
    """The seat that is moved up takes its devices with it."""
    copy = copy_of(gpus("n1", slots=1), gpus("n2", first=1))
    reservation = copy.reserve(copy.seats(HALF), np.arange(4), HALF)
    assert reservation.owners == [0, 1, 1, 1]
    held = [dict(some) for some in reservation.device_amounts]
    assert held == [{"gpu@0": 500}, {"gpu@0": 500}, {"gpu@0": 500}, {"gpu@1": 500}]
    reservation.move_up(3)
    assert [*reservation.claim(1)] == [(copy.nodes[1], (2,))]
    reservation.give_back()
    assert copy.amounts_left.of_node(0) == dict(copy.nodes[0].offer.amounts)
    assert copy.amounts_left.of_node(1) == {**dict(copy.nodes[1].offer.amounts), "gpu@1": 500}


def test_two_devices_that_are_half_full_have_no_room_for_a_whole_one() -> None:
    copy = copy_of(gpus("n1"))
    copy.set_free(bitmap(4), {"n1": "gpu.mem@0=4 gpu.mem@1=4 gpu@0=0.5 gpu@1=0.5"}, 2)
    assert len(copy.seats(parse_needs("slots=1 gpu=1")).leads) == 0
    assert len(copy.seats(MEMORY).leads) == 0
    assert len(copy.seats(HALF).leads) == 2


def test_a_kind_that_finds_no_device_is_blocked_until_one_has_enough() -> None:
    core = make()
    see(core, [gpus("n1")], {"n1": "gpu.mem@0=4 gpu.mem@1=4 gpu@0=0.5 gpu@1=0.5"})
    queue = Queue(core).add("work slots=1 gpu=1").add("work slots=1 gpu.mem=8", first=2)
    queue.tell()
    assert claims_of(queue.turn()) == []
    assert len(core.queue.blocked) == 2
    see(core, [gpus("n1")], {"n1": "gpu.mem@0=16 gpu.mem@1=4 gpu@0=0.999 gpu@1=0.999"}, version=2)
    assert tasks_of(queue.turn()) == ["t2"]
    see(core, [gpus("n1")], {"n1": "gpu.mem@0=4 gpu.mem@1=4 gpu@0=0 gpu@1=1"}, version=3)
    assert tasks_of(queue.turn()) == ["t1"]


def test_a_won_claim_has_the_devices_that_commit_chose() -> None:
    core = make()
    see(core, [gpus("n1")])
    queue = Queue(core).add("work slots=1 gpu=0.5")
    queue.tell()
    claims = queue.turn().commit[0]
    core.on_judged(Judged(0, 2, 5, claims, [Verdict(ClaimOutcome.HELD, "5 gpu@1=0.5")]))
    (place,) = core.won.unconfirmed
    assert (place.since_ms, place.devices) == (5, {"gpu": [1]})


def test_a_task_without_devices_avoids_nodes_that_reserve_their_devices() -> None:
    core = make()
    nodes = [gpus("n1", score=100.0), gpus("n2", first=4, score=50.0, shared=True)]
    nodes += [Node(f"c{at}", "up", 1, False, 8 + at, 1, 1.0, node("c", 1).offer) for at in range(3)]
    see(core, nodes)
    queue = Queue(core).add("work slots=1", 9)
    queue.tell()
    found = [claim.partition("/")[0] for claim in claims_of(queue.turn())]
    assert set(found[:3]) == {"c0", "c1", "c2"}, "a node with a scarce kind of devices comes last"
    assert found[3:] == ["n2"] * 4


def test_devices_are_scarce_by_their_kind() -> None:
    """Nodes with a scarce kind of device do not come last for tasks that ask for the kind."""
    copy = copy_of(
        gpus("n1"),
        *(Node(f"c{at}", "up", 1, False, 4 + at, 1, 1.0, node("c", 1).offer) for at in range(2)),
    )
    scarce = find_scarce([copy.offers.columns])
    assert scarce == {"gpu"}
    assert not_asked(HALF, scarce) == not_asked(MEMORY, scarce) == frozenset()


def test_words_that_keep_apart_do_not_make_a_filter_each() -> None:
    core = make()
    see(core, [gpus("n1")], {"n1": "gpu.mem@0=4 gpu.mem@1=4 gpu@0=0 gpu@1=0"})
    queue = Queue(core)
    for at in range(20):
        queue.add(f"work slots=1 apart_w{at}=1 gpu=0.5", first=at + 1)
    queue.tell()
    assert claims_of(queue.turn()) == []
    filters = core.queue.blocked._filters
    assert len(core.queue.blocked) == 20
    assert [needs.text for needs, _ in filters] == ["slots=1 gpu=0.001"]

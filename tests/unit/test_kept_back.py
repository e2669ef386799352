"""The core keeps nodes back: those with taints or scarce resources, and those with a task of the
same `apart` word.
"""

import numpy as np
import pytest

from parsync_redis.model.apart import held_by
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Snapshot
from parsync_redis.model.taints import offered_taints, tolerance
from parsync_redis.scheduler.core.core import Core
from tests.kit.core_rig import bitmap, claims_of, make, waiting


def cluster(core: Core, **offers: Resources) -> None:
    """Give the core a read of each node: each node is a partition and has ten slots."""
    for p, (name, offer) in enumerate(offers.items()):
        # name, state, incarnation, drain, first bit, slots, score, offer
        core.on_nodes(p, [Node(name, "up", 1, 0, 0, offer.slots, 1.0, offer)], 1)
        core.on_snapshot(Snapshot(p, 1, 1, bitmap(offer.slots), {name: offer.asked}), 0.0)
    core.plan(place=False, confirm=False)


def counts(core: Core, tasks: int, needs: Resources) -> dict[str, int]:
    """Return how many of these tasks each node gets."""
    names, numbers = np.unique(
        [claim.partition("/")[0] for claim in claims_of(waiting(core, tasks, needs.text).turn())],
        return_counts=True,
    )
    return dict(zip(names.tolist(), numbers.tolist(), strict=True))


def test_a_node_with_a_taint_takes_only_tasks_that_tolerate_it() -> None:
    core = make(2)
    cluster(core, plain=Resources.of(3), spot=Resources.of(3, reserved=offered_taints(["spot"])))
    assert counts(core, 6, Resources.needed()) == {"plain": 3}
    assert counts(core, 6, Resources.needed(reserved=tolerance(["old", "spot"]))) == {"spot": 3}


@pytest.mark.parametrize("strategy", [Strategy.QUALITY, Strategy.LATENCY])
def test_nodes_with_scarce_resources_come_last_for_tasks_that_do_not_ask_for_them(
    strategy: Strategy,
) -> None:
    core = make(4, strategy)
    gpu = Resources.of(10, {"gpu": 4})
    both = Resources.of(10, {"gpu": 4, "mem": 64})
    cluster(core, a=gpu, b=Resources.of(10), c=Resources.of(10), d=Resources.of(10))
    assert counts(core, 30, Resources.needed()) == {"b": 10, "c": 10, "d": 10}
    assert counts(core, 5, Resources.needed()) == {"a": 5}, "a preference: no other node has a seat"
    core = make(4, strategy)
    cluster(
        core,
        a=both,
        b=Resources.of(10, {"mem": 64}),
        c=Resources.of(10, {"mem": 64}),
        d=Resources.of(10),
    )
    assert counts(core, 20, Resources.needed(1, {"mem": 1})) == {"b": 10, "c": 10}
    assert counts(core, 4, Resources.needed(1, {"gpu": 1})) == {"a": 4}


def test_a_resource_of_half_of_the_nodes_is_not_scarce() -> None:
    core = make(3)
    cluster(core, a=Resources.of(10), b=Resources.of(10, {"gpu": 1}))
    assert not core.view.cluster.scarce
    cluster(core, a=Resources.of(10), b=Resources.of(10, {"gpu": 1}), c=Resources.of(10))
    assert core.view.cluster.scarce == {"gpu"}


def test_a_stale_partition_is_read_before_a_scarce_node_is_used() -> None:
    core = make(3, Strategy.LATENCY)
    core.on_members(0, 3)
    cluster(core, a=Resources.of(2), b=Resources.of(2), gpu=Resources.of(2, {"gpu": 1}))
    for tick in (1, 2, 3):
        core.on_tick(tick)
    core.on_snapshot(Snapshot(2, 2, 1, bitmap(2), {"gpu": "gpu=1"}), 1.0)
    stale = {
        p.number for p in core.view.partitions if core._freshness.is_stale(p, Strategy.LATENCY)
    }
    assert stale & {0, 1}, "the turns of others have come there"
    assert 2 not in stale
    queue = waiting(core, 1)
    plan = core.plan()
    assert not claims_of(plan)
    assert queue.waiting["work slots=1"], "not taken for the scarce node"
    assert {0, 1} & {*plan.read}


def test_tasks_that_are_kept_apart_get_different_nodes_and_wait_for_a_node_without_one() -> None:
    core = make(2)
    needs = Resources.made(1, held_by("web"), [])
    cluster(core, a=Resources.of(3), b=Resources.of(3))
    queue = waiting(core, 3, needs.text)
    assert sorted(claim[0] for claim in claims_of(queue.turn())) == ["a", "b"]
    assert [order for order, _ in queue.waiting[f"work {needs.text}"]] == [3]
    both = "a has a task with apart=web; b has a task with apart=web"
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(2), {"a": "apart_web=0"}), 1.0)
    core.on_snapshot(Snapshot(1, 2, 1, bitmap(2), {"b": "apart_web=0"}), 1.0)
    assert core.view.explain(needs) == f"2 nodes fit: {both}"
    assert not claims_of(queue.turn())
    core.on_snapshot(Snapshot(1, 3, 1, bitmap(2), {}), 2.0)
    assert [claim[0] for claim in claims_of(queue.turn())] == ["b"]


def test_seats_that_were_not_used_leave_the_node_to_others_of_the_word() -> None:
    core = make()
    needs = Resources.made(1, held_by("web"), [])
    cluster(core, a=Resources.of(3, {"gpu": 1}))
    partition = core.view.partitions[0]
    reservation = partition.reserve(partition.seats(needs), np.array([0]), needs)
    assert not len(partition.seats(needs).leads)
    reservation.give_back()
    assert len(partition.seats(needs).leads) == 1

"""A scheduler claims a waiting seat for a task of one slot without amounts, and only if no slot is free."""

import numpy as np

from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Snapshot
from parsync_redis.scheduler.core.core import Core
from tests.kit.core_rig import Queue, claims_of, make, tasks_of, waiting

# name, state, incarnation, drain, first bit, slots, score, offer
ONE = Node("one", "up", 1, False, 0, 4, 1.0, Resources.of(1, {"mem": 10}), ahead=3)
OTHER = Node("other", "up", 1, False, 4, 1, 1.0, Resources.of(1, {"mem": 10}))


def see(core: Core, nodes: list[Node], bits: str) -> None:
    """Give the core a read of the partition: each bit is a slot or a waiting seat."""
    free = np.packbits([bit == "1" for bit in bits]).tobytes()
    core.on_nodes(0, nodes, 1)
    core.on_snapshot(Snapshot(0, 1, 1, free, {node.name: "mem=10" for node in nodes}), 0.0)
    core.plan(place=False, confirm=False)


def test_slots_are_taken_before_waiting_seats() -> None:
    core = make()
    see(core, [ONE, OTHER], "11111")
    assert sorted(claims_of(waiting(core, 2).turn())) == ["one/0", "other/0"]


def test_a_task_without_a_slot_takes_a_waiting_seat() -> None:
    core = make()
    see(core, [ONE, OTHER], "01101")
    assert sorted(claims_of(waiting(core, 9).turn())) == ["one/1", "one/2", "other/0"]


def test_a_task_with_amounts_or_several_slots_takes_no_waiting_seat() -> None:
    for needs in ("slots=1 mem=1", "slots=2"):
        core = make()
        see(core, [ONE], "0111")
        assert claims_of(waiting(core, 1, needs).turn()) == []


def both(first: int) -> tuple[Core, Queue]:
    """Let one task with amounts wait, and short tasks since order 10."""
    core = make()
    see(core, [ONE], "0111")
    queue = Queue(core)
    queue.add("large slots=1 mem=1", 1, first, "large").add("short slots=1", 2, 10)
    queue.tell()
    return core, queue


def test_an_older_task_with_amounts_keeps_its_turn_at_the_slot() -> None:
    core, queue = both(1)
    queue.turn()
    assert claims_of(queue.turn()) == []
    see(core, [ONE], "1111")
    plan = queue.turn()
    assert (tasks_of(plan)[0], claims_of(plan)[0]) == ("large1", "one/0")


def test_a_younger_task_with_amounts_keeps_nobody_from_a_waiting_seat() -> None:
    _, queue = both(99)
    assert tasks_of(queue.turn()) == ["t10", "t11"]

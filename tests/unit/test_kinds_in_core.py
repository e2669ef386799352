"""Kinds in the core: seats that nobody takes, reasons, what is looked at again, and many kinds for
few slots.
"""

import numpy as np

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.order import YEAR_2020, order_of
from parsync_redis.model.replies import Snapshot, Took
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.queue import GROUPS_AT_ONCE
from parsync_redis.scheduler.core.wait_reasons import EXPLAINED_AGAIN
from tests.kit.core_rig import Queue, after_a_gap, bitmap, judge, make, node, see, takes, waiting

MISSING = "slots=1 gpu_model:a100"
NOW = YEAR_2020 + 10**13


def change(core: Core, text: str, line: str) -> None:
    """Tell the core the line of a kind, as the reply to a look does.

    line: how many tasks wait, the order of the first, the order of the last; "" if none waits.
    """
    core.on_took(Took("1", 0, changes=[(text, line)]))


def own_turn(core: Core) -> dict[str, str]:
    """Let the core's own turn of a gap come; return the reasons that the core writes."""
    core.on_tick(core.counters.ticks)
    found: dict[str, str] = {}
    while reasons := core.plan(confirm=False).reasons.get(0):
        found |= dict(reasons)
    return found


def test_a_seat_claimed_by_another_scheduler_does_not_stay_reserved() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 1)
    queue = waiting(core, 1)
    plan = core.plan()
    core.on_snapshot(Snapshot(0, 2, 1, np.packbits([False, True]).tobytes(), {}), 1.0)
    queue.answer(plan)
    core.plan()
    assert not core.view.partitions[0].reserved


def test_tasks_given_back_are_read_again_in_the_same_request() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    judge(core, waiting(core, 1).turn(), ClaimOutcome.CONFLICT)
    plan = after_a_gap(core)
    assert plan.give_back
    assert plan.shard_looks


def test_a_scheduler_told_of_a_freed_slot_reads_which_kinds_wait() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 0)
    waiting(core, 1)
    core.plan()
    core.on_freed(0)
    plan = core.plan()
    assert (plan.read, list(plan.shard_looks)) == ([0], [0])


def test_the_core_asks_for_no_freed_slot_before_it_compares_waiting_kinds_with_seats() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    waiting(core, 1)
    assert not core.plan(place=False).ask


def test_a_kind_that_ended_and_began_between_two_looks_gets_its_reason_again() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    change(core, f"work {MISSING}", "1 5 5")
    (why,) = own_turn(core).values()
    assert not own_turn(core)
    change(core, f"work {MISSING}", "1 9 9")
    assert own_turn(core) == {f"work {MISSING}": why}


def test_a_new_writer_of_reasons_writes_all_reasons_anew() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    change(core, f"work {MISSING}", "1 5 5")
    assert own_turn(core)
    core.on_members(1, 2)
    core.on_members(0, 1)
    assert own_turn(core), "another may have written something else meanwhile"


def test_a_new_kind_beside_many_explained_ones_gets_its_reason_at_once() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    for number in range(3 * EXPLAINED_AGAIN):
        change(core, f"work slots=1 label:v{number}", "1 5 5")
    assert len(own_turn(core)) == 3 * EXPLAINED_AGAIN
    change(core, "other slots=1 label:v0", "1 9 9")
    assert list(own_turn(core)) == ["other slots=1 label:v0"]


def test_one_freed_slot_is_offered_to_some_kinds_at_a_time_and_goes_to_the_oldest() -> None:
    core = make()
    # name, state, incarnation, drain, first bit, slots, score, offer
    core.on_nodes(0, [Node("n", "up", 1, 0, 0, 4, 1.0, Resources.of(4, {"mem": 10_000}))], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(0), {"n": "mem=10000"}), 0.0)
    queue = Queue(core)
    for number in range(5 * GROUPS_AT_ONCE):
        queue.add(f"work slots=1 mem={1 + number}", 1, 9_000 - number)
    queue.tell()
    assert not takes(core.plan())
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(1), {"n": "mem=10000"}), 0.0)
    plan = core.plan()
    assert takes(plan) == [(f"work slots=1 mem={5 * GROUPS_AT_ONCE}", 1)]
    assert len(core.queue.blocked) >= 4 * GROUPS_AT_ONCE, "the others were not tried"
    queue.answer(plan)
    core.on_snapshot(Snapshot(0, 3, 1, bitmap(4), {"n": "mem=10000"}), 0.0)
    assert len(takes(core.plan())) == 4


def test_all_kinds_get_seats_while_there_are_some_however_many_are_tried_at_a_time() -> None:
    core = make()
    core.on_nodes(
        0,
        [
            Node(
                "n",
                "up",
                1,
                0,
                0,
                4 * GROUPS_AT_ONCE,
                1.0,
                Resources.of(4 * GROUPS_AT_ONCE, {"mem": 1}),
            )
        ],
        1,
    )
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(4 * GROUPS_AT_ONCE), {"n": "mem=1"}), 0.0)
    queue = Queue(core)
    for number in range(3 * GROUPS_AT_ONCE):
        queue.add(f"work{number} slots=1 zero={0}", 1, number)
        queue.add(f"work slots=1 n{number}=0", 1, 5000 + number)
    queue.tell()
    assert len(takes(core.plan())) == 4 * GROUPS_AT_ONCE


def test_an_urgent_task_does_not_carry_its_kind_past_more_urgent_kinds() -> None:
    core = make()
    see(core, 0, [node("n", 20)], 20)
    # one task of priority 9, two hundred of priority 0
    change(core, "mixed slots=1", f"1000 1 {order_of(0, NOW) + 999}")
    change(core, "normal slots=1", f"100 {order_of(5, NOW)} {order_of(5, NOW) + 99}")
    taken = dict(takes(core.plan()))
    assert taken["normal slots=1"] >= 17
    assert 1 <= taken["mixed slots=1"] <= 3

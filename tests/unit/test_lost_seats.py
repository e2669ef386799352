"""Tasks whose seats were other schedulers': they get the next seat, or their takes are undone after
a gap.
"""

from typing import Any

import pytest

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Snapshot, Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.kind_group import KindGroup
from parsync_redis.scheduler.core.large_kinds import LeastAsked
from parsync_redis.scheduler.core.plan import Plan
from parsync_redis.scheduler.core.seats import SeatFinder
from parsync_redis.scheduler.core.unplaced_tasks import MAX_LOSSES
from tests.kit.core_rig import (
    Queue,
    after_a_gap,
    bitmap,
    claims_of,
    judge,
    make,
    node,
    see,
    tasks_of,
    waiting,
)


def test_a_lost_claim_is_tried_elsewhere_at_once_and_goes_back_if_there_is_no_other_seat_for_a_gap() -> (
    None
):
    core = make()
    see(core, 0, [node("n", 3)], 3)
    plan = waiting(core, 1).turn()
    tried = list[str]()
    while plan.commit:
        tried += claims_of(plan)
        judge(core, plan, ClaimOutcome.CONFLICT)
        plan = core.plan()
    assert sorted(tried) == ["n/0", "n/1", "n/2"]
    assert core.in_flight == 1, "the next slot that this scheduler sees is for it"
    assert core.unclaimed == {"t1": "1@1"}
    assert after_a_gap(core).give_back == [("t1", "1@1", "undo")]
    assert core.in_flight == 0
    assert core.counters.conflicts == 3


def test_a_task_that_loses_ten_claims_goes_back_though_there_are_more_seats() -> None:
    core = make()
    see(core, 0, [node("n", 20)], 20)
    plan = waiting(core, 1).turn()
    tried = 0
    while plan.commit:
        tried += len(plan.commit[0])
        judge(core, plan, ClaimOutcome.CONFLICT)
        plan = core.plan()
    assert tried == MAX_LOSSES
    assert plan.give_back == [("t1", "1@1", "undo")]
    assert core.in_flight == 0


def test_a_task_that_lost_its_seat_gets_the_next_one_and_is_taken_once() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    judge(core, waiting(core, 1).turn(), ClaimOutcome.CONFLICT)
    assert not core.plan().commit
    core.on_tick(1)
    core.on_snapshot(Snapshot(0, 9, 1, bitmap(1), {}), 1.0)
    plan = core.plan()
    assert (claims_of(plan), plan.give_back, core.counters.taken) == (["n/0"], [], 1)
    judge(core, plan, ClaimOutcome.HELD)
    core.on_tick(2)
    core.on_tick(3)
    assert (core.plan().give_back, core.in_flight, core.unclaimed) == ([], 0, {})


def test_a_claim_without_an_answer_counts_and_an_unsent_claim_is_undone() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    plan = waiting(core, 1).turn()
    assert (core.unclaimed, len(plan.commit)) == ({}, 1), "it is on the way: it may win"
    core.on_unread(0, plan.commit[0])
    assert core.plan().give_back == [("t1", "1@1", "")]
    core.on_took(Took("9", 0, tasks=[Taken("t2", "1@2", Kind("work", "slots=1"), 0)]))
    assert core.unclaimed == {"t2": "1@2"}


# name, state, incarnation, drain, first bit, slots, score, offer
WAITS = Node("n", "up", 1, False, 0, 2, 1.0, Resources.of(1, {"mem": 4}), ahead=1)
"""A node of one slot, with one waiting seat."""


def loses_its_slot(core: Core, queue: Queue) -> Plan:
    """Let the claim of the only slot be lost; return the next plan."""
    judge(core, queue.turn(), ClaimOutcome.CONFLICT)
    return core.plan()


def test_a_task_that_lost_its_slot_takes_an_open_waiting_seat_at_once() -> None:
    core = make()
    see(core, 0, [WAITS], 2)
    plan = loses_its_slot(core, waiting(core, 1))
    assert (claims_of(plan), core.counters.taken) == (["n/1"], 1)


def test_a_task_that_lost_its_slot_takes_no_waiting_seat_while_others_need_slots_there() -> None:
    core = make()
    see(core, 0, [WAITS], 2)
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(2), {"n": "mem=0"}), 0.0)
    queue = Queue(core).add("work slots=1").add("large slots=1 mem=4", 1, 2, "large")
    queue.tell()
    plan = loses_its_slot(core, queue)
    assert (claims_of(plan), core.in_flight) == ([], 1)


def test_while_a_task_has_no_seat_partitions_are_asked_to_tell_of_freed_slots() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    plan = loses_its_slot(core, waiting(core, 1))
    assert (core.in_flight, len(core.queue.blocked), plan.ask) == (1, 0, {0})


def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that the needs of each search for seats are added to."""
    found = list[str]()
    find = SeatFinder.find

    def noted(self: SeatFinder, group: KindGroup, *args: Any, **options: Any) -> Any:
        found.append(group.needs.text)
        return find(self, group, *args, **options)

    monkeypatch.setattr(SeatFinder, "find", noted)
    return found


def test_tasks_without_a_seat_are_searched_for_by_needs_and_only_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = make()
    core.on_members(0, 3)
    see(core, 0, [node("n", 5)], 5)
    queue = Queue(core)
    for number in range(5):
        queue.add(f"work{number} slots=1", 1, 1 + number)
    queue.tell()
    judge(core, queue.turn(), ClaimOutcome.CONFLICT)
    core.on_snapshot(Snapshot(0, 3, 1, bitmap(0), {}), 1.0)
    found = searches(monkeypatch)
    core.plan()
    assert (found, core.in_flight) == (["slots=1"], 5)
    core.plan()
    core.on_tick(1)
    core.plan()
    assert found == ["slots=1"], "nothing has changed"
    core.on_snapshot(Snapshot(0, 4, 1, bitmap(2), {}), 2.0)
    plan = core.plan()
    assert (found, tasks_of(plan), core.in_flight) == (["slots=1"] * 2, ["t1", "t2"], 5)


@pytest.mark.parametrize(
    ("needs", "stays"), [("slots=2", 0), ("slots=1 mem=2", 0), ("slots=1 mem=1", 1)]
)
def test_a_large_task_that_lost_its_seat_goes_back_at_once_for_the_leader_to_see(
    needs: str, stays: int
) -> None:
    core = make()
    least = LeastAsked(10.0)
    core.on_least(least)
    see(core, 0, [Node("n", "up", 1, False, 0, 2, 1.0, Resources.of(2, {"mem": 2}))], 2)
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(2), {"n": "mem=2"}), 0.0)
    queue = Queue(core).add(f"work {needs}")
    queue.tell()
    least.see([*core.queue.groups, KindGroup(Resources.of(1, {"mem": 1}), None)], 0.0)
    plan = queue.turn()
    assert plan.commit
    judge(core, plan, ClaimOutcome.CONFLICT)
    core.on_snapshot(Snapshot(0, 3, 1, bitmap(0), {"n": "mem=0"}), 1.0)
    plan = core.plan()
    assert (len(plan.give_back), core.in_flight) == (1 - stays, stays)
    assert all(how == "undo" for *_, how in plan.give_back)

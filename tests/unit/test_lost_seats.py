"""Tasks whose seats were other schedulers': they get the next seat, or their takes are undone after a gap."""

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.kind import Kind
from parsync_redis.model.replies import Snapshot, Took
from parsync_redis.model.task import Taken

from .core_rig import after_a_gap, bitmap, claims_of, judge, make, node, see, waiting


def test_a_lost_claim_is_tried_elsewhere_at_once_and_goes_back_if_there_is_no_other_seat_for_a_gap() -> None:
    core = make()
    see(core, 0, [node("n", 3)], 3)
    plan, tried = waiting(core, 1).turn(), list[str]()
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


def test_a_claim_that_nobody_answered_counts_and_one_that_was_not_sent_is_undone() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    plan = waiting(core, 1).turn()
    assert (core.unclaimed, len(plan.commit)) == ({}, 1), "it is on the way: it may win"
    core.on_unread(0, plan.commit[0])
    assert core.plan().give_back == [("t1", "1@1", "")]
    core.on_took(Took("9", 0, tasks=[Taken("t2", "1@2", Kind("work", "slots=1"), 0)]))
    assert core.unclaimed == {"t2": "1@2"}

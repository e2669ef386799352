"""Calls become smaller where claims are lost, and grow again."""

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.scheduler.core.claim_outcomes import MAX_LOST_SHARE, MIN_TASKS, CallSize
from tests.kit.core_rig import judge, make, node, see, waiting


def test_calls_are_small_while_claims_are_lost_and_large_again_afterwards() -> None:
    size = CallSize()
    assert size.tasks == MAX_BATCH
    for _ in range(10):
        size.on_judged(500, 10)
    assert size.tasks == MIN_TASKS
    for _ in range(20):
        size.on_judged(1000, int(1000 * MAX_LOST_SHARE * 0.75))
    assert size.tasks == MIN_TASKS, "between the two bounds it stays"
    for _ in range(20):
        size.on_judged(500, 0)
    assert size.tasks == MAX_BATCH


def test_a_single_lost_claim_changes_nothing() -> None:
    size = CallSize()
    size.on_judged(0, 0)
    size.on_judged(1, 1)
    assert size.tasks == MAX_BATCH


def test_a_scheduler_that_loses_many_claims_takes_less_in_a_round_trip() -> None:
    core = make()
    see(core, 0, [node("n", 8 * MAX_BATCH)], 8 * MAX_BATCH)
    queue = waiting(core, 5000)
    asked = []
    for _ in range(6):
        plan = queue.turn()
        asked.append(sum(map(len, plan.commit.values())))
        judge(core, plan, ClaimOutcome.CONFLICT)
        judge(core, core.plan(room=0), ClaimOutcome.HELD)  # the seats that they got instead
    assert asked[0] == MAX_BATCH
    assert asked[-1] == MIN_TASKS

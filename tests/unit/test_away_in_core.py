"""Servers that are away, in the core: their partitions and shards are left out, and the others go
on.
"""

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.ids import shard_of
from parsync_redis.model.replies import Snapshot, Took
from parsync_redis.scheduler.core.core import Core
from tests.kit.core_rig import Queue, bitmap, claims_of, judge, make, node, see, takes, tasks_of

WORK = "work slots=1"
SHARDS = 3


def spread() -> tuple[Core, list[Queue]]:
    """Return a core that sees two free slots in each of two partitions, and three shards with two
    tasks each.
    """
    core = make(2, shards=SHARDS)
    for p in range(2):
        see(core, p, [node(f"n{p}", 2)], 2)
    queues = [Queue(core, shard) for shard in range(SHARDS)]
    for queue in queues:
        queue.add(WORK, 2, 1 + 2 * queue.shard)
    tell(core, queues)
    return core, queues


def tell(core: Core, queues: list[Queue]) -> None:
    """Tell the core which kinds wait in these shards."""
    plan = core.plan(place=False, confirm=False)
    for queue in queues:
        queue.answer(plan)


def test_no_task_is_placed_in_a_silent_partition_until_the_next_turn_reads_the_partition() -> None:
    core, queues = spread()
    core.on_unread(0)
    assert core.view.free_count == 2
    plan = core.plan(confirm=False)
    for queue in queues:
        queue.answer(plan)
    assert {
        claim.partition for some in core.plan(confirm=False).commit.values() for claim in some
    } == {1}
    assert not core.plan(confirm=False).read, "it is not asked again and again"
    core.on_tick(0)
    plan = core.plan(confirm=False)
    assert 0 in plan.read
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(2), {}), 1.0)
    assert core.view.partitions[0].free_count == 2


def test_tasks_whose_claims_nobody_answers_go_back_and_are_never_claimed_again() -> None:
    core, queues = spread()
    plan = core.plan(confirm=False)
    for queue in queues:
        queue.answer(plan)
    plan = core.plan(confirm=False)
    assert len(claims_of(plan)) == 4
    lost = [claim.task for claim in plan.commit[0]]
    core.on_unread(0, plan.commit.pop(0))
    judge(core, plan, ClaimOutcome.HELD)
    assert set(lost) <= core.taken
    assert core.in_flight == len(lost)
    # there are seats, but not for these attempts
    core.on_snapshot(Snapshot(1, 9, 1, bitmap(2), {}), 1.0)
    plan = core.plan(confirm=False)
    assert sorted(id for id, *_ in plan.give_back) == sorted(lost)
    assert {shard_of(id, SHARDS) for id in lost} <= plan.shard_looks.keys()
    assert not tasks_of(plan)
    assert core.in_flight == 0


def test_a_shard_without_an_answer_keeps_no_seats_and_is_asked_again_once_a_gap() -> None:
    core, queues = spread()
    plan = core.plan(confirm=False)
    assert len(takes(plan, 0)) == 1
    core.on_untaken(0)
    queues[1].answer(plan)
    assert (
        sum(map(len, core.view.partitions[0].reserved))
        + sum(map(len, core.view.partitions[1].reserved))
        == 0
    )
    plan = core.plan(confirm=False)
    assert [shard for shard in plan.shard_looks if takes(plan, shard)] == [2]
    queues[2].answer(plan)
    core.on_freed(0)
    core.on_freed(1)
    assert 0 not in core.plan(confirm=False).shard_looks
    assert not core.plan(confirm=False).shard_looks
    core.on_members(0, 3)
    core.on_tick(3)
    plan = core.plan(confirm=False)
    assert (list(plan.shard_looks), takes(plan, 0)) == ([0, 1], []), "its share is shard 1"
    assert plan.shard_looks[0].since == "0", (
        "all of it: another server may have taken over, which has lost some"
    )
    core.on_took(Took("1", 0, changes=[(WORK, "2 1 2")]))
    see(core, 0, [node("n0", 2)], 2, version=3)
    assert takes(core.plan(confirm=False), 0) == [(WORK, 2)]


def test_reasons_that_were_not_written_are_written_in_the_next_gap() -> None:
    core = make(shards=SHARDS)
    see(core, 0, [node("n", 1)], 1)
    core.on_took(Took("1", 0, changes=[("work slots=1 gpu_model:a100", "1 5 5")], shard=1))
    core.on_tick(0)
    reasons = core.plan(confirm=False).reasons
    assert list(reasons) == [1]
    core.on_tick(1)
    assert not core.plan(confirm=False).reasons
    core.queue.forget_reasons(0)
    core.on_tick(2)
    assert not core.plan(confirm=False).reasons, "those of the other shards were written"
    core.queue.forget_reasons(1)
    core.on_tick(2)
    assert core.plan(confirm=False).reasons == reasons

"""The partitions that the core reads, and those where latency-first claims: no server, no clock,
dice with a seed.
"""

import pytest

from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Judged, Snapshot
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.plan import Plan
from tests.kit.core_rig import Queue, bitmap, judge, make, node, see, takes, waiting


def partitions_of(plan: Plan) -> list[int]:
    return [claim.partition for claims in plan.commit.values() for claim in claims]


@pytest.mark.parametrize(
    ("members", "partitions"), [(1, 4), (3, 8), (4, 4), (5, 3), (20, 20), (7, 20)]
)
def test_in_each_round_the_reads_are_disjoint_and_n_rounds_cover_everything(
    members: int, partitions: int
) -> None:
    cores = [make(partitions) for _ in range(members)]
    for ordinal, core in enumerate(cores):
        core.on_members(ordinal, members)
        for p in range(partitions):
            see(core, p, [node("n", 1)], 1)
    seen: list[set[int]] = [set() for _ in cores]
    for tick in range(members):
        reads = []
        for core, mine in zip(cores, seen, strict=True):
            core.on_tick(tick)
            turn = set(core.plan().read)
            mine |= turn
            reads += list(turn)
        assert sorted(reads) == list(range(partitions)), (
            "each partition is read once, by one scheduler"
        )
    assert all(mine == set(range(partitions)) for mine in seen)


def test_latency_first_takes_the_freshest_partition_whatever_its_scores() -> None:
    core = make(2, Strategy.LATENCY)
    see(core, 0, [node("good", 4, 99.0)], 4, now_s=1.0)
    see(core, 1, [node("poor", 4, 1.0)], 4, now_s=2.0)
    assert sorted(partitions_of(waiting(core, 5).turn())) == [0, 1, 1, 1, 1]


def test_ticks_that_are_heard_late_leave_the_last_turn_the_freshest() -> None:
    core = make(3, Strategy.LATENCY)
    core.on_members(0, 3)
    for p in range(3):
        see(core, p, [node("n", 2)], 2)
    for tick in (1, 2):
        core.on_tick(tick)
    assert core.due, "what was freshest may be another's by now"
    assert core.plan(place=False).read == [1, 2]
    assert not core.due
    for p in (1, 2):
        core.on_snapshot(Snapshot(p, 2, 1, bitmap(2), {}), 5.0)
    queue = waiting(core, 5)
    plan = core.plan()
    assert plan.read == [0], (
        "another's turn has come there: it is read anew before anything is placed in it"
    )
    queue.answer(plan)
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(2), {}), 6.0)
    plan = core.plan()
    assert partitions_of(plan) == [2, 2, 1, 1]
    queue.answer(plan)
    assert partitions_of(core.plan()) == [0]


def fetching(count: int) -> tuple[Core, Queue]:
    """Return one of two schedulers with so many tasks: its own partition is full, the other partition is read out of turn."""
    core = make(2, Strategy.LATENCY)
    core.on_members(0, 2)
    for p in range(2):
        see(core, p, [node("n", 2)], 2)
    for tick in (2, 4, 6):
        core.on_tick(tick)
        core.on_snapshot(Snapshot(0, tick, 1, bitmap(0), {}), tick)
    queue = waiting(core, count)
    assert core.plan().read == [1]
    return core, queue


def test_a_partition_that_is_full_when_it_is_read_anew_is_not_read_without_end() -> None:
    core, _ = fetching(3)
    core.on_snapshot(Snapshot(1, 2, 1, bitmap(0), {}), 7.0)
    plan = core.plan()
    assert not takes(plan)
    assert plan.ask == {0, 1}, "now they wait until a slot is freed"
    assert not core.plan()


def test_a_stale_copy_is_fresh_once_a_read_shows_that_nothing_changed() -> None:
    core, queue = fetching(2)
    core.on_snapshot(Snapshot(1, 1, 1, None, {}), 7.0)
    assert partitions_of(queue.turn()) == [1, 1]


@pytest.mark.parametrize("strategy", [Strategy.LATENCY, Strategy.QUALITY])
def test_after_a_lost_claim_a_partition_is_read_before_the_next_claim_there(
    strategy: Strategy,
) -> None:
    core = make(1, strategy)
    see(core, 0, [node("n", 4)], 4)
    judge(core, waiting(core, 1).turn(), ClaimOutcome.CONFLICT)
    assert core.due
    plan = core.plan(place=False)
    assert plan.read == [0]
    assert not plan.commit


def test_due_partitions_can_be_read_before_a_placement() -> None:
    core = make(2, Strategy.LATENCY)
    for p in range(2):
        see(core, p, [node("n", 2)], 2)
    queue = waiting(core, 1)
    core.on_tick(1)
    plan = core.plan(place=False)
    assert not takes(plan)
    assert plan.read == [0, 1]
    core.on_snapshot(Snapshot(1, 2, 1, bitmap(2), {}), 1.0)
    assert partitions_of(queue.turn()) == [1]


@pytest.mark.parametrize(("members", "ticks_a_pass"), [(8, 2), (20, 3), (50, 3), (4, 7)])
def test_a_scheduler_whose_passes_are_slower_than_ticks_places_all_the_same(
    members: int, ticks_a_pass: int
) -> None:
    core = make(members, Strategy.LATENCY)
    core.on_members(0, members)
    for p in range(members):
        see(core, p, [node("n", 4)], 4)
    queue = waiting(core, 3)
    placed = 0
    only_read = False
    for tick in range(members):
        core.on_tick(tick)
    for _ in range(12):  # passes, as the loop makes them
        only_read = core.due and not only_read
        plan = core.plan(place=not only_read, confirm=False)
        for p, claims in plan.commit.items():
            placed += len(claims)
            core.on_judged(Judged(p, 2, 1, claims, [Verdict(ClaimOutcome.HELD, "1")] * len(claims)))
        for p in plan.read:
            core.on_snapshot(Snapshot(p, 2, 1, bitmap(4), {}), 1.0)
        queue.answer(plan)
        for _ in range(ticks_a_pass):
            tick += 1
            core.on_tick(tick)
    assert placed == 3


def test_a_freed_slot_is_claimed_once_it_is_read_and_after_the_own_slots() -> None:
    core = make(4, Strategy.LATENCY)
    core.on_members(0, 4)
    for p in range(4):
        see(core, p, [node("n", 4)], 4)
    for tick in (1, 2, 3, 4):  # the turns of the core are 1, 2, 3, 0
        core.on_tick(tick)
        (due,) = core.plan(place=False).read
        core.on_snapshot(Snapshot(due, 1 + tick, 1, bitmap(1 if due == 0 else 0), {}), float(tick))
    core.on_freed(2)
    core.plan(place=False)
    core.on_snapshot(Snapshot(2, 9, 1, bitmap(1), {}), 9.0)
    assert sorted(partitions_of(waiting(core, 2).turn())) == [0, 2]


def test_a_fetched_partition_is_fresh_for_one_pass() -> None:
    core = make(4, Strategy.LATENCY)
    core.on_members(0, 4)
    for p in range(4):
        see(core, p, [node("n", 4)], 0 if p != 2 else 4)
    for tick in (2, 3, 4):  # turns of 2, 3, 0
        core.on_tick(tick)
    core.plan(place=False)
    core.on_snapshot(Snapshot(2, 2, 1, bitmap(4), {}), 1.0)
    queue = Queue(core)
    for order in (1, 2):
        queue.add("work slots=1", 1, order).tell()
        plan = core.plan(confirm=False)
        assert not takes(plan), (
            "it was read at its turn, or for the task before: others place there now"
        )
        assert plan.read == [2]
        core.on_snapshot(Snapshot(2, 3, 1, bitmap(4), {}), 2.0)
        judge(core, queue.turn(), ClaimOutcome.HELD)


def test_a_scheduler_fetches_only_as_many_partitions_as_its_remaining_tasks_need() -> None:
    core = make(4, Strategy.LATENCY)
    core.on_members(0, 4)
    for p in range(4):
        see(core, p, [node("n", 4)], 0 if p == 0 else 4)
    for tick in (5, 6, 7, 8):
        core.on_tick(tick)
        core.counters.ticks += 2  # as if others' turns had come since
    core.plan(place=False)
    queue = waiting(core, 3)
    assert len(core.plan().read) == 1, "four seats for three tasks"
    queue.add("work slots=1", 3, 90).tell()
    assert len(core.plan().read) == 2

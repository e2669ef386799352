"""Several shards in the core: the shards at which a turn looks, and the order in which their tasks
get seats.
"""

import pytest

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.ids import shard_of
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.order import ORDERS_OF_PRIORITY
from parsync_redis.model.replies import Took
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.kind_group import EQUALLY_URGENT
from parsync_redis.scheduler.core.plan import Plan
from parsync_redis.scheduler.core.shard_polling import TASKS_PER_FURTHER_SHARD, shards_of
from tests.kit.core_rig import Queue, after_a_gap, judge, make, node, reasons, see, takes

SHARDS = 3
WORK = "work slots=1"
MISSING = "slots=1 gpu_model:a100"


def sharded(slots: int, shards: int = SHARDS) -> tuple[Core, list[Queue]]:
    """Return a core that sees so many free slots and has looked at all shards, of which none has a
    task; and the shards.
    """
    core = make(shards=shards)
    see(core, 0, [node("n", slots)], slots)
    queues = [Queue(core, shard) for shard in range(shards)]
    tell(core, *queues)
    return core, queues


def tell(core: Core, *queues: Queue) -> None:
    """Wake the core for these shards, and answer its look there."""
    for queue in queues:
        core.on_wake(queue.shard)
    plan = core.plan(place=False, confirm=False)
    for queue in queues:
        queue.answer(plan)


def taken(plan: Plan) -> dict[int, int]:
    """Return how many tasks a plan takes from each shard, in the order of its looks."""
    return {
        shard: count
        for shard, look in plan.shard_looks.items()
        if (count := sum(n for _, n in look.take))
    }


# -- at which shards it looks ----------------------------------------------------------------------


def test_a_new_scheduler_looks_at_all_shards_and_then_where_it_is_woken() -> None:
    core = make(shards=SHARDS)
    assert list(core.plan().shard_looks) == [0, 1, 2]
    assert not core.plan().shard_looks
    core.on_wake(2)
    plan = core.plan()
    assert {shard: look.waits for shard, look in plan.shard_looks.items()} == {2: "wait"}
    core.on_took(Took("1", 0, more=True, shard=1))
    assert list(core.plan().shard_looks) == [1], "it has more changes"


@pytest.mark.parametrize(
    ("members", "shards"), [(1, 16), (3, 16), (4, 16), (16, 16), (20, 16), (7, 1), (1, 1)]
)
def test_somebody_looks_at_each_shard_in_each_gap_and_each_scheduler_at_each_shard_in_time(
    members, shards
) -> None:
    rounds = max(members, shards)
    for gap in range(5, 5 + rounds):
        looked = [
            shard
            for ordinal in range(members)
            for shard in shards_of(ordinal, members, gap, shards)
        ]
        assert set(looked) == set(range(shards))
        assert len(looked) == rounds, "no two look at the same one while there are enough"
    for ordinal in range(members):
        seen = {
            shard for gap in range(rounds) for shard in shards_of(ordinal, members, gap, shards)
        }
        assert seen == set(range(shards))


def test_at_its_own_tick_a_scheduler_looks_at_its_share() -> None:
    core = make(shards=SHARDS)
    core.on_members(1, 2)
    core.plan()
    looks = []
    for tick in range(1, 9):
        core.on_tick(tick)
        looks.append(list(core.plan().shard_looks))
    assert looks == [[0, 2], [], [1], [], [0, 2], [], [1], []]


def test_a_freed_slot_is_worth_one_look_at_one_shard_after_the_other() -> None:
    core, _ = sharded(1)
    looks = []
    for _ in range(4):
        core.on_freed(0)
        core.on_freed(0)
        looks += list(core.plan().shard_looks)
    assert looks == [0, 1, 2, 0]
    core.on_freed(0)
    core.on_wake(2)
    assert list(core.plan().shard_looks) == [2], "it looks somewhere as it is"


def test_a_task_that_goes_back_is_looked_at_in_its_shard() -> None:
    core, queues = sharded(1)
    shard = shard_of("t7", SHARDS)
    tell(core, queues[shard].add(WORK, 1, 7))
    judge(core, queues[shard].turn(), ClaimOutcome.CONFLICT)
    core.on_members(0, 9)  # the core's own tick is not the last tick of the gap
    plan = after_a_gap(core)
    assert [id for id, *_ in plan.give_back] == ["t7"]
    assert list(plan.shard_looks) == [shard]


def test_a_full_take_wakes_other_schedulers_and_at_the_end_the_scheduler_waits_in_every_shard() -> (
    None
):
    core, queues = sharded(5 * MAX_BATCH)
    for queue in queues:
        queue.add(WORK, MAX_BATCH + 1, 1)
    tell(core, *queues)
    waits: dict[int, str] = {}
    turns = []
    while plan := core.plan(confirm=False):
        turns.append(sum(taken(plan).values()))
        assert turns[-1] < MAX_BATCH or "wake" in {look.waits for look in plan.shard_looks.values()}
        waits |= {shard: look.waits for shard, look in plan.shard_looks.items()}
        for queue in queues:
            if queue.shard in plan.shard_looks:
                queue.answer(plan)
    assert sum(turns) == SHARDS * (MAX_BATCH + 1)
    assert turns[:SHARDS] == [MAX_BATCH] * SHARDS
    assert waits == {0: "wait", 1: "wait", 2: "wait"}
    assert not core.queue.any_open


def test_while_tasks_remain_further_shards_are_read_up_to_the_number_taken() -> None:
    shards = 16
    core, queues = sharded(5000, shards)
    for queue in queues:
        queue.add(WORK, 256, 1)
    tell(core, *queues)
    room = 2 * TASKS_PER_FURTHER_SHARD
    plan = core.plan(room=room)
    assert sum(taken(plan).values()) == room
    assert len(plan.shard_looks) == len(taken(plan)) + 2
    looked = set(plan.shard_looks)
    for _ in range(shards):
        for shard in plan.shard_looks:
            queues[shard].answer(plan)
        plan = core.plan(room=room)
        looked |= plan.shard_looks.keys()
    assert looked == set(range(shards))


# -- in which order --------------------------------------------------------------------------------


def test_the_highest_priority_of_all_shards_goes_first() -> None:
    core, queues = sharded(10)
    low = 9 * ORDERS_OF_PRIORITY
    high = 2 * ORDERS_OF_PRIORITY
    queues[0].add(WORK, 20, low)
    queues[1].add(WORK, 20, low - ORDERS_OF_PRIORITY)
    queues[2].add(WORK, 7, high)
    tell(core, *queues)
    plan = core.plan()
    assert taken(plan) == {2: 7, 1: 3}
    assert not takes(plan, 0)


def test_of_one_priority_the_older_task_goes_first_wherever_it_is() -> None:
    core, queues = sharded(10)
    queues[0].add(WORK, 20, 3 * EQUALLY_URGENT)
    queues[1].add(WORK, 6, EQUALLY_URGENT)
    queues[2].add(WORK, 3, EQUALLY_URGENT + 200)
    tell(core, *queues)
    assert taken(core.plan()) == {1: 6, 2: 3, 0: 1}


def test_of_equally_urgent_tasks_it_takes_those_of_few_shards() -> None:
    core, queues = sharded(60)
    for queue in queues:
        queue.add(WORK, 50, 10 + queue.shard)
    tell(core, *queues)
    assert taken(core.plan()) == {0: 50, 1: 10}


def test_a_shard_gives_none_that_are_less_urgent_while_others_have_older_tasks() -> None:
    core, queues = sharded(430)
    queues[0].add(WORK, 2000, step=EQUALLY_URGENT // 400)
    queues[1].add(WORK, 20, 200)
    tell(core, *queues)
    assert taken(core.plan()) == {0: 410, 1: 20}


def test_kinds_of_one_shard_go_by_age_however_urgent() -> None:
    core, queues = sharded(40)
    for order in range(1, 61, 2):
        queues[1].add("odd slots=1", 1, order).add("even slots=1", 1, order + 1)
    tell(core, *queues)
    shares = dict(takes(core.plan(), 1))
    assert abs(shares["odd slots=1"] - shares["even slots=1"]) <= 3


# -- what it keeps of each shard -------------------------------------------------------------------


def test_seats_are_kept_for_the_shards_whose_answers_have_not_come() -> None:
    core, queues = sharded(4)
    queues[0].add(WORK, 2, 1)
    queues[1].add(WORK, 2, 3)
    tell(core, *queues)
    plan = core.plan()
    assert taken(plan) == {0: 2, 1: 2}
    queues[0].answer(plan)
    core.on_took(Took("1", 0, shard=1))
    assert len(core.plan(place=False).commit[0]) == 2
    assert core.view.free_count == 2, "another scheduler took those of shard 1"
    assert not core.view.partitions[0].reserved


def test_the_same_kind_in_several_shards_is_one_group_and_one_search() -> None:
    core, queues = sharded(1)
    for queue in queues:
        queue.add(f"work {MISSING}", 5, 1 + queue.shard)
    tell(core, *queues)
    assert not takes(core.plan())
    assert len(core.queue.blocked) == 1
    core.on_tick(0)
    plan = core.plan()
    assert list(plan.reasons) == [0, 1, 2]
    assert len({reasons(plan, shard)[0] for shard in range(SHARDS)}) == 1
    core.on_took(Took("9", 0, changes=[(f"work {MISSING}", "")], shard=1))
    assert [
        waiting.shard for group in core.queue.blocked for waiting in group.waiting.values()
    ] == [0, 2]


def test_each_shard_has_a_version_and_is_begun_anew_by_itself() -> None:
    core, queues = sharded(1)
    for queue in queues:
        queue.add(WORK, 2, 1)
    tell(core, *queues)
    core.on_took(Took("7", 0, anew=True, changes=[("other slots=1", "1 5 5")], shard=2))
    assert core.queue.versions == ["1", "1", "7"]
    assert [list(kinds) for kinds in core.queue.kinds] == [[WORK], [WORK], ["other slots=1"]]
    core.forget()
    assert core.queue.versions == ["0"] * SHARDS
    assert list(core.plan().shard_looks) == [0, 1, 2]
    assert not core.queue.any_open

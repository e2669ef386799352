"""How the leader divides a ceiling among shards, and when a scheduler asks a shard without room."""

from parsync_redis.model.account_line import AccountLine
from parsync_redis.model.allotment import ShardPart, divided_ceiling, equal_parts, undivided_ceiling
from parsync_redis.model.kind import Kind
from parsync_redis.model.policy import UNBOUNDED
from parsync_redis.scheduler.core.accounts import AccountsCopy, asks_of
from parsync_redis.scheduler.core.warm_sets import WarmSets
from parsync_redis.scheduler.leader.allotments import OWN_TIME_PASSES, WANTS_PASSES, Sharing

WHOLE = {"units": 5000}


def part(allotted: str, line: str = "n=0", ceiling: str = "units=5 shards=3") -> ShardPart:
    """Return what a shard tells."""
    return ShardPart.of(ceiling, allotted, line)


def units(shares: list[dict[str, int]]) -> list[int]:
    """Return the whole units of the shares."""
    return [share.get("units", 0) // 1000 for share in shares]


def test_shards_that_want_have_equal_parts_of_what_the_others_do_not_hold():
    parts = [part("0"), part("0"), part("units=3", "n=1 units=1")]
    assert units(equal_parts(WHOLE, parts, [True, True, False])) == [1, 2, 2]
    assert units(equal_parts(WHOLE, parts, [True, True, True])) == [1, 2, 2]
    assert units(equal_parts(WHOLE, parts, [False, True, False])) == [0, 3, 2]


def test_a_sum_above_the_ceiling_is_lowered_although_nobody_wants():
    parts = [part("units=3", "n=3 units=3"), part("units=4"), part("0")]
    assert units(equal_parts(WHOLE, parts, [False] * 3)) == [3, 2, 0]


def test_shards_whose_tasks_do_not_fit_have_the_whole_ceiling_by_turns():
    sharing = Sharing(0)
    waits = [part("units=1", "n=0 full"), part("units=2", "n=0 full"), part("units=2", "n=0 full")]
    assert units(sharing.plan(waits, 1, 0)) == [5, 0, 0]
    served = [part("units=5", "n=1 units=3 full"), part("0", "n=0 full"), part("0", "n=0 full")]
    assert units(sharing.plan(served, 2, 0)) == [1, 2, 2]
    assert units(sharing.plan([served[0], *waits[1:]], 3, 0)) == [0, 5, 0]


def test_a_turn_for_nothing_ends_and_comes_again_in_the_shards_own_time():
    sharing = Sharing(0)
    never = [part("units=5", "n=0 full"), part("0"), part("0")]
    sharing.plan([part("units=5", "n=0 full"), part("0", "n=0 full"), part("0")], 1, 0)
    first_pass = 2 * OWN_TIME_PASSES - WANTS_PASSES - 1
    for now_pass in range(2, first_pass):
        sharing.plan(never, now_pass, 0)
    assert sharing.unserved == {0}
    assert sharing.first is None
    for now_pass in range(first_pass, 3 * OWN_TIME_PASSES + 1):
        sharing.plan(never, now_pass, 0)
    assert sharing.first == 0


def test_a_ceiling_says_among_how_many_shards_it_is_divided():
    assert divided_ceiling("units=5", 1) == "units=5"
    assert divided_ceiling("units=5", 3) == "units=5 shards=3"
    assert divided_ceiling(UNBOUNDED, 3) == UNBOUNDED
    assert undivided_ceiling("units=5 shards=3", 3) == "units=5"
    assert undivided_ceiling("units=5", 3) == "units=5 shards=1"
    assert undivided_ceiling("units=5 shards=2", 3) == "units=5 shards=2"
    assert undivided_ceiling("units=5 shards=3", 1) == "units=5 shards=3"


def test_a_scheduler_asks_a_shard_without_room_once_so_that_the_leader_hears_of_it():
    accounts = AccountsCopy(2, WarmSets())
    asks = asks_of(Kind.of("work slots=1 under=x"))
    accounts.set(0, "x", "n=0 of units=0 shards=2")
    assert accounts.room(asks, 0).tasks == 1
    accounts.reserve(0, asks, 1)
    assert accounts.room(asks, 0).tasks <= 0, "one is enough"
    accounts.settle(0)
    accounts.set(0, "x", "n=0 full of units=0 shards=2")
    assert accounts.room(asks, 0).tasks == 0
    accounts.set(0, "x", "n=0 of units=0")
    assert accounts.room(asks, 0).tasks == 0, "a queue of one shard has no leader to tell"


def test_the_line_of_a_rate_says_that_it_is_full():
    assert AccountLine.of("n=1 units=1 next=5.000 full of units=2 shards=2").is_full

"""A ceiling of several shards: lost and damaged allotments give room for nothing until the leader's
next pass; and a shard tells its scheduler that it must ask.
"""

from typing import Any

import pytest

from parsync_redis.model.account_line import AccountLine
from parsync_redis.model.allotment import AllotRow
from parsync_redis.model.amount import THOUSANDTHS
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.leader.allotments import IDLE_PASSES, AllotmentDuty
from parsync_redis.store.policy import change_policy, find_drift
from tests.kit.driver import Driver

SHARDS = 3
KIND = "work slots=1 under=x"
DOCUMENT = "[limits.x]\nat_once = 5\n"


@pytest.fixture
def sharded(drive: Driver) -> Driver:
    """Return a cluster of three shards, each with four tasks under a limit of five."""
    drive.keys.shards = SHARDS
    change_policy(drive.store, lambda _: DOCUMENT, "maria")
    tasks = [Submission(f"t{n}", "work", b"", TaskOptions(limits="x")) for n in range(60)]
    by_shard = drive.keys.by_shard(tasks, lambda task: task.id)
    for _, of_shard in by_shard:
        drive.run(drive.commands.submit(of_shard[:4]))
    return drive


def take(drive: Driver, shard: int) -> list[Any]:
    """Take what one shard gives."""
    return drive.run(drive.commands.take("s1", [(KIND, 9)], shard=shard)).tasks


def take_all(drive: Driver) -> int:
    """Take what all shards give; return the number of tasks."""
    return sum(len(take(drive, shard)) for shard in range(SHARDS))


def held(drive: Driver) -> int:
    """Return how many tasks hold the limit."""
    client: Any = drive.store.client
    return sum(client.zcard(drive.keys.prefix("holders:", s) + "x") for s in range(SHARDS))


def test_no_shard_has_room_before_the_leader_has_given_it_a_part(sharded: Driver):
    assert take_all(sharded) == 0
    AllotmentDuty(sharded.store).work()
    assert take_all(sharded) == 5
    assert take_all(sharded) == 0


def test_a_call_of_an_earlier_leader_or_one_that_comes_twice_changes_nothing(sharded: Driver):
    allot = sharded.commands.allot
    rows = [AllotRow("x", "units=5", "0")]
    earlier = sharded.run(allot("", "a")).seal
    seal = sharded.run(allot("", "b")).seal
    assert sharded.unchanged_by(allot(earlier, "a", rows)).seal == ""
    call = allot(seal, "b", rows)
    assert sharded.run(call).seal not in ("", seal)
    assert sharded.unchanged_by(call).seal == ""


def test_a_policy_that_changes_keeps_allotments_and_the_shards_do_not_drift(sharded: Driver):
    take_all(sharded)
    leader = AllotmentDuty(sharded.store)
    leader.work()
    assert find_drift(sharded.store).shards == []
    change_policy(sharded.store, lambda _: "[limits.x]\nat_once = 7\n", "maria")
    assert take_all(sharded) == 5
    leader.work()
    assert take_all(sharded) == 2


DAMAGES = {
    "one allotment": lambda client, key: client.hdel(key, "=x"),
    "junk": lambda client, key: client.hset(key, "=x", "junk \xff"),
    "the seal": lambda client, key: client.hdel(key, "#seal"),
    "the ceiling and the allotment": lambda client, key: client.delete(key),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("new", [False, True])
def test_a_damaged_allotment_is_nothing_until_the_leaders_pass(
    sharded: Driver, damage: str, new: bool
):
    take_all(sharded)
    leader = AllotmentDuty(sharded.store)
    leader.work()
    assert len(take(sharded, 0)) in (1, 2)
    for key in sharded.keys.queues("policy"):
        DAMAGES[damage](sharded.store.client, key)
    if damage != "the seal":
        before = held(sharded)
        take_all(sharded)
        assert held(sharded) == before, "without an allotment there is room for nothing"
    change_policy(sharded.store, lambda _: DOCUMENT, "maria")
    leader = AllotmentDuty(sharded.store) if new else leader
    for _ in range(4):
        leader.work()
        take_all(sharded)
        assert held(sharded) <= 5
    assert held(sharded) == 5


def test_a_line_that_contradicts_its_holders_stops_a_raise(sharded: Driver):
    take_all(sharded)
    leader = AllotmentDuty(sharded.store)
    leader.work()
    take(sharded, 0)
    sharded.store.client.hset(sharded.keys.queue("accounts", 0), "x", "n=0")
    change_policy(sharded.store, lambda _: "[limits.x]\nat_once = 9\n", "maria")
    leader.work()
    take_all(sharded)
    assert held(sharded) <= 5
    sharded.run(sharded.commands.recount(["x"], 0))
    leader.work()
    take_all(sharded)
    assert held(sharded) == 9


@pytest.mark.parametrize("new", [False, True])
def test_a_shard_with_an_older_larger_part_takes_no_more_after_the_leaders_passes(
    sharded: Driver, new: bool
):
    leader = AllotmentDuty(sharded.store)
    assert take(sharded, 0) == []
    leader.work()
    lose_writes = sharded.keep_shard(0)
    take_all(sharded)  # four in the shard that has the whole
    for _ in range(3):
        leader.work()
        take_all(sharded)
    assert held(sharded) == 5
    lose_writes()
    leader = AllotmentDuty(sharded.store) if new else leader
    assert held(sharded) == 1, "the other shards took one"
    for _ in range(2):
        leader.work()
    take_all(sharded)
    assert held(sharded) == 5
    allotted = [
        part.allotted["units"]
        for shard in range(SHARDS)
        for part in sharded.run(sharded.commands.allot("", "salt", (), shard)).parts.values()
    ]
    assert sum(allotted) == 5 * THOUSANDTHS


def test_tasks_that_an_older_part_let_in_count_until_they_end(sharded: Driver):
    leader = AllotmentDuty(sharded.store)
    assert take(sharded, 0) == []
    leader.work()
    lose_writes = sharded.keep_shard(0)
    for shard in (1, 2):
        take(sharded, shard)
    for _ in range(3):
        leader.work()
        for shard in (1, 2):
            take(sharded, shard)
    before = held(sharded)
    assert before >= 3
    lose_writes()
    beyond = take(sharded, 0)
    assert before + len(beyond) > 5, "until the leader's pass a shard has its older part"
    for _ in range(4):
        leader.work()
        assert take_all(sharded) == 0
    for number, task in enumerate(beyond, 1):
        sharded.run(sharded.commands.give_back("s1", [(task.id, task.attempt, "", "")]))
        leader.work()
        leader.work()
        take_all(sharded)
        assert held(sharded) == max(5, before + len(beyond) - number)


def test_an_account_that_nobody_uses_loses_its_allotments(sharded: Driver):
    sharded.run(sharded.commands.set_policy([("y", "units=2 shards=3")], 0))
    sharded.run(sharded.commands.set_policy([("y", "units=2 shards=3")], 1))
    sharded.run(sharded.commands.set_policy([("y", "units=2 shards=3")], 2))
    leader = AllotmentDuty(sharded.store)
    kind = "work slots=1 under=y"
    sharded.run(sharded.commands.take("s1", [(kind, 9)], shard=1))
    client: Any = sharded.store.client
    leader.work()
    key = sharded.keys.queue("policy", 1)
    assert client.hget(key, "=y") == b"units=2"
    for _ in range(IDLE_PASSES + 2):
        leader.work()
    assert client.hget(key, "=y") is None


def test_a_scheduler_hears_its_shards_part_and_whether_the_leader_knows_that_it_wants(
    sharded: Driver,
):
    took = sharded.run(sharded.commands.take("s1", [(KIND, 9)]))
    line = dict(took.changes)["=x"]
    assert line == "n=0 full of units=0 shards=3"
    assert AccountLine.of(line).is_full

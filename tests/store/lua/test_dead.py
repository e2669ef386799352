"""The dead: their history, the list that keeps their records, and revive, which lets them run
again.
"""

from typing import Any

import pytest

from parsync_redis.model.status import Setback
from parsync_redis.model.task import StoredState, TaskState
from tests.kit.driver import Driver, nth


def lose(
    drive: Driver,
    id: str = "a",
    why: str = "its node n1 was lost",
    state: StoredState = StoredState.RUNNING,
) -> str:
    """Start a pending task on n1 and lose it; return the word."""
    place = drive.place(id, drive.take()[id])
    drive.confirm(place)
    if state == StoredState.RUNNING:
        assert drive.start(place) == "ok"
    return drive.requeue(place, why)


def die(drive: Driver, id: str = "a") -> None:
    drive.submit(id)
    assert [lose(drive, id) for _ in range(drive.commands.max_starts)][-1] == "dead"


def history(drive: Driver, id: str = "a") -> tuple[Setback, ...]:
    return drive.store.statuses([id])[0].history


def test_each_attempt_that_was_lost_leaves_a_line_of_its_history(drive: Driver):
    drive.submit("a")
    lose(drive, why="its node n1 was lost")
    lose(drive, why="two\nlines", state=StoredState.PLACED)
    first, second = history(drive)
    assert (first.attempt, first.state, first.node, first.slot, first.inc) == (
        nth(1),
        TaskState.RUNNING,
        "n1",
        0,
        1,
    )
    assert first.why == "its node n1 was lost"
    assert 0 < first.since_ms <= first.until_ms
    assert (second.attempt, second.state, second.why) == (nth(2), TaskState.PLACED, "two lines")


def test_a_history_keeps_its_last_ten_lines(drive: Driver):
    drive.submit("a")
    for _ in range(12):
        lose(drive, state=StoredState.PLACED)
    assert [lost.attempt for lost in history(drive)] == [nth(n) for n in range(3, 13)]


def test_a_dead_task_is_listed_and_its_record_does_not_expire(drive: Driver):
    die(drive)
    assert (drive.state("a"), drive.index("dead")) == ("dead", ["a"])
    assert drive.store.client.ttl(drive.keys.extra("a")) == -1
    assert len(history(drive)) == drive.commands.max_starts


def test_beyond_the_limit_the_oldest_leaves_the_list_and_expires(drive: Driver):
    client: Any = drive.store.client
    for id in ("a", "b"):
        die(drive, id)
    dead = drive.keys.queue("dead")
    client.zadd(dead, {"a": 1, "b": 2})
    client.zadd(dead, {f"x{i}": 3 for i in range(9_998)})
    die(drive, "c")
    assert client.zcard(dead) == 10_000
    assert [client.ttl(drive.keys.extra(id)) > 0 for id in ("a", "b", "c")] == [True, False, False]
    assert (drive.index("tasks"), drive.index("ended")) == (["b", "c"], ["a"])
    assert (client.zscore(dead, "a"), client.zscore(dead, "b")) == (None, 2.0)
    client.zremrangebyscore(dead, 3, 3)  # which were no tasks
    assert drive.unchanged_by(drive.commands.revive(["a"], "again")) == ["dead"], (
        "its message is gone"
    )
    status = drive.status()
    assert (status.state, status.why, status.node, len(status.history)) == (
        TaskState.DEAD,
        "its node n1 was lost",
        "n1",
        3,
    )


def test_a_revived_task_waits_with_all_its_starts_before_it_and_no_attempt_comes_twice(
    drive: Driver,
):
    die(drive)
    assert drive.word(drive.commands.revive(["a"], "by an operator")) == "revived"
    status = drive.status()
    assert (status.state, status.starts, status.why) == (TaskState.WAITING, 0, "by an operator")
    assert status.times["finished"] is None
    assert (drive.index("pending"), drive.index("dead")) == (["a"], [])
    assert [lose(drive) for _ in range(drive.commands.max_starts)] == ["pending", "pending", "dead"]
    attempts = [lost.attempt for lost in history(drive)]
    assert attempts == [nth(n) for n in range(1, 7)]
    outbox = drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1)
    assert outbox == [
        b"a dead its node n1 was lost",
        b"a pending by an operator",
        b"a dead its node n1 was lost",
    ]


@pytest.mark.dealt
@pytest.mark.parametrize("state", [state for state in StoredState if state != StoredState.DEAD])
def test_only_the_dead_are_revived(drive: Driver, state: StoredState):
    drive.bring(state)
    assert drive.unchanged_by(drive.commands.revive(["a"], "why")) == [state]


def test_reviving_twice_is_reviving_once(drive: Driver):
    die(drive)
    assert drive.run(drive.commands.revive(["a", "a"], "why")) == ["revived", "pending"]
    assert drive.unchanged_by(drive.commands.revive(["a"], "why")) == ["pending"]


def test_a_revived_task_wakes_a_scheduler_if_no_task_waited(drive: Driver):
    die(drive)
    drive.wait("s1")
    channel = f"{drive.keys.wakes()}:s1"
    assert drive.heard(lambda: drive.run(drive.commands.revive(["a"], "why")), channel) == [
        (channel, b"wake")
    ]


def test_an_unstarted_attempt_is_put_back_only_while_it_has_not_started(drive: Driver):
    """A node may at last start an attempt that its leader is about to put back: then the run stays."""
    for state in (StoredState.TAKEN, StoredState.RUNNING):
        place = drive.bring(state, state)
        assert drive.unchanged_by(drive.commands.requeue([(place, "late")], "unstarted")) == [
            "none"
        ]
    place = drive.bring(StoredState.PLACED, "placed")
    assert drive.requeue(place, "late", "unstarted") == "pending"


def test_a_start_that_was_recalled_does_not_count(drive: Driver):
    drive.submit("a")
    for _ in range(2 * drive.commands.max_starts):
        place = drive.place("a", drive.take()["a"])
        drive.start(place)
        assert drive.requeue(place, "its node is drained", "recalled") == "pending"
        assert drive.status().starts == 0
    place = drive.place("a", drive.take()["a"])
    drive.confirm(place)
    assert drive.requeue(place, "its node is drained", "recalled") == "pending"
    assert drive.status().starts == 0, "it had not started"


def test_a_task_whose_last_start_was_recalled_is_not_dead(drive: Driver):
    drive.submit("a")
    for _ in range(drive.commands.max_starts - 1):
        assert lose(drive) == "pending"
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.requeue(place, "its node is drained", "recalled") == "pending"
    assert drive.status().starts == drive.commands.max_starts - 1


def test_a_recalled_run_whose_cancel_was_asked_for_ends(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.cancel("a")
    assert drive.requeue(place, "its node is drained", "recalled") == "cancelled"

"""Expiry: a task that waits past its expiry is cancelled, wherever it waits; a placed or running task goes on."""

import pytest

from parsync_redis.model.task import StoredState
from tests.kit.driver import NEVER_MS, Driver, nth

EXPIRED = [b"a cancelled expired"]


def past(drive: Driver, id: str = "a") -> None:
    """Let the expiry of a task come: both where take checks it and where the leader does."""
    drive.set_options(id, expires=1)
    drive.store.client.zadd(drive.keys.queue("expires"), {id: 1})


def outbox(drive: Driver) -> list[bytes]:
    return list(drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1))  # type: ignore[arg-type]


def test_a_task_that_has_expired_is_not_taken_and_ends(drive: Driver):
    drive.submit("a", expiry_ms=0)
    drive.submit("b", expiry_ms=NEVER_MS)
    assert drive.take() == {"b": nth(1, 2)}
    assert (drive.state("a"), drive.record("a").why) == ("cancelled", "expired")
    assert drive.line().takes == 0
    assert drive.store.client.ttl(drive.keys.extra("a")) > 0
    assert outbox(drive) == EXPIRED


@pytest.mark.parametrize("delay_ms", [None, NEVER_MS])
def test_the_leader_ends_a_waiting_task_past_its_expiry_without_a_take(
    drive: Driver, delay_ms: int | None
):
    drive.submit("a", delay_ms=delay_ms, expiry_ms=0)
    assert drive.run(drive.commands.expire()) == ["a"]
    assert (drive.state("a"), drive.record("a").why) == ("cancelled", "expired")
    assert [drive.index(kind) for kind in ("pending", "later", "expires")] == [[], [], []]
    assert outbox(drive) == EXPIRED
    assert drive.unchanged_by(drive.commands.expire()) == []


def test_a_task_that_is_taken_and_finds_no_place_expires(drive: Driver):
    place = drive.bring(StoredState.TAKEN)
    past(drive)
    assert drive.run(drive.commands.expire()) == ["a"]
    assert (drive.index("taken"), drive.state("a")) == ([], "cancelled")
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["stale"]
    assert drive.start(place) == "refused"


@pytest.mark.parametrize("state", [StoredState.PLACED, StoredState.RUNNING])
def test_a_placed_task_does_not_expire_and_is_checked_again_later(
    drive: Driver, state: StoredState
):
    place = drive.bring(state)
    past(drive)
    assert drive.run(drive.commands.expire()) == []
    assert (drive.state("a"), drive.index("expires")) == (state, ["a"])
    assert drive.unchanged_by(drive.commands.expire()) == []
    assert drive.requeue(place) == "pending"
    assert drive.take() == {}, "what was put back too late is not placed again"
    assert drive.state("a") == "cancelled"


@pytest.mark.parametrize(
    "state", [state for state in StoredState if state.final or state == StoredState.GONE]
)
def test_the_expiry_of_an_ended_task_is_removed_and_the_task_stays(
    drive: Driver, state: StoredState
):
    drive.bring(state)
    drive.store.client.zadd(drive.keys.queue("expires"), {"a": 1})
    assert drive.run(drive.commands.expire()) == []
    assert (drive.state("a"), drive.index("expires")) == (state, [])


def test_a_look_is_limited_and_goes_by_the_order_of_expiry(drive: Driver):
    for id in ("a", "b", "c"):
        drive.submit(id, expiry_ms=0)
    for score, id in enumerate(("c", "a", "b")):
        drive.store.client.zadd(drive.keys.queue("expires"), {id: score})
    assert drive.run(drive.commands.expire(2)) == ["c", "a"]
    assert drive.run(drive.commands.expire(2)) == ["b"]


def test_a_successor_has_its_own_expiry(drive: Driver):
    for expiry_ms, word in ((0, "cancelled"), (NEVER_MS, "taken"), (None, "taken")):
        drive.store.client.flushall()
        drive.submit("a", expiry_ms=NEVER_MS // 2)
        place = drive.place("a", drive.take()["a"])
        drive.start(place)
        assert drive.submit("a", after=place.attempt, expiry_ms=expiry_ms) == "next"
        assert drive.finish(place, "again") == "again"
        assert ("expires" in drive.line().options) == (expiry_ms is not None)
        drive.take()
        assert drive.state("a") == word


def test_the_successor_of_a_run_that_was_lost_leaves_its_expiry_as_it_was(drive: Driver):
    drive.submit("a", expiry_ms=NEVER_MS)
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    before = drive.line().options["expires"]
    drive.submit("a", after=place.attempt, expiry_ms=0)
    assert drive.run(drive.commands.expire()) == []
    assert drive.requeue(place) == "pending"
    assert drive.line().options["expires"] == before
    assert drive.run(drive.commands.expire()) == []
    assert list(drive.take()) == ["a"]


def test_a_revived_task_that_has_expired_is_not_placed(drive: Driver):
    drive.bring(StoredState.DEAD)
    past(drive)
    assert drive.word(drive.commands.revive(["a"], "why")) == "revived"
    assert drive.take() == {}
    assert drive.state("a") == "cancelled"


def test_a_revived_task_regains_an_expiry_that_was_checked_while_it_was_dead(drive: Driver):
    drive.bring(StoredState.DEAD)
    past(drive)
    assert drive.run(drive.commands.expire()) == []
    assert drive.word(drive.commands.revive(["a"], "why")) == "revived"
    assert drive.run(drive.commands.expire()) == ["a"]


@pytest.mark.parametrize("due", ["nan", "-nan", "1e400", "1" * 20, "x", ""])
def test_a_malformed_expiry_is_removed_and_other_tasks_still_expire(drive: Driver, due: str):
    drive.submit("a")
    drive.submit("b", expiry_ms=0)
    past(drive, "a")
    drive.set_options("a", expires=due)
    assert drive.run(drive.commands.expire()) == ["b"]
    assert (drive.state("a"), drive.index("expires")) == ("pending", [])
    assert set(drive.take()) <= {"a"}
    assert drive.index("pending") == [], "it does not wait for ever"


def test_the_expiry_of_a_retry_is_kept_if_the_time_comes_during_the_run(
    drive: Driver,
):
    drive.node()
    place = drive.held("a", drive.taken("a"))
    assert drive.start(place) == "ok"
    assert drive.submit("a", after=place.attempt, expiry_ms=0) == "next"
    assert drive.run(drive.commands.expire()) == []
    assert drive.finish(place, "again") == "again"
    drive.store.client.zadd(drive.keys.queue("expires"), {"a": 1}, xx=True)  # the minute has passed
    assert drive.run(drive.commands.expire()) == ["a"]
    assert drive.release(place) == "freed"


@pytest.mark.parametrize("own_ms", [None, NEVER_MS])
def test_the_expiry_of_a_successor_is_kept_if_the_time_comes_while_the_task_waits_again(
    drive: Driver, own_ms: int | None
):
    drive.node()
    drive.submit("a", expiry_ms=own_ms)
    first = drive.held("a", drive.take()["a"])
    assert drive.start(first) == "ok"
    assert drive.submit("a", publication="p2", expiry_ms=0) == "next"
    assert drive.requeue(first) == "pending"
    assert drive.release(first) == "freed"
    assert drive.run(drive.commands.expire()) == []
    second = drive.held("a", drive.take()["a"])
    assert drive.start(second) == "ok"
    assert drive.finish(second, "again") == "again"
    assert drive.release(second) == "freed"
    assert drive.run(drive.commands.look_over(0, "tasks")).suspects == [], (
        "what scripts write is no damage"
    )
    drive.store.client.zadd(drive.keys.queue("expires"), {"a": 1}, xx=True)  # the minute has passed
    assert drive.run(drive.commands.expire()) == ["a"]

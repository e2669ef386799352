"""Successors: work that follows under the same id, submitted by its run or published by others."""

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.task import StoredState, Submission
from parsync_redis.store.runner import Runner
from tests.kit.driver import NEVER_MS, Driver, dump, nth


def run(drive: Driver, id: str = "a", **options: object):
    """Start a new task and return its place."""
    place = drive.place(id, drive.taken(id, options))
    assert drive.start(place) == "ok"
    return place


def test_a_successor_has_its_own_options_and_the_place_in_the_order_of_its_id(drive: Driver):
    place = run(drive, priority=1, max_starts=5, strategy="latency")
    drive.submit("b")
    word = drive.submit(
        "a", {"priority": 7, "max_starts": 2}, "next", b"n", after=place.attempt, expiry_ms=NEVER_MS
    )
    assert word == "next"
    assert drive.finish(place) == "again"
    line = drive.line()
    assert (line.kind, line.priority, line.takes, line.life, line.number("max")) == (
        "next slots=1",
        7,
        1,
        1,
        2,
    )
    assert (set(line.options), drive.message()) == ({"expires", "max", "ran"}, b"n")
    assert drive.index("pending") == ["a", "b"]
    assert drive.take() == {"a": nth(2), "b": nth(1, 2)}


def test_a_successor_begins_with_all_its_starts_and_no_setbacks_of_the_run_before(drive: Driver):
    for _ in range(2):
        place = drive.place("a", (drive.take() or {"a": drive.taken("a")})["a"])
        drive.start(place)
        assert drive.requeue(place, "lost") == "pending"
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.status().starts == 3
    assert drive.submit("a", after=place.attempt) == "next"
    assert drive.finish(place) == "again"
    assert (drive.status().starts, drive.status().why, len(drive.status().history)) == (0, "", 2)


@pytest.mark.parametrize("first", ["run", "others"])
def test_a_task_published_by_others_goes_before_a_task_submitted_by_the_run(
    drive: Driver, first: str
):
    place = run(drive)
    words = []
    for who in ("run", "others") if first == "run" else ("others", "run"):
        options = {"after": place.attempt} if who == "run" else {"publication": "c1"}
        words.append(drive.submit("a", message=who.encode(), **options))
    assert words == ["next", "next"]
    assert drive.finish(place) == "again"
    assert (drive.message(), drive.line().options["pub"]) == (b"others", "c1")


def test_the_last_that_a_run_submits_counts(drive: Driver):
    place = run(drive)
    for message in (b"1", b"2"):
        assert drive.submit("a", message=message, after=place.attempt) == "next"
    assert drive.finish(place) == "again"
    assert drive.message() == b"2"


def test_the_last_that_others_publish_counts(drive: Driver):
    place = run(drive)
    for number in "12":
        assert drive.submit("a", message=number.encode(), publication=f"c{number}") == "next"
    assert drive.finish(place) == "again"
    assert (drive.message(), drive.line().options["pub"]) == (b"2", "c2")


def test_a_successor_of_the_run_keeps_the_publication_of_the_task(drive: Driver):
    assert drive.submit("a", publication="c1") == "submitted"
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.submit("a", after=place.attempt) == "next"
    assert drive.finish(place) == "again"
    assert drive.line().options["pub"] == "c1"
    assert drive.submit("a", publication="c1") == "exists", "it is the same publish"


def test_a_successor_is_in_the_queue_of_its_own_kind_only(drive: Driver):
    place = run(drive)
    drive.submit("b")
    assert drive.submit("a", {"slots": 2}, after=place.attempt) == "next"
    assert drive.finish(place) == "again"
    assert sorted(drive.kinds()) == ["work slots=1", "work slots=2"]
    assert [line.split()[0] for line in drive.kinds().values()] == ["1", "1"]


@pytest.mark.parametrize("how", ["cancel", "expire", "dead", "killed"])
def test_no_successor_outlives_its_task(drive: Driver, how: str):
    place = run(drive)
    assert drive.submit("a", message=b"next", publication="c1") == "next"
    if how == "killed":
        assert drive.finish(place, "cancelled") == "ok"
    elif how == "dead":
        drive.set_options("a", starts=drive.commands.max_starts)
        assert drive.requeue(place) == "dead"
        assert drive.word(drive.commands.revive(["a"], "why")) == "revived"
        assert drive.message() == b"message"
    else:
        assert drive.requeue(place) == "pending"
        if how == "cancel":
            assert drive.cancel("a") == ("cancelled", "")
        else:
            drive.set_options("a", expires=1)
            drive.store.client.zadd(drive.keys.queue("expires"), {"a": 1})
            assert drive.run(drive.commands.expire()) == ["a"]
    assert not {"next", "next_message"} & set(drive.store.hash(drive.keys.extra("a")))
    assert drive.state("a") == (StoredState.PENDING if how == "dead" else StoredState.CANCELLED)


@pytest.mark.parametrize("damage", ["no message", "another text"])
def test_a_damaged_successor_runs_the_task_as_it_was(drive: Driver, damage: str):
    place = run(drive)
    assert drive.submit("a", name="other", message=b"next", after=place.attempt) == "next"
    if damage == "no message":
        drive.store.client.hdel(drive.keys.extra("a"), "next_message")
    else:
        drive.store.client.hset(drive.keys.extra("a"), "next", "x")
    assert drive.finish(place) == "again"
    assert (drive.line().kind, drive.message()) == ("work slots=1", b"message")


@pytest.mark.parametrize("kind", ["shapes", "feasible", "names"])
@pytest.mark.unaudited
def test_a_submit_that_meets_damage_has_written_no_successor(drive: Driver, kind: str):
    place = run(drive)
    drive.store.client.delete(drive.keys.queue(kind))
    drive.store.client.lpush(drive.keys.queue(kind), "x")
    successor = Submission("a", "work", b"next", after=place.attempt)
    before = dump(drive.store)
    with pytest.raises(BrokenContract):
        Runner(drive.store.client, drive.keys.cluster).run(
            drive.commands.submit([successor, Submission("new", "other", b"")])
        )
    assert dump(drive.store) == before


def test_a_task_line_keeps_the_mark_of_a_begun_run_until_its_message_is_replaced(
    drive: Driver,
):
    """A worker tells Celery by it what a broker tells: that the message was delivered before."""

    def begins(id: str = "a"):
        place = drive.place(id, drive.take()[id])
        assert drive.start(place) == "ok"
        return place

    def is_redelivered() -> bool:
        return drive.line().options.get("redelivered") == "1"

    drive.submit("a")
    place = begins()
    assert not is_redelivered()
    assert drive.requeue(place, "it could not begin", "unbegun") == "pending"
    assert not is_redelivered(), "nothing of it has run"
    assert drive.finish(begins(), "again") == "again"
    assert is_redelivered(), "Reject(requeue=True)"
    place = begins()
    drive.submit("a", message=b"retry", after=place.attempt)
    assert drive.finish(place, "again") == "again"
    assert not is_redelivered(), "a retry is another message"
    assert drive.requeue(begins(), "its node was lost") == "pending"
    assert is_redelivered()
    place = drive.place("a", drive.take()["a"])
    drive.confirm(place)
    assert drive.requeue(place, "it never started", "unstarted") == "pending"
    assert is_redelivered(), "it stays so until a run has another message"


def test_a_successor_under_another_limit_is_judged_and_one_under_the_same_is_not(drive: Driver):
    """A retry keeps its limits, also when the policy has lost them; it may not invent one."""
    drive.run(drive.commands.set_policy([("stripe", "units=1")]))
    place = run(drive, limits=["stripe"])
    drive.run(drive.commands.set_policy([]))
    assert drive.submit("a", {"limits": ["strpe"]}, after=place.attempt) == "nolimit"
    wide = {"limits": ["strpe"], "wait_for_capacity": True}
    assert drive.submit("a", wide, after=place.attempt) == "next"
    assert drive.submit("a", {"limits": ["stripe"]}, after=place.attempt) == "next"
    assert drive.finish(place, "again") == "again"
    assert drive.status("a").limits == "stripe"


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "again", "cancelled"])
@pytest.mark.parametrize("first", ["revoke", "publish"])
def test_a_revoke_before_the_report_of_a_run_cancels_its_successor_and_tells_the_backend(
    drive: Driver, first: str, outcome: str
):
    """A task that replaced itself by a chain stores no result: the chain's last step has its id."""
    place = run(drive)
    if first == "revoke":
        assert drive.cancel("a", "revoked", "after") == ("asked", "")
    assert drive.submit("a", publication="s3") == "next"
    if first == "publish":
        assert drive.cancel("a", "revoked", "after") == ("asked", "")
    assert drive.finish(place, outcome) == "ok"
    assert drive.state("a") == "cancelled"
    # the process of a run that was ended has told the backend itself
    entries = drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1)
    assert entries == ([] if outcome == "cancelled" else [b"a cancelled revoked"])
    assert drive.submit("a", publication="s3") == "exists"

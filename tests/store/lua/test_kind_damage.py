"""Damage to the queues of kinds and to their index: it stops no other kind, and the leader repairs
it. Promise 10 of docs/invariants.md.
"""

from collections.abc import Callable
from typing import Any

import pytest

from parsync_redis.errors import DamagedState
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.leader import kinds as duty
from parsync_redis.scheduler.leader.kinds import KindDuty
from parsync_redis.store import Store
from parsync_redis.store.repair import quarantine
from tests.kit.driver import Driver, dump
from tests.kit.oracle.audit import audit

WORK = "work slots=1"


@pytest.fixture
def busy(store: Store) -> Driver:
    """Return a cluster in which tasks of two kinds wait, and of a third no longer."""
    drive = Driver(store)
    for id in "ab":
        drive.submit(id)
    drive.submit("c", name="other")
    drive.submit("d", name="gone")
    drive.cancel("d")
    return drive


def lead(drive: Driver, passes: int = 2) -> None:
    """Do the leader's duty of kinds."""
    work = KindDuty(drive.store)
    for _ in range(passes):
        work.work()


def other_type(drive: Driver, key: str) -> None:
    drive.store.client.delete(key)
    drive.store.client.lpush(key, "x")


Damage = Callable[[Driver, Any], object]

DAMAGES: dict[str, Damage] = {
    "a line that is none": lambda d, c: c.hset(d.keys.queue("kinds"), WORK, "x"),
    "a wrong count": lambda d, c: c.hset(
        d.keys.queue("kinds"), WORK, "9 8121795630000001 8121795630000002"
    ),
    "a wrong first": lambda d, c: c.hset(d.keys.queue("kinds"), WORK, "2 7 8121795630000002"),
    "no line": lambda d, c: c.hdel(d.keys.queue("kinds"), WORK),
    "a line of nothing": lambda d, c: c.hset(d.keys.queue("kinds"), "gone slots=1", "1 1 1"),
    "a line of a kind that never was": lambda d, c: c.hset(
        d.keys.queue("kinds"), "never slots=1", "1 1 1"
    ),
    "a line of a kind with damaged preferences": lambda d, c: c.hset(
        d.keys.queue("kinds"), f"{WORK} prefer=pack,,score", "1 1 1"
    ),
    "no version": lambda d, c: c.zrem(d.keys.queue("changed"), WORK),
    "a version to come": lambda d, c: c.zadd(d.keys.queue("changed"), {WORK: 9e14}),
    "no lines": lambda d, c: c.delete(d.keys.queue("kinds")),
    "no versions": lambda d, c: c.delete(d.keys.queue("changed")),
    "lines of another type": lambda d, c: other_type(d, d.keys.queue("kinds")),
    "versions of another type": lambda d, c: other_type(d, d.keys.queue("changed")),
    "a kind that is no text": lambda d, c: c.hset(d.keys.queue("kinds"), b"\xff slots=1", "1 1 1"),
    "a task of a kind that is no text": lambda d, c: (
        c.zadd(d.keys.pending("").encode() + b"\xff", {"a": 1}),
        c.zadd(d.keys.queue("changed"), {b"\xff": 1.5}),
    ),
    "a task without a record": lambda d, c: c.zadd(d.keys.pending(WORK), {"nobody": 1}),
    "a task that has ended": lambda d, c: c.zadd(d.keys.pending(WORK), {"d": 1}),
    "a task of another kind": lambda d, c: c.zadd(d.keys.pending(WORK), {"c": 1}),
}


@pytest.mark.dealt
@pytest.mark.parametrize("what", DAMAGES)
def test_the_leader_repairs_a_damaged_kind_and_copies_become_right(busy: Driver, what: str) -> None:
    DAMAGES[what](busy, busy.store.client)
    lead(busy, 4)
    if what == "a task of another kind":  # the task waits in two kinds until it is taken
        assert set(busy.take()) == {"a", "b", "c"}
        lead(busy)
    assert audit(busy.store) == []
    took = busy.run(busy.commands.take("s1"))
    assert {kind: line for kind, line in took.changes if line} == busy.kinds()


def test_the_leader_changes_no_sound_kind(busy: Driver) -> None:
    busy.run(busy.commands.set_reason([(WORK, "why")]))
    before = dump(busy.store)
    lead(busy)
    assert dump(busy.store) == before
    for kind in (WORK, "gone slots=1", "never slots=1"):
        assert busy.unchanged_by(busy.commands.repair_kind(kind)) == 0


def test_more_kinds_than_a_pass_looks_at_are_looked_at_in_turn(
    busy: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "KINDS_PER_PASS", 20)
    for n in range(600):  # so many that the server scans them in pages
        busy.submit(f"t{n}", name=f"f{n}")
    busy.store.client.hset(
        busy.keys.queue("kinds"), mapping={f"f{n} slots=1": "x" for n in range(600)}
    )
    work = KindDuty(busy.store)
    work.work()
    left = sum(line == "x" for line in busy.kinds().values())
    assert 0 < left < 600
    for _ in range(100):
        work.work()
    assert audit(busy.store) == []


@pytest.mark.unaudited
@pytest.mark.parametrize("kind", [WORK, "gone slots=1"])
def test_a_queue_of_another_type_is_named_put_into_quarantine_and_deleted(
    busy: Driver, kind: str
) -> None:
    key = busy.keys.pending(kind)
    other_type(busy, key)
    call = busy.commands.take("s1", [("other slots=1", 5), (kind, 5)])
    assert [task.id for task in busy.run(call).tasks] == ["c"], "the call is sent again"
    assert not busy.store.client.exists(key)
    assert [entry.where for entry in quarantine.entries(busy.store)] == [key.replace(" ", "\\x20")]
    lead(busy)
    assert kind not in busy.kinds()


@pytest.mark.unaudited
def test_a_queue_of_another_type_stops_no_other_kind(busy: Driver) -> None:
    other_type(busy, busy.keys.pending(WORK))
    before = dump(busy.store)
    client = busy.store.client
    call = busy.commands.take("s1", [(WORK, 5)])
    with pytest.raises(
        Exception, match=f"PSRECORD {busy.keys.pending(WORK)} is a list, not a zset"
    ):
        client.eval(call.script.text, len(call.keys), *call.keys, *call.args)
    assert dump(busy.store) == before
    assert busy.submit("e", name="other") == "submitted"
    assert busy.cancel("c") == ("cancelled", "")
    assert [
        task.id for task in busy.run(busy.commands.take("s1", [("other slots=1", 5)])).tasks
    ] == ["e"]


@pytest.mark.unaudited
@pytest.mark.parametrize("verb", ["submit", "cancel", "give_back", "revive", "expire", "take"])
def test_each_script_detects_a_damaged_queue_before_it_writes(busy: Driver, verb: str) -> None:
    drive = busy
    commands = busy.commands
    drive.store.client.flushdb()
    drive.node("n1", 4)
    drive.submit("taken", expiry_ms=0 if verb == "expire" else None)
    place = drive.place("taken")
    if verb in ("give_back", "revive"):
        place = drive.place("taken", drive.take()["taken"])
    if verb == "revive":
        drive.start(place)
    if verb == "revive":
        drive.set_options("taken", starts=commands.max_starts)
        assert drive.requeue(place) == "dead"
    drive.submit("b", name="other")
    if verb == "take":
        drive.submit("due", delay_ms=0)
    other_type(drive, drive.keys.pending(WORK))
    call: Any = {
        "submit": commands.submit([Submission("x", "other", b""), Submission("y", "work", b"")]),
        "cancel": commands.cancel(["b", "taken"]),
        "give_back": commands.give_back("s1", [("taken", "", "", "why")]),
        "revive": commands.revive(["taken"], "why"),
        "expire": commands.expire(),
        "take": commands.take("s1", [("other slots=1", 1)]),
    }[verb]
    before = dump(drive.store)
    with pytest.raises(Exception, match=r"PSRECORD .*pending:work slots=1 is a list, not a zset"):
        drive.store.client.eval(call.script.text, len(call.keys), *call.keys, *call.args)
    assert dump(drive.store) == before
    drive.run(call)
    assert len(list(quarantine.entries(drive.store))) == 1, (
        "a login that may repair does it and asks again"
    )


@pytest.mark.parametrize(
    "kind", ["work x", "work slots=x", "work slots=1 x y", f"{'n' * 256} slots=1", "\xe4 slots=1"]
)
def test_a_task_of_a_damaged_kind_fails_without_a_seat_for_the_kind(
    drive: Driver, kind: str
) -> None:
    drive.submit("a")
    line = drive.record().text.replace(WORK, kind)
    drive.store.client.hset(drive.keys.queue("tasks"), "a", line)
    drive.store.client.zrem(drive.keys.pending(WORK), "a")
    drive.store.client.zadd(drive.keys.pending(kind), {"a": 1})
    drive.run(drive.commands.repair_kind(kind))
    lead(drive)
    assert (drive.state("a"), drive.kinds()) == ("failed", {})
    assert drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1)


def test_a_client_that_may_not_repair_is_told_which_key(
    busy: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = busy.keys.pending(WORK)
    kept: Any = busy.store.client.dump(key)
    other_type(busy, key)
    monkeypatch.setattr(Store, "_repair", lambda *_: False)
    with pytest.raises(DamagedState, match="is a list, not a zset"):
        busy.submit("e")
    busy.store.client.delete(key)
    busy.store.client.restore(key, 0, kept)

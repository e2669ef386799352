"""The leader rebuilds the keys of a shard and of a partition from what is left.

Promises 1, 3 and 10 of docs/invariants.md.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.model.limits import MAX_MESSAGE
from parsync_redis.model.task import StoredState
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.store import Store
from parsync_redis.store.repair.losses import read_losses
from parsync_redis.store.repair.lost_leases import places_in, put_back_leases
from parsync_redis.store.repair.quarantine import entries
from parsync_redis.store.repair.repair_all import repair_all
from parsync_redis.store.scripts.lengths import MAX_ROWS
from parsync_redis.wire.keys import PARTITION_KINDS, QUEUE_KINDS, TYPES
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit

LEASE_S = 10.0
MESSAGE = b'{"headers": {"task": "work"}}'
STATES = {
    "waits": "pending",
    "wide": "pending",
    "later": "pending",
    "taken": "taken",
    "placed": "placed",
    "runs": "running",
    "dead": "dead",
}


@pytest.fixture
def busy(drive: Driver) -> Driver:
    """Return a cluster with a task in each state, and a leader's first pass behind it."""
    drive.node("n1", slots=4, resources={"gpu": 4})
    drive.run(
        drive.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000, "shards": 1})
    )
    drive.bring(StoredState.DEAD, "dead")
    for id in ("runs", "placed"):
        drive.submit(
            id, {"slots": 2} if id == "runs" else {"resources": {"gpu": 1}}, message=MESSAGE
        )
        (task,) = drive.run(drive.commands.take("s1", [(drive.line(id).kind, 1)])).tasks
        slots = (0, 1) if id == "runs" else (2,)
        place = drive.held(
            id, task.attempt, slots=slots, needs="slots=2" if id == "runs" else "slots=1 gpu=1"
        )
        assert drive.confirm(place) == "placed"
        if id == "runs":
            assert drive.start(place) == "ok"
    drive.taken("taken")
    drive.submit("later", delay_ms=10**8)
    drive.submit("waits", expiry_ms=10**8)
    drive.submit("wide", {"slots": 2})
    assert audit(drive.store) == []
    return drive


def passes(drive: Driver, janitor: Janitor, count: int = 9) -> None:
    """Let a leader look at everything: each partition has its turn within eight passes."""
    for _ in range(count):
        janitor.work(lambda: 0.0, {"s1": 1})


def leader(drive: Driver) -> Janitor:
    """Return a leader that has seen the state as it is: its first pass looks at all of it."""
    janitor = Janitor(drive.store, 1, LEASE_S)
    passes(drive, janitor, 1)
    return janitor


def damage(drive: Driver, key: str, how: str) -> None:
    client: Any = drive.store.client
    client.delete(key)
    if how == "of another type":
        kind = TYPES[key.partition("}:")[2].partition(":")[0]]
        client.set(key, "x") if kind != "string" else client.lpush(key, "x")


def sound(drive: Driver, **others: str) -> None:
    assert audit(drive.store) == []
    assert {id: drive.state(id) for id in STATES} == STATES | others


LOST = {
    "tasks": {"later": "failed", "dead": "failed", "taken": "failed"},
    "messages": {
        "waits": "failed",
        "wide": "failed",
        "later": "failed",
        "dead": "failed",
        "taken": "failed",
        "placed": "placed",
    },
    "taken": {"taken": "pending"},
    "running": {"placed": "running"},
}
"""The states that tasks end in after a damage from which nothing is left to rebuild them.

A place that was lost counts as a start.
"""


@pytest.mark.dealt
@pytest.mark.parametrize("how", ["deleted", "of another type"])
@pytest.mark.parametrize("by", ["the leader", "parsync doctor repair"])
@pytest.mark.parametrize("kind", [*QUEUE_KINDS, "pending"])
def test_a_key_of_the_queue_is_made_anew(busy: Driver, kind: str, how: str, by: str) -> None:
    janitor = leader(busy)
    sound(busy)
    damage(
        busy, busy.keys.pending("work slots=2") if kind == "pending" else busy.keys.queue(kind), how
    )
    if by == "the leader":
        passes(busy, janitor)
    else:
        dry = repair_all(busy.store, dry=True)
        repairs = repair_all(busy.store)
        assert bool(dry) == bool(repairs)
        assert repair_all(busy.store) == []
    sound(busy, **LOST.get(kind, {}))


@pytest.mark.dealt
@pytest.mark.parametrize("how", ["deleted", "of another type"])
@pytest.mark.parametrize("by", ["the leader", "parsync doctor repair"])
@pytest.mark.parametrize("kind", [kind for kind in PARTITION_KINDS if kind != "nodes"])
def test_a_key_of_a_partition_is_made_anew(busy: Driver, kind: str, how: str, by: str) -> None:
    janitor = leader(busy)
    damage(busy, busy.keys.partition(0, kind), how)
    if by == "the leader":
        passes(busy, janitor)
    else:
        repair_all(busy.store)
        assert repair_all(busy.store) == []
    sound(busy)


@pytest.mark.dealt
@pytest.mark.parametrize("field", ["submitted", "version", "floor", "shards"])
@pytest.mark.parametrize("value", ["x", "1", "899999999999", "999999999999999", ""])
def test_a_number_of_the_queue_is_repaired_and_no_number_is_given_out_again(
    busy: Driver, field: str, value: str
) -> None:
    janitor = leader(busy)
    lives = {busy.line(id).life for id in STATES}
    client: Any = busy.store.client
    client.hset(busy.keys.queue("meta"), field, value)
    passes(busy, janitor)
    sound(busy)
    assert busy.submit("new") == "submitted"
    assert busy.line("new").life > max(lives)


def test_a_delayed_task_in_the_list_of_dead_ones_is_delayed_again(busy: Driver) -> None:
    janitor = leader(busy)
    client: Any = busy.store.client
    client.zrem(busy.keys.queue("later"), "later")
    client.zadd(busy.keys.queue("dead"), {"later": 1})
    passes(busy, janitor)
    sound(busy)


def test_parts_of_a_resource_that_add_up_to_a_whole_are_sound(drive: Driver) -> None:
    drive.node("n1", slots=4, resources={"gpu": 2})
    for slot, amount in enumerate(["0.5", "0.25", "0.25"]):
        drive.submit(f"t{slot}", {"resources": {"gpu": float(amount)}})
        place = drive.held(
            f"t{slot}", drive.take()[f"t{slot}"], slots=(slot,), needs=f"slots=1 gpu={amount}"
        )
        assert drive.confirm(place) == "placed"
    assert drive.hash("left")["n1"] == "gpu=1"
    assert drive.run(drive.commands.repair_partition(0, "look")) == []


def test_all_tasks_of_a_look_may_be_suspects(drive: Driver) -> None:
    client: Any = drive.store.client
    client.hset(drive.keys.queue("tasks"), mapping={f"t{i}": "garbage" for i in range(5000)})
    looked = drive.run(drive.commands.look_over(0, "tasks", 0, 5000))
    assert len(looked.suspects) == 5000
    client.delete(drive.keys.queue("tasks"))


def test_a_seat_that_has_no_lease_is_repaired_before_a_lost_lease_is_put_back(busy: Driver) -> None:
    client: Any = busy.store.client
    slots = busy.keys.partition(0, "slots")
    (place,) = [place for place in places_in(busy.store, 0) if place.task == "placed"]
    client.hdel(slots, "n1/2")
    client.hset(slots, "n1/3", "garbage")
    assert busy.run(busy.commands.restore(0, [place])) == ["back"]
    assert client.hget(slots, "n1/3") is None
    passes(busy, Janitor(busy.store, 1, LEASE_S))
    sound(busy)


@pytest.mark.parametrize("ledger", ["gpu=3", "gpu=2.5", "gpu=9"])
def test_the_slots_of_a_lost_lease_are_not_offered_before_the_lease_is_restored(
    busy: Driver, ledger: str
) -> None:
    client: Any = busy.store.client
    client.hdel(busy.keys.partition(0, "slots"), "n1/2")
    client.hset(busy.keys.partition(0, "left"), "n1", ledger)
    client.hset(busy.keys.partition(0, "notes"), "nobody", "x")
    busy.run(busy.commands.repair_partition(0, "shut"))
    assert busy.hash("left")["n1"] == min(ledger, "gpu=4")
    passes(busy, Janitor(busy.store, 1, LEASE_S))
    sound(busy)


def test_an_invalid_id_does_not_stop_the_repair_of_other_tasks(busy: Driver) -> None:
    janitor = leader(busy)
    client: Any = busy.store.client
    long = "x" * (MAX_MESSAGE + 1)
    client.hset(busy.keys.queue("tasks"), long, "garbage")
    client.delete(busy.keys.queue("later"))
    passes(busy, janitor)
    client.hdel(busy.keys.queue("tasks"), long)
    sound(busy)


def test_an_id_of_undecodable_bytes_is_repaired_once(busy: Driver) -> None:
    janitor = leader(busy)
    client: Any = busy.store.client
    client.hset(busy.keys.queue("tasks"), b"\xff\xfe", "garbage")
    passes(busy, janitor)
    assert not client.hexists(busy.keys.queue("tasks"), b"\xff\xfe")
    assert client.hget(busy.keys.queue("ended"), b"\xff\xfe").startswith(b"failed ")
    client.hdel(busy.keys.queue("ended"), b"\xff\xfe")
    sound(busy)


@pytest.mark.parametrize("left", [None, "3"])
def test_a_number_of_submissions_that_went_back_is_a_loss_that_the_leader_records(
    busy: Driver, left: str | None
) -> None:
    janitor = leader(busy)
    assert read_losses(busy.store) == []
    client: Any = busy.store.client
    meta = busy.keys.queue("meta")
    before = int(client.hget(meta, "submitted"))
    client.hset(meta, "submitted", left) if left else client.hdel(meta, "submitted")
    passes(busy, janitor)
    (loss,) = read_losses(busy.store)
    assert (loss.seen_by, loss.went_back) == ("leader", (f"submitted {before} -> {left or 0}",))
    assert [entry for entry in entries(busy.store) if "submitted" in entry.where] == [], (
        "scripts have written it"
    )
    sound(busy)


@pytest.mark.parametrize("by", ["the leader", "parsync doctor repair"])
def test_a_true_lease_replaces_a_lease_whose_attempt_no_task_has(busy: Driver, by: str) -> None:
    client: Any = busy.store.client
    before = client.hgetall(busy.keys.partition(0, "slots"))
    client.hset(busy.keys.partition(0, "slots"), "n1/2", "ghost 1@1.s1.0 p0 n1/2 inc=1 since=1")
    if by == "the leader":
        passes(busy, Janitor(busy.store, 1, LEASE_S))
    else:
        repair_all(busy.store)
    assert client.hgetall(busy.keys.partition(0, "slots")) == before
    sound(busy)


def test_a_lease_is_not_freed_while_its_task_has_its_attempt(busy: Driver) -> None:
    client: Any = busy.store.client
    (place,) = [place for place in places_in(busy.store, 0) if place.task == "placed"]
    owner = client.hget(busy.keys.queue("taken"), "taken").decode()
    taken = replace(place, task="taken", attempt=owner)
    client.hset(busy.keys.partition(0, "slots"), "n1/2", taken.text)
    assert put_back_leases(busy.store, [place], {}) == ([], [place])
    assert client.hget(busy.keys.partition(0, "slots"), "n1/2").decode() == taken.text
    client.hset(busy.keys.partition(0, "slots"), "n1/2", place.text)
    sound(busy)


@pytest.mark.one_server(-1)
def test_more_leases_are_put_back_than_a_call_takes(store: Store) -> None:
    drive = Driver(store)
    drive.run(
        drive.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000, "shards": 1})
    )
    drive.node("n1", slots=MAX_ROWS + 2)
    ids = [f"t{n}" for n in range(MAX_ROWS + 2)]
    for id in ids:
        drive.submit(id, message=MESSAGE)
    attempts = drive.take(limit=MAX_ROWS) | drive.take()
    places = [drive.held(id, attempts[id], slots=(slot,)) for slot, id in enumerate(ids)]
    store.run_all([drive.commands.confirm([place]) for place in places])
    client: Any = store.client
    before = client.hgetall(drive.keys.partition(0, "slots"))
    client.delete(drive.keys.partition(0, "slots"))
    repair_all(store)
    assert client.hgetall(drive.keys.partition(0, "slots")) == before
    assert audit(store) == []


def test_a_task_that_is_gone_names_the_newest_losses_of_the_server(drive: Driver) -> None:
    client: Any = drive.store.client
    for number in range(1, 5):
        drive.run(drive.commands.record_loss(f"s1 p{number}=9->1", 60))
        (line,) = [
            line for line in client.hkeys(drive.keys.shared("losses")) if b"p%d=" % number in line
        ]
        client.hset(drive.keys.shared("losses"), line, number * 1000)
    (gone,) = drive.store.statuses(["nobody"])
    assert re.findall(r"p\d 9 -> 1", gone.why) == ["p4 9 -> 1", "p3 9 -> 1", "p2 9 -> 1"]

"""Tasks that have ended: generations that rotate, new lives of an id, and the dead that drop out of
their list.
"""

from typing import Any

import pytest

from parsync_redis.model.status import Setback
from parsync_redis.model.task import StoredState, TaskState
from parsync_redis.store import Store
from tests.kit.driver import NEVER_MS, Driver, dump, nth

GENERATIONS = ["ended", "ended_1", "ended_2"]
FINAL = [StoredState.SUCCEEDED, StoredState.FAILED, StoredState.CANCELLED]


def rotate(drive: Driver, ago_s: float = 10**6) -> int:
    """Rotate as if the last time had been so long ago."""
    now_ms = drive.record("nobody").now_ms
    drive.store.client.hset(drive.keys.queue("meta"), "rotated_ms", int(now_ms - ago_s * 1000))
    answer: int = drive.run(drive.commands.rotate())
    return answer


def generations(drive: Driver) -> list[list[str]]:
    return [drive.index(name) for name in GENERATIONS]


# -- rotate ----------------------------------------------------------------------------------------


def test_a_task_that_has_ended_is_forgotten_with_its_generation(drive: Driver):
    drive.bring(StoredState.SUCCEEDED, "a")
    assert rotate(drive) == 1
    drive.bring(StoredState.FAILED, "b")
    assert generations(drive) == [["b"], ["a"], []]
    assert rotate(drive) == 1
    drive.bring(StoredState.CANCELLED, "c")
    assert generations(drive) == [["c"], ["b"], ["a"]]
    assert [drive.state(id) for id in "abc"] == ["succeeded", "failed", "cancelled"]
    assert rotate(drive) == 1
    assert generations(drive) == [[], ["c"], ["b"]]
    assert [drive.state(id) for id in "abc"] == ["gone", "failed", "cancelled"]
    assert [rotate(drive), rotate(drive)] == [1, 1]
    assert [drive.state(id) for id in "abc"] == ["gone", "gone", "gone"]


def test_a_generation_lasts_half_a_retention(drive: Driver):
    half_s = drive.commands.retention_s / 2
    drive.bring(StoredState.SUCCEEDED, "a")
    assert rotate(drive, half_s - 5) == 0
    assert generations(drive) == [["a"], [], []]
    assert rotate(drive, half_s + 5) == 1
    assert drive.unchanged_by(drive.commands.rotate()) == 0, "the next lasts as long"


@pytest.mark.parametrize("known", [None, "x", "", "-1", str(10**15), "9" * 20])
def test_a_leader_that_does_not_know_when_the_last_began_forgets_nothing(
    drive: Driver, known: str | None
):
    drive.bring(StoredState.SUCCEEDED, "a")
    if known is not None:
        drive.store.client.hset(drive.keys.queue("meta"), "rotated_ms", known)
    assert drive.run(drive.commands.rotate()) == 0
    assert generations(drive) == [["a"], [], []]
    assert drive.unchanged_by(drive.commands.rotate()) == 0


def test_tasks_that_have_not_ended_do_not_rotate(drive: Driver):
    for state in (StoredState.PENDING, StoredState.DEAD):
        drive.bring(state, state)
    before = {key: value for key, value in dump(drive.store).items() if not key.endswith(b":meta")}
    for _ in range(4):
        rotate(drive)
    assert {
        key: value for key, value in dump(drive.store).items() if not key.endswith(b":meta")
    } == before


def test_an_outcome_that_is_repeated_after_a_rotation_is_yours(drive: Driver):
    place = drive.bring(StoredState.SUCCEEDED)
    for _ in range(2):
        rotate(drive)
        assert drive.unchanged_by(drive.commands.finish([(place, "succeeded", "")])) == ["yours"]
        assert drive.unchanged_by(drive.commands.finish([(place, "failed", "")])) == ["stale"]
        assert drive.unchanged_by(drive.commands.start([place])) == [("refused", b"succeeded")]


# -- new lives -------------------------------------------------------------------------------------


@pytest.mark.dealt
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("state", FINAL)
def test_a_new_life_removes_the_old_record_from_any_generation(
    drive: Driver, state: StoredState, turns: int
):
    old = drive.bring(state)
    for _ in range(turns):
        rotate(drive)
    if turns == 3:  # by then they have expired
        drive.store.client.delete(drive.keys.extra("a"))
    assert drive.submit("a") == ("exists" if turns < 3 else "submitted"), (
        "an id without a publication is one task"
    )
    if turns < 3:
        assert drive.submit("a", publication="c1") == "submitted"
    assert generations(drive) == [[], [], []]
    assert (drive.state("a"), drive.line().life, drive.line().takes) == ("pending", 2, 0)
    assert drive.start(old) == "refused"
    new = drive.place("a", drive.take()["a"])
    assert (drive.start(new), drive.finish(new, "failed", "new")) == ("ok", "ok")
    assert (drive.record().why, generations(drive)) == ("new", [["a"], [], []])


def test_a_refused_new_life_keeps_the_old_record(drive: Driver):
    drive.bring(StoredState.FAILED)
    drive.offer("n1", "slots=2", "work")
    before = dump(drive.store)
    assert drive.submit("a", {"slots": 3}, publication="c1") == "infeasible"
    assert drive.submit("a", name="other", publication="c1") == "unknown"
    assert dump(drive.store) == before


def test_a_new_life_has_no_rare_fields_of_the_old_life(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    assert drive.requeue(place, "lost") == "pending"
    assert drive.cancel("a", "not wanted") == ("cancelled", "")
    assert drive.record().extra["history"]
    assert drive.submit("a", publication="c1", expiry_ms=NEVER_MS) == "submitted"
    assert (drive.record().extra, drive.status().history, drive.status().why) == ({}, (), "")
    assert list(drive.line().options) == ["expires", "pub"]


def test_rare_fields_of_an_earlier_life_that_have_not_expired_are_no_later_ones(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.store.client.hset(drive.keys.extra("a"), mapping={"history": "old", "cancel": "SIGTERM"})
    drive.store.client.expire(drive.keys.extra("a"), 99)
    assert drive.requeue(place, "lost") == "pending"
    assert (set(drive.record().extra), len(drive.status().history)) == ({"why", "history"}, 1)
    assert drive.store.client.ttl(drive.keys.extra("a")) == -1


# -- the record of an ended task -------------------------------------------------------------------


def test_an_end_tells_where_the_task_ran_and_why_it_ended(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    assert drive.finish(place, "failed", "two words\nand a line") == "ok"
    status = drive.status()
    assert (status.state, status.why) == (TaskState.FAILED, "two words\nand a line")
    assert (status.node, status.slot, status.partition, status.scheduler, status.attempt) == (
        "n1",
        0,
        0,
        "s1",
        1,
    )
    times = status.times
    assert all(times[step] for step in ("submitted", "ready", "placed", "started", "finished"))
    assert status.starts == 1


def test_a_task_that_never_ran_ended_nowhere(drive: Driver):
    drive.submit("a")
    drive.cancel("a", "not wanted")
    status = drive.status()
    assert (status.state, status.why, status.node, status.starts) == (
        TaskState.CANCELLED,
        "not wanted",
        None,
        0,
    )
    assert drive.store.client.hget(drive.keys.extra("a"), "message") == b"message", (
        "the result backend needs it"
    )


# -- the dead --------------------------------------------------------------------------------------


def test_a_full_list_of_dead_tasks_drops_its_oldest_tasks_singly(store: Store):
    drive = Driver(store)
    client = store.client
    queue = drive.keys.queue
    places = [drive.bring(StoredState.RUNNING, f"d{n}") for n in range(4)]
    ids = [f"x{n}" for n in range(10_000)]  # as requeue leaves them
    pipe: Any = client.pipeline(transaction=False)
    pipe.hset(
        queue("tasks"),
        mapping=dict.fromkeys(ids, "+0@1 8121795630000001 1 1 starts=3 work slots=1"),
    )
    pipe.hset(queue("messages"), mapping=dict.fromkeys(ids, "m"))
    pipe.zadd(queue("dead"), {id: n + 1 for n, id in enumerate(ids)})
    for n, id in enumerate(ids):
        run = f"{id} {nth(1)} p0 n1/0 inc=1 since=1 started=2"
        pipe.hset(
            drive.keys.extra(id),
            mapping={"ended_ms": n + 1, "run": run, "why": "lost", "history": "x"},
        )
    pipe.execute()
    for place in places:
        drive.set_options(place.task, starts=drive.commands.max_starts)
    client.delete(drive.keys.extra("x2"))
    client.lpush(drive.keys.extra("x2"), "of another type, which is found too late for an error")
    assert drive.run(drive.commands.requeue([(place, "lost") for place in places])) == ["dead"] * 4
    assert client.zcard(queue("dead")) == 10_000
    assert sorted(drive.index("ended")) == ["x0", "x1", "x2", "x3"]
    assert (drive.state("x2"), client.exists(drive.keys.extra("x2"))) == ("dead", 0)
    record = drive.record("x3")
    assert (record.state, record.why, record.ended_ms, record.place and record.place.node) == (
        "dead",
        "lost",
        4,
        "n1",
    )
    assert record.extra == {"history": "x"}
    assert 0 < client.ttl(drive.keys.extra("x3")) <= drive.commands.retention_s
    assert client.ttl(drive.keys.extra("x4")) == -1
    assert drive.word(drive.commands.purge("dead", ["x3"])) == "purged"
    assert drive.state("x3") == StoredState.GONE


def test_a_dead_task_tells_of_all_its_runs(drive: Driver):
    drive.submit("a", {"max_starts": 2})
    for _ in range(2):
        place = drive.place("a", drive.take()["a"])
        drive.start(place)
        word = drive.requeue(place, "its node was lost")
    assert word == "dead"
    status = drive.status()
    assert (status.state, status.starts, status.max_starts, status.node) == (
        TaskState.DEAD,
        2,
        2,
        "n1",
    )
    assert [type(lost) for lost in status.history] == [Setback, Setback]
    assert status.times["finished"]
    assert status.times["started"]

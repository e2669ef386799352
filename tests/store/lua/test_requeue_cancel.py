"""requeue and cancel: a task whose lease is lost waits again; one that is not wanted ends."""

from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.model.task import StoredState
from parsync_redis.store.reads.demand import count_tasks
from parsync_redis.worker.node.reporter import outcomes
from parsync_redis.worker.node.runs import Run
from tests.kit.driver import NEVER_MS, Driver, nth
from tests.kit.oracle.audit import audit

HELD = [StoredState.TAKEN, StoredState.PLACED, StoredState.RUNNING]


@pytest.mark.parametrize("state", [StoredState.PLACED, StoredState.RUNNING])
def test_the_task_of_a_lost_lease_waits_again_without_a_place(drive: Driver, state: StoredState):
    place = drive.bring(state)
    assert drive.requeue(place, "n1 was lost") == "pending"
    record = drive.record("a")
    status = drive.status()
    assert (record.state, status.why) == ("pending", "n1 was lost")
    assert (record.place, status.node, status.scheduler) == (None, None, None)
    assert (drive.index("pending"), drive.index("running")) == (["a"], [])


def test_requeue_taken(drive: Driver):
    """A lost lease of the current attempt puts back a task that is only taken: its confirm or start
    may never come.
    """
    place = drive.bring(StoredState.TAKEN)
    assert drive.requeue(place) == "pending"
    assert (drive.index("pending"), drive.index("taken")) == (["a"], [])
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["stale"]


@pytest.mark.parametrize("state", HELD)
def test_requeue_is_fenced_by_the_attempt(drive: Driver, state: StoredState):
    place = drive.bring(state)
    for attempt in (nth(0), nth(2), nth(1, 2), nth(1, 1, "s2")):
        assert drive.unchanged_by(
            drive.commands.requeue([(replace(place, attempt=attempt), "")])
        ) == ["none"]


@pytest.mark.parametrize("state", [StoredState.PLACED, StoredState.RUNNING])
@pytest.mark.parametrize("other", [{"node": "n2"}, {"slots": (1,)}, {"inc": 2}])
def test_place_fenced_requeue(drive: Driver, state: StoredState, other: dict[str, Any]):
    """Another lease of the same attempt, which lost the race, says nothing of the one
    that counts.
    """
    place = drive.bring(state)
    assert drive.unchanged_by(drive.commands.requeue([(replace(place, **other), "")])) == ["none"]


@pytest.mark.parametrize("state", [s for s in StoredState if s not in HELD])
def test_requeue_changes_no_task_that_has_no_place(drive: Driver, state: StoredState):
    place = drive.bring(state)
    if state == StoredState.PENDING:
        drive.take()
        drive.run(drive.commands.give_back("s1", [("a", "", "", "")]))
    assert drive.unchanged_by(drive.commands.requeue([(place, "")])) == ["none"]


def test_limit_counts_starts(drive: Driver):
    """Takes and placements that came to nothing do not count; the last lost start that is allowed
    makes it dead.
    """
    drive.submit("a")
    for _ in range(5):
        place = drive.place("a", drive.take()["a"])
        drive.confirm(place)
        assert drive.requeue(place) == "pending"
    for number in range(1, drive.commands.max_starts + 1):
        place = drive.place("a", drive.take()["a"])
        assert drive.start(place) == "ok"
        assert drive.status().starts == number
        word = drive.requeue(place, "lost again")
        assert word == ("dead" if number == drive.commands.max_starts else "pending")
    assert (drive.state("a"), drive.record("a").why) == ("dead", "lost again")
    assert drive.index("dead") == drive.index("tasks") == ["a"]
    assert drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1) == [b"a dead lost again"]


def test_a_placed_task_is_not_dead_however_often_it_started_before(drive: Driver):
    drive.submit("a")
    for _ in range(drive.commands.max_starts - 1):
        place = drive.place("a", drive.take()["a"])
        drive.start(place)
        drive.requeue(place)
    drive.set_options("a", starts=drive.commands.max_starts)
    place = drive.place("a", drive.take()["a"])
    drive.confirm(place)
    assert drive.requeue(place) == "pending"


def test_cancel_survives_requeue(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    assert drive.cancel("a", "not wanted") == ("asked", "")
    assert drive.requeue(place) == "cancelled"
    assert (drive.state("a"), drive.index("pending")) == ("cancelled", [])
    assert drive.store.client.ttl(drive.keys.extra("a")) > 0


def test_requeue_judges_each_task_by_itself(drive: Driver):
    a = drive.bring(StoredState.RUNNING, "a")
    b = drive.bring(StoredState.PLACED, "b")
    assert drive.run(
        drive.commands.requeue([(a, ""), (replace(b, attempt=nth(9, 9)), ""), (b, "")])
    ) == [
        "pending",
        "none",
        "pending",
    ]


@pytest.mark.parametrize("state", [StoredState.PENDING, StoredState.TAKEN, StoredState.PLACED])
def test_a_task_that_does_not_run_is_cancelled_and_never_starts(drive: Driver, state: StoredState):
    place = drive.bring(state)
    assert drive.cancel("a", "not wanted") == ("cancelled", "")
    assert (drive.state("a"), drive.record("a").why) == ("cancelled", "not wanted")
    assert [drive.index(kind) for kind in ("pending", "later", "taken", "running")] == [
        [],
        [],
        [],
        [],
    ]
    assert drive.take() == {}
    assert drive.start(place) == "refused"
    assert drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1) == [
        b"a cancelled not wanted"
    ]


def test_a_task_that_waits_for_its_time_is_cancelled(drive: Driver):
    drive.submit("a", delay_ms=NEVER_MS)
    assert drive.cancel("a") == ("cancelled", "")
    assert drive.index("later") == []


def test_the_cancel_of_a_running_task_is_noted_once(drive: Driver):
    drive.bring(StoredState.RUNNING)
    assert drive.cancel("a") == ("asked", "")
    assert drive.unchanged_by(drive.commands.cancel(["a"], how="after")) == [("asked", "")]
    assert (drive.state("a"), drive.record("a").extra["cancel"]) == ("running", "SIGTERM")


def test_a_cancel_may_be_asked_for_again_with_a_stronger_signal(drive: Driver):
    drive.bring(StoredState.RUNNING)
    assert drive.cancel("a") == ("asked", "")
    assert drive.cancel("a", how="SIGKILL") == ("asked", "")
    assert drive.record("a").extra["cancel"] == "SIGKILL"


def test_a_cancel_after_the_run_may_become_a_cancel_that_ends_the_run(drive: Driver):
    drive.bring(StoredState.RUNNING)
    for how in ("after", "SIGTERM"):
        assert drive.cancel("a", how=how) == ("asked", "")
        assert drive.record("a").extra["cancel"] == how


@pytest.mark.parametrize("state", [s for s in StoredState if s.final or s == StoredState.GONE])
def test_a_final_state_stays(drive: Driver, state: StoredState):
    drive.bring(state)
    assert drive.unchanged_by(drive.commands.cancel(["a"])) == [("none", state)]


def test_lost_attempts_and_deaths_are_counted_whatever_stood_there(any_store):
    driver = Driver(any_store)
    driver.bring(StoredState.DEAD, "a")
    assert (count_tasks(any_store).lost, count_tasks(any_store).died) == (1, 1)
    driver.requeue(driver.bring(StoredState.RUNNING, "b"))
    assert (count_tasks(any_store).lost, count_tasks(any_store).died) == (2, 1)
    place = driver.bring(StoredState.RUNNING, "c")
    assert driver.requeue(place, how="recalled", delay_ms=0) == "pending"
    assert driver.requeue(place) == "none"
    assert count_tasks(any_store).lost == 2, "it was not lost"
    shard = any_store.keys.shard_of("d")
    any_store.client.hset(any_store.keys.queue("meta", shard), "lost", "many")
    assert count_tasks(any_store).lost == 0
    driver.requeue(driver.bring(StoredState.RUNNING, "d"))
    assert count_tasks(any_store).lost == 1


def test_a_run_that_did_not_begin_leaves_its_task_ready_since_before(drive: Driver):
    drive.submit("a")
    ready_ms = drive.status().times["ready"]
    (task,) = drive.run(drive.taking()).tasks
    place = drive.place("a", task.attempt)
    drive.start(place)
    assert drive.requeue(place, "its rate limit", "unbegun", 500) == "pending"
    due_ms = drive.status().times["ready"]
    assert (due_ms or 0) >= (ready_ms or 0) + 500, "until it is due it is not ready"
    assert drive.store.client.zscore(drive.keys.queue("later"), "a") == due_ms
    assert (drive.status().starts, drive.status().times["started"]) == (0, None)
    assert not audit(drive.store)
    drive.store.client.zadd(drive.keys.queue("later"), {"a": 1})
    drive.run(drive.taking())
    assert (drive.status().times["ready"], drive.line("a").options) == (ready_ms, {})
    (task,) = drive.run(drive.taking()).tasks
    assert (task.ready_ms, task.attempt.partition("@")[0]) == (ready_ms, "2"), (
        "the attempt had started"
    )
    place = drive.place("a", task.attempt)
    drive.start(place)
    assert drive.requeue(place, "it had not begun", "unbegun") == "pending"
    assert (drive.status().times["ready"], drive.status().times["started"]) == (ready_ms, None)


@pytest.mark.parametrize("unbegun", [True, False])
def test_a_worker_tells_whether_a_task_was_ready_although_its_run_did_not_begin(
    drive: Driver, unbegun: bool
):
    place = drive.bring(StoredState.RUNNING)
    drive.store.client.hset(
        drive.keys.queue("tasks"), "a", "0@1 8121795630000001 7 7 - work slots=1"
    )
    run = Run(place, outcome="recalled", why="its rate limit", delay_ms=0, unbegun=unbegun)
    for call in outcomes(drive.commands, [run]):
        assert drive.run(call) == ["pending"]
    drive.run(drive.taking())
    assert (drive.status().times["ready"] == 7) == unbegun


def test_a_task_that_must_not_run_yet_is_ready_when_it_is_due(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.store.client.hset(
        drive.keys.queue("tasks"), "a", "0@1 8121795630000001 7 7 - work slots=1"
    )
    assert drive.requeue(place, "its message says so", "recalled", 0) == "pending"
    drive.run(drive.taking())
    assert (drive.status().times["ready"] or 0) > 7

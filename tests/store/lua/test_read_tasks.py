"""read_tasks: the records of many tasks, of one moment. It changes nothing."""

from typing import Any

import pytest

from parsync_redis.model.task import StoredState, TaskState
from tests.kit.driver import NEVER_MS, Driver, dump


def test_a_task_in_each_state_is_read_in_one_call(drive: Driver):
    # the one that waits last
    places = {state: drive.bring(state, state) for state in reversed(StoredState)}
    drive.submit("late", delay_ms=NEVER_MS)
    before = dump(drive.store)
    records = drive.run(drive.commands.read_tasks([*StoredState, "late", "nobody"]))
    assert [record.id for record in records] == [*StoredState, "late", "nobody"]
    assert [record.state for record in records] == [*StoredState, "pending", "gone"]
    assert len({record.now_ms for record in records}) == 1
    assert dump(drive.store) == before
    known = {record.state: record for record in records[: len(StoredState)]}
    for state in (
        StoredState.PLACED,
        StoredState.RUNNING,
        StoredState.SUCCEEDED,
        StoredState.FAILED,
        StoredState.DEAD,
    ):
        assert (known[state].place, known[state].attempt) == (places[state], places[state].attempt)
        assert (known[state].started_ms is None) == (state == StoredState.PLACED)
    assert (known["taken"].attempt, known["taken"].place, known["taken"].scheduler) == (
        places[StoredState.TAKEN].attempt,
        None,
        "s1",
    )
    for record in records:
        assert (record.line is None) == (record.state == "gone")
        assert (record.ended_ms is not None) == (
            record.state in ("succeeded", "failed", "cancelled", "dead")
        )
        assert record.kind_line == (
            drive.kinds()["work slots=1"] if record.state == "pending" else ""
        )


def test_a_task_that_is_named_twice_is_read_twice(drive: Driver):
    drive.submit("a")
    first, second, third = drive.run(drive.commands.read_tasks(["a", "nobody", "a"]))
    assert (first, second.state) == (third, "gone")


def test_rare_fields_are_read_but_for_messages(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.submit("a", message=b"secret", publication="c1")
    drive.cancel("a")
    assert drive.record().extra == {"next": "0 - pub=c1 work slots=1", "cancel": "SIGTERM"}
    drive.requeue(place, "lost")
    for extras in (True, False):
        (record,) = drive.run(drive.commands.read_tasks(["a"], extras))
        assert ("history" in record.extra) == extras
        assert "secret" not in str(record)


@pytest.mark.dealt
@pytest.mark.parametrize(
    "text", ["", "x", "succeeded", "succeeded 1", "succeeded x\n\n\n", "\n\n\n", "\xff", "x" * 9000]
)
@pytest.mark.unaudited
def test_a_damaged_record_of_an_end_reads_as_ended_with_a_reason(drive: Driver, text: str):
    drive.store.client.hset(drive.keys.queue("ended"), "a", text)
    status = drive.status()
    assert status.state in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.GONE)
    assert status.why
    assert drive.submit("a") == "exists"
    assert drive.submit("a", publication="c1") in ("submitted", "exists")
    assert drive.run(drive.commands.repair_task("a", "why")) in ("sound", "gone")


@pytest.mark.parametrize("count", [1, 999, 1000])
def test_many_tasks_are_read_in_one_call(drive: Driver, count: int):
    client: Any = drive.store.client
    client.hset(
        drive.keys.queue("ended"),
        f"t{count - 1}",
        f"failed 1\n0@1 1 1 1 - work slots=1\n\nwhy {count}",
    )
    records = drive.run(drive.commands.read_tasks([f"t{n}" for n in range(count)]))
    assert [record.state for record in records] == ["gone"] * (count - 1) + ["failed"]
    assert records[-1].why == f"why {count}"
    client.hdel(drive.keys.queue("ended"), f"t{count - 1}")

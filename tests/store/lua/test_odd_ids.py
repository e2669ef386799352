"""Ids that are not their own form in keys ('a b' is `a%20b` there): what people see and
throw away.
"""

from typing import Any

import pytest

from parsync_redis.inspect.waiting import explain_tasks
from parsync_redis.model.ids import encode_id
from parsync_redis.model.task import StoredState, TaskState
from parsync_redis.store import Store
from parsync_redis.store.reads import tasks
from parsync_redis.store.reads.cancel import find_purgeable, purge_tasks
from parsync_redis.store.reads.tasks import list_tasks
from tests.kit.driver import Driver

pytestmark = pytest.mark.unaudited
ODD = ["a b", "x/y", "%41", "ä"]


@pytest.fixture
def drive(store: Store) -> Driver:
    """Return a cluster on a real server: fakeredis has no INFO."""
    return Driver(store)


@pytest.mark.parametrize("state", ["waiting", "succeeded", "failed", "cancelled", "dead"])
def test_a_purge_deletes_only_the_tasks_that_it_names(drive: Driver, state: str):
    for id in (*ODD, "A"):
        key = encode_id(id)
        drive.submit(key, name="other" if id == "A" else "odd")
        if state == "cancelled":
            drive.cancel(key)
        elif state != "waiting":
            place = drive.place(key, drive.take()[key])
            drive.start(place)
            if state == "dead":
                drive.set_options(key, starts=drive.commands.max_starts)
                assert drive.requeue(place) == "dead"
            else:
                assert drive.finish(place, state) == "ok"
    purgeable = find_purgeable(drive.store, state, "odd")
    assert {task.id for task in purgeable} == set(ODD)
    assert purge_tasks(drive.store, purgeable) == len(ODD)
    left = {"waiting": "cancelled"}.get(state, StoredState.GONE)
    assert {drive.state(encode_id(id)) for id in ODD} == {left}
    assert drive.state("A") == {"waiting": "pending"}.get(state, state)


def test_tasks_are_purged_although_a_foreign_field_is_among_the_records(drive: Driver):
    client: Any = drive.store.client
    drive.bring(StoredState.FAILED, "mine")
    for field in (b"z" * 300, b"\xff", b"a b", b""):
        client.hset(drive.keys.queue("ended"), field, b"failed 1\n0@1 1 1 1 - odd slots=1\n\n")
    client.hset(drive.keys.queue("ended"), "garbled", b"\xff")
    purgeable = find_purgeable(drive.store, "failed")
    assert {task.id for task in purgeable} >= {"mine"}
    assert purge_tasks(drive.store, purgeable) >= 1
    assert drive.state("mine") == StoredState.GONE


def test_why_a_task_waits_names_the_holder_by_its_id(drive: Driver):
    drive.run(drive.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000}))
    drive.node("n1", 1)
    drive.submit("a%20b")
    drive.held("a%20b", drive.take()["a%20b"])
    drive.submit("c")
    placed, waits = (
        task.why for task in explain_tasks(drive.store, drive.store.statuses(["a%20b", "c"]))
    )
    assert "until task a b ends" in waits, waits
    assert placed == "a scheduler has just placed it on n1"


@pytest.mark.parametrize("count", [1, 19, 20, 21, 40])
def test_a_long_queue_is_listed_in_its_order_page_by_page(
    drive: Driver, count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tasks, "_IDS_PER_READ", 20)
    for number in range(count):
        drive.submit(f"t{number}")
    for limit in (1, 20, 21, 39, 100):
        ids = [task.id for task in list_tasks(drive.store, {TaskState.WAITING}, limit)]
        assert ids == drive.index("pending")[:limit]

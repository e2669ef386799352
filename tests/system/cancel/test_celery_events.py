"""Revoking and watching tasks: r.revoke() wherever the task is, its events, and Flower, as in plain
Celery.
"""

import json
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery import chord, group
from celery.exceptions import TaskRevokedError

from tests.kit.rig import APP, LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with a stack of a scheduler and a prefork node of two slots; a task that kills
    its process once is dead.
    """
    rig = new_rig(PARSYNC_MAX_STARTS="1")
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    rig.worker("n1", labels={"pool": "fork"})
    return rig


class Watcher(threading.Thread):
    """Receives Celery's events."""

    def __init__(self, app: Any) -> None:
        super().__init__(daemon=True)
        self.app = app
        self.events = list[dict[str, Any]]()
        self.receiver: Any = None

    def run(self) -> None:
        with self.app.connection_for_read() as connection:
            self.receiver = self.app.events.Receiver(connection, handlers={"*": self.events.append})
            self.receiver.capture(limit=None, timeout=None, wakeup=False)

    def stop(self) -> None:
        if self.receiver is not None:
            self.receiver.should_stop = True
        self.join(5)

    def types(self, id: str) -> list[str]:
        """Return the types of a task's events, without 'task-'."""
        return [
            event["type"].removeprefix("task-")
            for event in list(self.events)
            if event.get("uuid") == id
        ]

    def by_worker(self, id: str) -> list[str]:
        """Return the types of a task's events in the order in which its worker sent them.

        The event 'sent' is left out: another process sends 'sent', at any time.
        """
        return [type for type in self.types(id) if type != "sent"]


@pytest.fixture(scope="module")
def watcher(rig: Rig) -> Iterator[Watcher]:
    watcher = Watcher(rig.tasks.app)
    watcher.start()
    rig.until(lambda: probe(rig, watcher), "events are heard")
    yield watcher
    watcher.stop()


def probe(rig: Rig, watcher: Watcher) -> list[str]:
    result = rig.tasks.add.delay(0, 0)
    result.get(timeout=GET_S)
    return watcher.types(result.id)


@pytest.fixture
def full(rig: Rig) -> Iterator[list[Any]]:
    """Yield two tasks that hold the node's slots until the test has ended."""
    holders = [rig.tasks.gated.delay(f"full{i}", "full") for i in range(2)]
    rig.until(lambda: len(rig.marks("held")) == 2, "the node is full")
    yield holders
    rig.open("full")
    for result in holders:
        rig.until_state(result, "succeeded", "cancelled")
    rig.until_idle()


def revoked(result: Any) -> bool:
    with pytest.raises(TaskRevokedError):
        result.get(timeout=GET_S)
    return bool(result.state == "REVOKED")


def test_a_task_is_sent_received_started_and_succeeded(rig: Rig, watcher: Watcher) -> None:
    result = rig.tasks.add.delay(1, 2)
    assert result.get(timeout=GET_S) == 3
    rig.until(lambda: len(watcher.types(result.id)) == 4, "four events")
    assert watcher.by_worker(result.id) == ["received", "started", "succeeded"]


def test_a_failure_and_a_retry_are_events_as_well(rig: Rig, watcher: Watcher) -> None:
    failed = rig.tasks.boom.delay()
    retried = rig.tasks.flaky.delay(1)
    assert retried.get(timeout=GET_S) == 1
    rig.until(lambda: "failed" in watcher.types(failed.id), "it failed")
    rig.until(lambda: watcher.by_worker(retried.id)[-1:] == ["succeeded"], "it succeeded")
    assert watcher.types(retried.id).count("retried") == 1
    assert watcher.types(retried.id).count("started") == 2


def test_a_waiting_task_that_is_revoked_never_runs(
    rig: Rig, watcher: Watcher, full: list[Any]
) -> None:
    result = rig.tasks.noted.delay("waiting")
    assert rig.status(result).state == "waiting"
    result.revoke()
    assert rig.status(result).state == "cancelled"
    assert revoked(result)
    rig.until(lambda: "revoked" in watcher.types(result.id), "its event")
    rig.open("full")
    rig.until_idle()
    assert not rig.marks("begin", "waiting")


def test_a_task_that_is_not_due_can_be_revoked(rig: Rig) -> None:
    result = rig.tasks.noted.apply_async(("later",), countdown=600)
    result.revoke()
    assert revoked(result)
    assert rig.state.zcard(rig.store.keys.queue("later")) == 0


def test_a_running_task_ends_its_run_when_revoked_without_terminate_and_does_not_retry(
    rig: Rig,
) -> None:
    result = rig.tasks.gated.delay("on")
    rig.until(lambda: rig.marks("held"), "it runs")
    result.revoke()
    rig.open()
    assert result.get(timeout=GET_S) == "on"
    assert rig.until_state(result, "succeeded").starts == 1
    retrying = rig.tasks.retries_after.delay("retrying")
    rig.until(lambda: rig.marks("held", "retrying"), "it runs")
    retrying.revoke()
    rig.open("retry")
    assert rig.until_state(retrying, "cancelled").starts == 1
    assert revoked_soon(rig, retrying)


def revoked_soon(rig: Rig, result: Any) -> bool:
    return rig.until(lambda: result.state == "REVOKED", "the result says revoked")


def test_a_running_task_is_killed_when_revoked_with_terminate(rig: Rig, watcher: Watcher) -> None:
    for signal in ("SIGTERM", "SIGKILL"):
        key = f"killed-{signal}"
        result = rig.tasks.gated.delay(key)
        rig.until(lambda key=key: rig.marks("held", key), "it runs")  # type: ignore[misc]
        result.revoke(terminate=True, signal=signal)
        assert revoked(result)
        assert rig.until_state(result, "cancelled").starts == 1
        rig.until(lambda result=result: "revoked" in watcher.types(result.id), "its event")  # type: ignore[misc]
        rig.open()
        assert not rig.marks("end", key)
        rig.redis.delete("test:gate:go")
    rig.until_idle()


def test_a_cancel_by_the_client_kills_a_running_task_without_any_broadcast(rig: Rig) -> None:
    result = rig.tasks.gated.delay("cancelled")
    rig.until(lambda: rig.marks("held"), "it runs")
    assert rig.client.cancel(result.id) == "asked"
    assert revoked(result)
    assert rig.until_state(result, "cancelled").starts == 1
    rig.until_idle()


def test_a_cancel_by_the_client_of_a_waiting_task_has_a_result(
    rig: Rig, watcher: Watcher, full: list[Any]
) -> None:
    result = rig.tasks.noted.delay("cancelled-waiting")
    assert rig.client.cancel(result.id) == "cancelled"
    assert revoked(result)
    rig.until(lambda: "revoked" in watcher.types(result.id), "its event")


def test_a_group_is_revoked_whole(rig: Rig, full: list[Any]) -> None:
    results = group(rig.tasks.noted.s(f"g{i}") for i in range(5)).apply_async()
    results.revoke()
    assert all(revoked(result) for result in results)
    rig.open("full")
    rig.until_idle()
    assert not rig.marks("begin")


def test_a_chord_whose_task_is_revoked_or_dead_fails_and_does_not_wait_for_ever(
    rig: Rig, full: list[Any]
) -> None:
    for end in ("revoked", "dead"):
        header = [
            rig.tasks.add.s(1, 1),
            (rig.tasks.noted.s("in") if end == "revoked" else rig.tasks.dies.s(end, 99)),
        ]
        body = chord(header)(rig.tasks.total.s())
        if end == "revoked":
            body.parent.results[1].revoke()
            rig.open("full")
        with pytest.raises(Exception, match=r"revoked|lost") as caught:
            body.get(timeout=GET_S)
        assert not isinstance(caught.value, TimeoutError)
    assert isinstance(body.parent.results[1].result, WorkerLostError)


def test_revoking_a_task_of_the_broker_is_celerys(rig: Rig) -> None:
    result = rig.tasks.plain_mark.apply_async(("broker",), countdown=5)
    result.revoke()
    rig.until(lambda: result.state == "REVOKED", "its worker revoked it")
    assert rig.status(result).state == "gone"
    assert not rig.marks("plain", "broker")


def test_inspect_sees_running_tasks(rig: Rig, full: list[Any]) -> None:
    replies = rig.tasks.app.control.inspect(timeout=60, limit=1).active()
    assert {task["id"] for tasks in replies.values() for task in tasks} == {
        result.id for result in full
    }


def test_flower_lists_the_tasks_and_their_states(rig: Rig, watcher: Watcher) -> None:
    with socket.socket() as probed:
        probed.bind(("127.0.0.1", 0))
        port = probed.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        APP,
        "flower",
        f"--port={port}",
        "--address=127.0.0.1",
    ]
    rig.stack.start("flower", ["env", "FLOWER_UNAUTHENTICATED_API=true", *command])

    def listed() -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tasks", timeout=5) as reply:
                return json.load(reply)
        except OSError:
            return None

    def seen() -> bool:
        good = rig.tasks.add.delay(2, 3)
        bad = rig.tasks.boom.delay()
        good.get(timeout=GET_S)
        rig.until_state(bad, "failed")
        tasks = listed() or {}
        found = {tasks[r.id]["state"] for r in (good, bad) if r.id in tasks}
        return found == {"SUCCESS", "FAILURE"} and tasks[good.id]["result"] == "5"

    try:
        rig.until(lambda: listed() is not None, "Flower answers")
        rig.until(seen, "Flower shows what ran and what failed")
    finally:
        rig.stack.terminate("flower")

"""Operators repair a cluster: dead tasks, drains with a deadline, suspects, expiry, cancels."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery.result import AsyncResult
from typer.testing import CliRunner

from parsync_redis.cli.app import app as cli
from parsync_redis.model.task import TaskState
from tests.kit.rig import CLUSTER, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with a stack of a scheduler and two prefork nodes of two slots."""
    rig = new_rig()
    rig.schedulers(1)
    for node in ("n1", "n2"):
        rig.worker(node, labels={"name": node}, up=False)
    rig.until_up("n1", "n2")
    return rig


@pytest.fixture(autouse=True)
def all_open(rig: Rig) -> Iterator[None]:
    """Leave n1 and n2 open to tasks, and idle, after each test."""
    yield
    for node in ("n1", "n2"):
        if rig.node(node).draining or rig.node(node).leaves_ms is not None:
            rig.client.undrain(node)
    rig.until(lambda: all(rig.node(node).state == "up" for node in ("n1", "n2")), "both are up")
    rig.until_idle()


def parsync(rig: Rig, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [*words, "--url", rig.url, "--cluster", CLUSTER])
    assert done.exit_code == code, done.output
    return str(done.output)


def at(node: str, **options: Any) -> dict[str, Any]:
    return {"require": {"name": node}, **options}


def fresh(rig: Rig, result: Any) -> Any:
    """Return an AsyncResult that has not asked yet: an AsyncResult that knows an end does not ask again."""
    return AsyncResult(result.id, app=rig.tasks.app)


def test_a_dead_task_tells_its_history_and_runs_again_when_it_is_requeued(rig: Rig) -> None:
    result = rig.tasks.dies.delay("poison", 3)
    assert rig.until_state(result, "dead").starts == 3
    with pytest.raises(WorkerLostError):
        result.get(timeout=GET_S)
    assert [
        task["id"] for task in json.loads(parsync(rig, "tasks", "--state", "dead", "--json"))
    ] == [result.id]
    history = json.loads(parsync(rig, "status", result.id, "--json"))["history"]
    assert [lost["attempt"].partition("@")[0] for lost in history] == ["1", "2", "3"]
    assert {lost["state"] for lost in history} == {"running"}
    assert {lost["node"] for lost in history} <= {"n1", "n2"}
    assert parsync(rig, "dead", "show", result.id).count("the process that ran it was lost") == 4
    for node in ("n1", "n2"):
        rig.client.drain(node)
    assert parsync(rig, "tasks", "requeue", "--all") == f"{result.id} waits again\n"
    rig.until(
        lambda: fresh(rig, result).state == "RETRY",
        "the result is not that of a dead task any more",
    )
    assert parsync(rig, "dead", "requeue", result.id, code=1).startswith(f"{result.id} is ")
    for node in ("n1", "n2"):
        rig.client.undrain(node)
    # Not get(): a client that heard of the death by looking keeps the message that tells of it too,
    # for the next get.
    rig.until(lambda: fresh(rig, result).state == "SUCCESS", "it runs")
    assert fresh(rig, result).result == "poison"
    status = rig.until_state(result, "succeeded")
    assert (status.starts, len(status.history)) == (1, 3)
    assert status.attempt > 3, "attempts go on: none comes twice"
    assert parsync(rig, "dead", "list") == "no tasks\n"


def test_a_run_past_the_deadline_of_a_drain_moves_without_a_lost_start(
    rig: Rig,
) -> None:
    rig.client.drain("n2")
    result = rig.tasks.gated.delay("drained")
    rig.until(lambda: rig.marks("held", "drained"), "it runs")
    assert rig.status(result).node == "n1"
    rig.client.undrain("n2")
    parsync(rig, "drain", "n1", "--deadline", "1s", "--reason", "a new disk")
    assert "deadline_s=1: a new disk" in parsync(rig, "nodes")
    rig.until(lambda: len(rig.marks("held", "drained")) == 2, "it runs again")
    status = rig.status(result)
    assert (status.node, status.starts) == ("n2", 1)
    (lost,) = status.history
    assert (lost.node, lost.state, lost.why) == ("n1", TaskState.RUNNING, "its node is drained")
    assert rig.node("n1").note == "over deadline_s=1: a new disk"
    rig.open()
    assert result.get(timeout=GET_S) == "drained"
    parsync(rig, "undrain", "n1")
    assert rig.tasks.add.apply_async((1, 2), parsync=at("n1")).get(timeout=GET_S) == 3, (
        "it takes tasks again"
    )


def test_a_node_shrinks_and_grows_with_its_file_and_recalls_its_newest_run(
    rig: Rig, tmp_path: Path
) -> None:
    """The recalled run does not end when it is asked to: it is killed."""
    given = tmp_path / "capacity"
    given.write_text("slots=2")
    rig.worker(
        "n4",
        "--parsync-capacity",
        str(given),
        "--parsync-shrink-after",
        "0.5",
        labels={"name": "n4"},
    )
    rig.client.drain("n1")
    either = {"require": {"name": ["n1", "n4"]}}
    older = rig.tasks.gated.apply_async(("older",), parsync=either)
    rig.until(lambda: rig.marks("held", "older"), "the older one runs")
    newer = rig.tasks.clinging.apply_async(("newer",), parsync=either)
    rig.until(lambda: rig.marks("held", "newer"), "the newer one runs")
    given.write_text("slots=1")
    rig.until(lambda: rig.node("n4").capacity == {"slots": 1}, "it has shrunk")
    rig.until(lambda: rig.marks("asked", "newer"), "the newer one is asked to end")
    assert "gives 1 of its 2 slots now" in parsync(rig, "nodes")
    rig.client.undrain("n1")
    rig.until(lambda: len(rig.marks("held", "newer")) == 3, "it runs again, after it was killed")
    status = rig.status(newer)
    assert (status.node, status.starts, rig.status(older).node) == ("n1", 1, "n4")
    (recalled,) = status.history
    assert (recalled.node, recalled.state, recalled.why) == ("n4", TaskState.RUNNING, "n4 shrank")
    given.write_text("slots=2")
    rig.until(lambda: rig.node("n4").free == 1, "its second slot is open again")
    rig.open()
    assert (older.get(timeout=GET_S), newer.get(timeout=GET_S)) == ("older", "newer")
    events = json.loads(parsync(rig, "events", "--node", "n4", "--json"))
    assert [event["event"] for event in events if event["event"] in ("shrank", "grew")] == [
        "shrank",
        "grew",
    ]
    rig.stack.terminate("n4", 30)


def test_when_a_node_leaves_only_the_tasks_that_could_not_end_run_again(rig: Rig) -> None:
    rig.client.drain("n2")
    ends = rig.tasks.gated.delay("ends", "ends")
    stays = rig.tasks.gated.delay("stays")
    rig.until(lambda: rig.marks("held", "ends") and rig.marks("held", "stays"), "both run on n1")
    rig.client.undrain("n2")
    assert "leaves at" in parsync(rig, "nodes", "drain", "n1", "--at", "10m")
    (node,) = [node for node in json.loads(parsync(rig, "nodes", "--json")) if node["name"] == "n1"]
    assert (node["state"], node["draining"], node["leaves_ms"] is None) == ("up", False, False)
    waits = rig.tasks.unlearnt.apply_async(("waits",), parsync=at("n1"))
    rig.open("ends")
    assert ends.get(timeout=GET_S) == "ends", "it ends in time"
    rig.until(
        lambda: re.search(r"leaves in \S+: ", rig.client.explain(waits.id).why),
        "nothing is placed on n1 that may not end",
    )
    rig.client.drain("n1", leaves_at="1s")
    rig.until(lambda: len(rig.marks("held", "stays")) == 2, "it runs again")
    assert rig.node("n1").state == "draining"
    status = rig.status(stays)
    assert (status.node, status.starts) == ("n2", 1)
    (lost,) = status.history
    assert (lost.node, lost.state, lost.why) == ("n1", TaskState.RUNNING, "its node leaves")
    assert (rig.status(ends).starts, rig.status(ends).history) == (1, ())
    assert not rig.marks("held", "waits")
    parsync(rig, "undrain", "n1")
    rig.open()
    assert [result.get(timeout=GET_S) for result in (stays, waits)] == ["stays", "waits"]
    assert rig.status(waits).node == "n1", "it takes tasks again"


def test_a_worker_that_lives_and_starts_nothing_is_suspect_until_it_reads_its_inbox(
    rig: Rig,
) -> None:
    rig.worker("n3", "-Q", "q3", pool="solo", slots=3)
    # n3 is busy with what is none of ours
    rig.tasks.gated.apply_async(("plain", "plain"), queue="q3", parsync=False)
    rig.until(lambda: rig.marks("held", "plain"), "its event loop is held up")
    for node in ("n1", "n2"):
        rig.client.drain(node)
    results = [rig.tasks.noted.delay(f"waits-{i}") for i in range(3)]
    rig.until(lambda: rig.node("n3").state == "suspect", "n3 is suspect")
    assert rig.node("n3").note.startswith("alive, but 3 tasks in a row did not start there")
    assert "suspect" in parsync(rig, "nodes")
    assert "suspect: n3: alive, but" in parsync(
        rig, "doctor", code=1
    )  # exit code 1: n1 is the only node
    for node in ("n1", "n2"):
        rig.client.undrain(node)
    assert [result.get(timeout=GET_S) for result in results] == [f"waits-{i}" for i in range(3)]
    assert {rig.status(result).node for result in results} <= {"n1", "n2"}
    assert all(count == 1 for count in rig.counts("begin").values()), (
        "what was put back never ran on n3"
    )
    rig.open("plain")
    rig.until(lambda: rig.node("n3").state == "up", "it reads its inbox, and its probation is over")
    rig.stack.processes["n3"].send(signal.SIGTERM)
    rig.until(lambda: rig.node("n3").state == "", "n3 has left")


@pytest.mark.parametrize(
    "options", [{}, {"resources": {"gpu": 1}, "wait_for_capacity": True}], ids=["full", "nowhere"]
)
def test_a_task_that_waits_past_its_expiry_is_revoked(rig: Rig, options: dict[str, Any]) -> None:
    for node in ("n1", "n2"):
        rig.client.drain(node)
    result = rig.tasks.noted.apply_async(("late",), parsync={**options, "expires": 0.5})
    assert rig.until_state(result, "cancelled").why == "expired"
    rig.until(lambda: result.state == "REVOKED", "the result says so")
    assert not rig.marks("begin", "late")


def test_a_retry_keeps_the_expiry_of_its_task(rig: Rig) -> None:
    result = rig.tasks.retries_after.apply_async(("r",), parsync=at("n1", expires=6))
    submitted_s = time.monotonic()
    rig.until(lambda: rig.marks("held", "r"), "it runs")
    before = rig.status(result).expires_ms
    rig.client.drain("n1")
    rig.until(lambda: time.monotonic() > submitted_s + 2, "time passes")
    ran_ms = 1000 * (time.monotonic() - submitted_s)
    rig.open("retry")
    rig.until_state(result, "waiting", "cancelled")
    after = rig.status(result).expires_ms
    assert before is not None
    assert after is not None
    assert after - before < ran_ms, "an expiry that began anew would be later by that"
    assert after >= before
    assert rig.until_state(result, "cancelled").why == "expired"


def test_a_cancel_of_a_task_without_a_seat(rig: Rig) -> None:
    result = rig.tasks.noted.apply_async(
        ("waits",), parsync={"resources": {"gpu": 1}, "wait_for_capacity": True}
    )
    rig.until(
        lambda: "no node declares gpu" in rig.client.status(result.id).why,
        "a scheduler says why it waits",
    )
    assert rig.client.cancel(result.id) == "cancelled"
    rig.until(lambda: result.state == "REVOKED", "the result says so")


def test_a_cancel_of_a_task_whose_worker_does_not_answer_is_never_started(rig: Rig) -> None:
    rig.signal_all("n1", signal.SIGSTOP)
    try:
        result = rig.tasks.noted.apply_async(("placed",), parsync=at("n1"))
        rig.until_state(result, "placed")
        assert rig.client.cancel(result.id) == "cancelled"
        rig.until(lambda: result.state == "REVOKED", "the result says so")
    finally:
        rig.signal_all("n1", signal.SIGCONT)
    rig.until_idle()
    assert not rig.marks("begin", "placed")


def test_a_cancel_of_a_task_whose_worker_was_killed_ends_it_instead_of_running_it_again(
    rig: Rig,
) -> None:
    result = rig.tasks.gated.apply_async(("killed",), parsync=at("n1"))
    rig.until(lambda: rig.marks("held", "killed"), "it runs")
    rig.stack.kill("n1")
    assert rig.client.cancel(result.id) == "asked"
    status = rig.until_state(result, "cancelled")
    assert (status.starts, len(rig.marks("held", "killed"))) == (1, 1)
    rig.until(lambda: result.state == "REVOKED", "the other worker has told the result backend")
    rig.worker("n1", labels={"name": "n1"})


def test_a_cancel_of_a_task_whose_worker_was_given_up_ends_its_run_when_it_wakes(rig: Rig) -> None:
    result = rig.tasks.gated.apply_async(("paused",), parsync=at("n1"))
    rig.until(lambda: rig.marks("held", "paused"), "it runs")
    rig.signal_all("n1", signal.SIGSTOP)
    try:
        assert rig.client.cancel(result.id) == "asked"
        assert rig.until_state(result, "cancelled").starts == 1
    finally:
        rig.signal_all("n1", signal.SIGCONT)
    rig.until_up("n1")
    rig.open()
    assert rig.tasks.add.apply_async((1, 2), parsync=at("n1")).get(timeout=GET_S) == 3
    assert not rig.marks("end", "paused")
    rig.until(lambda: result.state == "REVOKED", "the result says so")

"""Rough weather for a whole stack: poisonous tasks, restarts under load, floods.

Rows F27, F31, F33 and F34 of docs/failure-modes.md.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from parsync_redis import ParsyncClient
from tests.kit.rig import CLUSTER, LONG_LEASE_S, Rig
from tests.kit.waiting import joined

pytestmark = pytest.mark.serial
POISON = "tests.kit.apps.poison"
APP = f"{POISON}:app"


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with two schedulers, a node of two processes."""
    rig = new_rig()
    rig.schedulers(2, lease_s=LONG_LEASE_S)
    rig.stack.worker(
        APP, "n1", pool="prefork", slots=2, labels={"kind": "rare"}, extra=("-l", "info")
    )
    rig.until_up("n1")
    return rig


def notes(rig: Rig, name: str, n: int, seconds: float = 0.0, **options: Any) -> list[str]:
    """Submit n tasks that mark their begin and end."""
    return rig.client.submit_many(
        {
            "name": "tests.kit.apps.marks.noted",
            "args": [f"{name}-{i}", seconds],
            "id": f"{name}-{i}",
            **options,
        }
        for i in range(n)
    )


def states(rig: Rig, ids: list[str]) -> list[str]:
    """Return the final state of each task."""
    return [status.state for status in rig.client.wait(ids, timeout=180).values()]


def test_poisonous_tasks_end_after_a_few_starts_and_the_others_run(rig: Rig) -> None:
    failed = dict.fromkeys(("exits", "deaf", "unpackable", "deep"), "failed")
    kinds = {"leaves": "dead", "chatty": "succeeded", **failed}
    bad = {
        kind: rig.client.submit(f"{POISON}.{kind}", [kind], id=f"poison-{kind}") for kind in kinds
    }
    good = notes(rig, "beside", 30)
    assert set(states(rig, good)) == {"succeeded"}
    states(rig, list(bad.values()))
    assert {kind: rig.status(id).state for kind, id in bad.items()} == kinds
    assert rig.counts("leaves")["leaves"] == rig.status(bad["leaves"]).starts == 3
    assert {rig.status(id).starts for kind, id in bad.items() if kind != "leaves"} == {1}
    assert rig.counts("end") == dict.fromkeys(good, 1), (
        "a poisonous neighbour makes nothing run twice"
    )
    assert rig.node("n1").state == "up"


def test_workers_restarted_under_load_run_each_task_once(rig: Rig) -> None:
    rig.stack.worker(APP, "n2", pool="prefork", slots=2, extra=("-l", "info"))
    ids = notes(rig, "warm", 150, 0.03)
    for turn in range(4):
        rig.until(lambda turn=turn: len(rig.marks("end")) >= 20 * turn, "tasks run")  # type: ignore[misc]
        node = f"n{1 + turn % 2}"
        ended = rig.stack.terminate(node)
        # a worker that has only begun to start is ended by the signal
        assert ended in (0, -signal.SIGTERM), rig.lines(node)[-2000:]
        labels = {"kind": "rare"} if node == "n1" else {}
        rig.stack.worker(APP, node, pool="prefork", slots=2, labels=labels, extra=("-l", "info"))
    assert set(states(rig, ids)) == {"succeeded"}
    assert rig.counts("begin") == rig.counts("end") == dict.fromkeys(ids, 1)
    assert {rig.status(id).starts for id in ids} == {1}
    rig.until_up("n1", "n2")
    rig.stack.processes["n2"].send(signal.SIGTERM)
    rig.until(lambda: rig.node("n2").state == "", "n2 has left")


def test_a_task_handed_to_a_pool_process_runs_once_though_the_worker_stops_first(
    rig: Rig,
) -> None:
    """The task is in the pipe of a process. Celery throws away each task that no process has reported to have begun."""
    rig.stack.worker(
        APP, "n3", pool="prefork", slots=1, labels={"kind": "slow"}, extra=("-l", "info")
    )
    rig.stack.worker(
        APP, "n4", pool="prefork", slots=1, labels={"kind": "slow"}, extra=("-l", "info")
    )
    rig.until_up("n3", "n4")
    rig.client.drain("n4")
    warm = notes(rig, "before", 1, require={"kind": "slow"})[0]
    process = int(rig.until(lambda: rig.marks("end", warm), "it has run")[0][2])
    rig.until_idle()
    os.kill(process, signal.SIGSTOP)
    try:
        (handed,) = notes(rig, "handed", 1, require={"kind": "slow"})
        rig.until_state(handed, "running")
        rig.client.undrain("n4")
        rig.stack.processes["n3"].send(signal.SIGTERM)
        rig.until(lambda: rig.node("n3").state == "leaving", "n3 shuts down")
        rig.until(lambda: "Warm shutdown" in rig.lines("n3"), "Celery shuts down")
        time.sleep(1)  # nothing is to happen, so there is nothing to wait for
    finally:
        os.kill(process, signal.SIGCONT)
    assert rig.until_state(handed, "succeeded").starts == 1
    assert rig.stack.terminate("n3") == 0, rig.lines("n3")[-2000:]
    assert rig.stack.terminate("n4") == 0, rig.lines("n4")[-2000:]
    assert rig.counts("begin")[handed] == rig.counts("end")[handed] == 1


def test_a_flood_from_many_clients_at_once_is_taken_in_and_each_task_runs_once(rig: Rig) -> None:
    clients = 100
    each = 10
    start = threading.Barrier(clients)
    trouble: list[Exception] = []

    def submit(number: int) -> None:
        try:
            with ParsyncClient.from_url(rig.url, CLUSTER) as client:
                start.wait(timeout=180)
                for i in range(each):
                    client.submit("tests.kit.apps.marks.add", [number, i], id=f"flood-{number}-{i}")
        except Exception as error:
            trouble.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    assert not trouble
    ids = [f"flood-{number}-{i}" for number in range(clients) for i in range(each)]
    assert set(states(rig, ids)) == {"succeeded"}
    assert {rig.status(id).starts for id in ids} == {1}


def test_a_task_that_only_a_busy_node_can_run_is_not_passed_for_ever(rig: Rig) -> None:
    """Many tasks want the slots of the only node that fits the task, all the time. The task still comes next by its place in the order."""
    crowd = notes(rig, "crowd", 40, 0.05)
    rare = rig.client.submit(
        "tests.kit.apps.marks.noted",
        ["rare"],
        id="rare",
        require={"kind": "rare"},
        strategy="quality",
    )
    late = notes(rig, "late", 60, 0.05)
    rig.until_state(rare, "succeeded")
    begun = [key for _, key, *_ in rig.marks("begin")]
    passed = sum(key in late for key in begun[: begun.index("rare")])
    assert passed <= 20, f"{passed} of 60 younger tasks went before it"
    assert set(states(rig, crowd + late)) == {"succeeded"}

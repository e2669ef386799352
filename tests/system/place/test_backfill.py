"""A large task beside a stream of small ones, on a real stack: its node is reserved for it, and
people see that.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import FINAL, TaskState
from parsync_redis.model.times import RunTimes, bin_of
from tests.kit import REPO
from tests.kit.apps.project import PROJ
from tests.kit.waiting import until

pytestmark = pytest.mark.serial

LONG = """

@app.task(name="proj.preview", parsync={})
def preview(seconds):
    time.sleep(seconds)


@app.task(name="proj.poster", parsync={})
def poster(seconds):
    time.sleep(seconds)
"""


@pytest.fixture
def stacked(tmp_path: Path) -> Iterator[tuple[str, ParsyncClient]]:
    """Yield the address and the client of a cluster with a scheduler, and a node of four slots and
    four GPUs.
    """
    (tmp_path / "proj.py").write_text(PROJ + LONG)
    options: dict[str, Any] = {
        "sink": lambda name, line: print(name, line),
        "env": {"PYTHONPATH": str(REPO)},
    }
    with LocalStack("demo", cwd=tmp_path, grace_s=3, **options) as stack:
        url = stack.server()
        stack.scheduler(1)
        stack.worker("proj", "n1", 4, resources={"gpu": 4}, pool="threads")
        with ParsyncClient.from_url(url, "demo") as client:
            until(lambda: client.nodes(), "the node is up")
            yield url, client


def test_a_large_task_runs_although_small_tasks_never_leave_the_node_empty(
    stacked: tuple[str, ParsyncClient],
) -> None:
    url, client = stacked
    gpu: Any = {"gpu": 1}
    client.wait([client.submit("proj.render", [1.0], resources=gpu) for _ in range(4)], 180)
    until(lambda: client.names(), "its run time is learnt")
    small: list[str] = []
    runs_beside_small_ones(url, client, small, "proj.preview", "slots=4", slots=4)
    runs_beside_small_ones(url, client, small, "proj.poster", "slots=1 gpu=4", resources={"gpu": 4})
    until(lambda: is_over(client.status(small[-1])), "the tasks behind it run")


def runs_beside_small_ones(
    url: str, client: ParsyncClient, small: list[str], long: str, needs: str, **options: Any
) -> None:
    """Check that small tasks of short run times may go before a large task, and that a task of a
    name that runs long may not, however long it waits.

    A small task lasts until the reservation has been seen, so that the large one cannot start
    meanwhile.
    """
    learn(client, long)
    gate = f"gate {needs}"
    lasting = client.submit("proj.render", [1.0, gate], resources={"gpu": 1})
    until(lambda: client.status(lasting).state == "running", "a small task lasts")
    large = client.submit("proj.render", [0.1], **options)

    def is_reserved() -> bool:
        refill(client, small)
        return bool(client.nodes()[0].reserved)

    def ends() -> bool:
        refill(client, small)
        return is_over(client.status(large))

    until(is_reserved, "the node is reserved")
    kept_out = [client.submit(long, [0.1], resources={"gpu": 1})]
    why = f"only node n1 fits: it is reserved for task {large} (proj.render {needs})"

    def is_kept_out() -> bool:
        # the task was placed before the scheduler had read the reservation
        if is_over(client.status(kept_out[-1])):
            refill(client, small)  # the node is reserved only while some ask for less
            kept_out.append(client.submit(long, [0.1], resources={"gpu": 1}))
        return why in (client.explain(kept_out[-1]).why or "")

    until(is_kept_out, why)
    assert f"reserved for task {large} (proj.render {needs})" in shown(url, "nodes")
    refill(client, small)
    client.store.client.set(gate, "open")
    until(ends, "the large task has run")
    until(lambda: is_over(client.status(kept_out[-1])), "the task that was kept out runs")
    until(lambda: not client.nodes()[0].reserved, "the node is free for all again")


def learn(client: ParsyncClient, name: str) -> None:
    """Have the cluster know that a thousand tasks of a name ran for a quarter of an hour each."""
    ms = 900_000.0
    learnt = RunTimes(1000, 1000 * ms, Counter({bin_of(ms): 1000}))
    client.store.client.hset(client.store.keys.shared("times"), name, learnt.text)


def refill(client: ParsyncClient, small: list[str]) -> None:
    """Let eight small tasks wait."""
    waits = sum(task.state is TaskState.WAITING for task in client.statuses(small[-12:]))
    small.extend(
        client.submit("proj.render", [1.0], resources={"gpu": 1}) for _ in range(8 - waits)
    )


def is_over(task: TaskStatus) -> bool:
    return task.state in FINAL


def shown(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "parsync_redis.cli", *words, "--url", url, "--cluster", "demo"]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    return ran.stdout + ran.stderr

"""A large task beside a stream of small ones, on a real stack: its node is reserved for it, and people see that."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import FINAL, WAITING
from tests.acceptance.project import PROJ
from tests.documents import ROOT
from tests.waiting import until

pytestmark = pytest.mark.serial


@pytest.fixture
def stacked(tmp_path: Path) -> Iterator[tuple[str, ParsyncClient]]:
    """A scheduler, and a node of four slots and four GPUs."""
    (tmp_path / "proj.py").write_text(PROJ)
    told: dict[str, Any] = {"sink": lambda name, line: print(name, line), "env": {"PYTHONPATH": str(ROOT)}}
    with LocalStack("demo", cwd=tmp_path, grace_s=3, **told) as stack:
        url = stack.server()
        stack.scheduler(1)
        stack.worker("proj", "n1", 4, resources={"gpu": 4}, pool="threads")
        with ParsyncClient.from_url(url, "demo") as client:
            until(lambda: client.nodes(), "the node is up", 60)
            yield url, client


def test_a_large_task_runs_although_small_ones_never_leave_its_node_empty(stacked: tuple[str, ParsyncClient]) -> None:
    url, client = stacked
    gpu: Any = {"gpu": 1}
    client.wait([client.submit("proj.render", [4.0], resources=gpu) for _ in range(4)], 60)
    until(lambda: client.names(), "its run time is learnt", 60)
    for number in range(4):  # from now on their ends lie apart
        client.submit("proj.render", [4.0 + number / 2], resources=gpu)
    until(lambda: client.nodes()[0].free == 0, "all slots are held")
    small: list[str] = []
    runs_beside_small_ones(url, client, small, "slots=4", slots=4)
    runs_beside_small_ones(url, client, small, "slots=1 gpu=4", resources={"gpu": 4})
    until(lambda: is_over(client.status(small[-1])), "the tasks behind it run", 120)


def runs_beside_small_ones(url: str, client: ParsyncClient, small: list[str], needs: str, **options: Any) -> None:
    large = client.submit("proj.render", [0.1], **options)
    seen: dict[str, str] = {}

    def ends() -> bool:
        waits = sum(one.phase == WAITING for one in client.statuses(small[-12:]))
        small.extend(client.submit("proj.render", [4.0], resources={"gpu": 1}) for _ in range(8 - waits))
        node = client.nodes()[0]
        if node.reserved:  # perhaps no more in a moment
            texts = {"explain": client.explain(small[-1]).why, "nodes": shown(url, "nodes")}
            seen.update({name: text for name, text in texts.items() if "reserved for task" in text})
        return is_over(client.status(large))

    until(ends, "the large task has run", 120)
    assert f"reserved for task {large} (proj.render {needs})" in seen["nodes"]
    assert f"only node n1 fits: it is reserved for task {large} (proj.render {needs})" in seen["explain"]
    until(lambda: not client.nodes()[0].reserved, "the node is free for all again", 60)


def is_over(task: TaskStatus) -> bool:
    return task.state in FINAL


def shown(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "parsync_redis.cli", *words, "--url", url, "--cluster", "demo"]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    return ran.stdout + ran.stderr

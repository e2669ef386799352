"""A worker whose parsync server is not there yet waits for it, and says so. Row F46 of docs/failure-modes.md."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer, free_port
from tests.kit import REPO
from tests.kit.rig import LONG_LEASE_S

pytestmark = pytest.mark.serial
PATIENCE_S = 180.0
CELERY = [sys.executable, "-m", "celery", "-A", "tests.kit.apps.marks:app"]
NODE = [*CELERY, "-b", "memory://", "worker", "-P", "threads", "-c", "2", "-l", "info"]
NODE += ["--parsync-only", "--parsync-node", "n1"]
ENV = {"PYTHONPATH": str(REPO), "CELERY_RESULT_BACKEND": "cache+memory://"}


@pytest.fixture
def port() -> int:
    """Return a port on which nobody listens yet."""
    return free_port()


@pytest.fixture
def stack(port: int, tmp_path: Path) -> Iterator[LocalStack]:
    """Yield a stack whose server is not there; its worker has begun to wait."""
    url = f"redis://:secret@127.0.0.1:{port}/0"
    with LocalStack("absent", url, logs=tmp_path, cwd=REPO, env=ENV) as stack:
        stack.start("n1", NODE)
        until(
            lambda: lines(tmp_path).count("no answer from") >= 3, "it says so repeatedly", tmp_path
        )
        assert f"node n1: no answer from the server at 127.0.0.1:{port}" in lines(tmp_path)
        assert stack.processes["n1"].alive
        yield stack


def lines(folder: Path) -> str:
    return (folder / "n1.log").read_text() if (folder / "n1.log").exists() else ""


def until(fact: Callable[[], object], what: str, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, f"not seen: {what}\n{lines(folder)[-2000:]}"
        time.sleep(0.02)


def test_a_node_waits_for_its_server_and_for_its_cluster(
    stack: LocalStack, port: int, tmp_path: Path
) -> None:
    with EmbeddedServer(port=port, options={"requirepass": "secret"}):
        stack.scheduler(1, lease_s=LONG_LEASE_S)
        with ParsyncClient.from_url(str(stack.url), "absent") as client:
            until(
                lambda: [node.state for node in client.nodes()] == ["up"],
                "the node is up",
                tmp_path,
            )
            id = client.submit("tests.kit.apps.marks.add", [1, 2])
            assert client.wait([id], timeout=PATIENCE_S)[id].state == "succeeded"
        assert stack.terminate("n1") == 0
        stack.stop()


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_worker_whose_broker_has_never_answered_runs_placed_tasks(
    pool: str, tmp_path: Path
) -> None:
    command = [
        *CELERY,
        "-b",
        f"redis://127.0.0.1:{free_port()}/0",
        "worker",
        "-P",
        pool,
        "--parsync-node",
        "n1",
    ]
    with LocalStack("absent", logs=tmp_path, cwd=REPO, env=ENV) as stack:
        url = stack.server()
        stack.scheduler(1, lease_s=LONG_LEASE_S)
        stack.start("n1", [*command, "-c", "2", "-l", "info"])
        with ParsyncClient.from_url(url, "absent") as client:
            until(
                lambda: [node.state for node in client.nodes()] == ["up"],
                "the node is up",
                tmp_path,
            )
            id = client.submit("tests.kit.apps.marks.add", [1, 2])
            status = client.wait([id], timeout=PATIENCE_S)[id]
        assert status.state == "succeeded", status
        assert "Connected to" not in lines(tmp_path)


def test_a_server_that_refuses_the_login_when_it_comes_ends_the_worker(
    stack: LocalStack, port: int, tmp_path: Path
) -> None:
    with EmbeddedServer(port=port, options={"requirepass": "another"}):
        assert stack.processes["n1"].end(time.monotonic() + PATIENCE_S) == 2
        assert "refuses the login" in lines(tmp_path)

"""A worker that comes while the server's memory is full waits until there is room, and is a node
then.

Kombu writes when it connects; Celery takes the refusal for the end of everything if nobody says
that it passes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from tests.kit import REPO
from tests.kit.rig import APP, CLUSTER, LONG_LEASE_S
from tests.kit.waiting import until

pytestmark = pytest.mark.serial


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    with LocalStack(CLUSTER, logs=tmp_path, cwd=REPO, env={"PYTHONPATH": str(REPO)}) as stack:
        stack.server()
        yield stack


def test_a_worker_outlives_full_memory_when_it_connects(stack: LocalStack) -> None:
    stack.scheduler(1, lease_s=LONG_LEASE_S, partitions=2)
    with ParsyncClient.from_url(str(stack.url), CLUSTER) as client:
        redis = client.store.client
        until(lambda: redis.exists(client.store.keys.shared("schedulers")), "a scheduler")
        redis.config_set("maxmemory", 1)
        stack.worker(APP, "n1", slots=1)
        refused = "Cannot connect to"
        until(
            lambda: refused in "\n".join(stack.processes["n1"].lines),
            "the refusal of what kombu writes",
        )
        redis.config_set("maxmemory", 0)
        until(lambda: [node.state for node in client.nodes()] == ["up"], "the worker is a node")
        assert client.wait([client.submit("tests.kit.apps.marks.add", [1, 2])], timeout=180)

"""Schedulers and workers on a cluster: tasks run, and go on where a primary lives while another is
away.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.ids import id_in_shard
from parsync_redis.model.task import FINAL
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.oracle.audit import audit
from tests.kit.waiting import ended, until

pytestmark = pytest.mark.serial
NAME = "whole"


@pytest.fixture
def broker() -> Iterator[EmbeddedServer]:
    """Return a server for Celery's results."""
    with EmbeddedServer() as server:
        yield server


def test_tasks_run_on_a_cluster_through_the_death_of_a_primary(
    replicated: EmbeddedCluster, broker: EmbeddedServer, tmp_path: Path
):
    env = {"CELERY_BROKER_URL": broker.url, "CELERY_RESULT_BACKEND": broker.url}
    with (
        LocalStack(NAME, replicated.url, logs=tmp_path, env=env, grace_s=15.0) as stack,
        ParsyncClient.from_url(replicated.url, NAME) as client,
    ):
        stack.scheduler(2, lease_s=5, partitions=4, gap_s=0.1)
        for number in range(4):
            stack.worker(
                "tests.kit.apps.marks:app",
                f"n{number}",
                slots=2,
                pool="threads",
                extra=("--parsync-only",),
            )
        until(lambda: [node.state for node in client.nodes()] == ["up"] * 4)
        ids = client.submit_many([("tests.kit.apps.marks.add", [1, 2]) for _ in range(100)])
        done = client.wait(ids, timeout=180)
        assert {task.state for task in done.values()} == {"succeeded"}
        os.kill(replicated.servers[0].process.pid, signal.SIGKILL)
        ended(replicated.servers[0].process)
        until(lambda: submitted(client, ids))
        until(lambda: {task.state for task in client.statuses(ids)} <= FINAL)
        assert {task.state for task in client.statuses(ids[100:])} == {"succeeded"}
        until(lambda: is_whole(client))


def submitted(client: ParsyncClient, ids: list[str]) -> bool:
    """Submit more tasks, to all shards; True if all are in."""
    shards = client.store.keys.shards
    new = [id_in_shard(n % shards, shards) for n in range(100)]
    try:
        ids += client.submit_many(
            [{"name": "tests.kit.apps.marks.add", "args": [1, 2], "id": id} for id in new]
        )
    except ServerUnreachable:
        return False
    return True


def is_whole(client: ParsyncClient) -> bool:
    """Return True if the state of all servers can be read and is sound."""
    try:
        return audit(client.store) == []
    except ServerUnreachable:
        return False

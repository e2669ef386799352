"""A health file is renewed while its process is well, and gets old when it is not: by a real
server's answers.
"""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from parsync_redis.health_file import HealthFile
from parsync_redis.model.needs import Resources
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig, join_cluster
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.node.loop_watch import LoopWatch
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.node_state import AgentState
from parsync_redis.worker.node.renewer import Renewer
from tests.kit.serving import url_of
from tests.kit.waiting import until

pytestmark = pytest.mark.one_server(0)


class Port:
    """The port of a worker that runs nothing."""

    processes: int | None = None
    queues: set[str] | None = None

    def busy(self) -> bool:
        return False

    def listen(self) -> None:
        """Do nothing: this worker has no inbox."""


class Watched:
    """A cluster with a short lease, and a health file."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.path = folder / "health"
        where = {"url": url_of(store), "cluster": store.keys.cluster}
        self.settings = Settings.load(
            **where, partitions=1, gap_s=0.1, lease_s=0.5, health_file=self.path
        )
        config = join_cluster(store, self.settings, create=True)
        assert config is not None
        self.config: ClusterConfig = config

    def is_renewed(self, text: str) -> bool:
        """Return whether the file was renewed since the last call, with this text."""
        found = (
            self.path.exists()
            and self.path.stat().st_mtime > 0
            and self.path.read_text() == f"{text}\n"
        )
        if self.path.exists():
            os.utime(self.path, (0, 0))
        return found


@pytest.fixture
def watched(store: Store, tmp_path: Path) -> Watched:
    return Watched(store, tmp_path)


def test_a_node_renews_its_health_file_while_it_is_up_and_its_event_loop_turns(
    watched: Watched,
) -> None:
    loop = LoopWatch()
    node = AgentState(NodeSpec("n1", Resources.of(1), 1.0), Isolation())
    node.lease_s = watched.config.lease_s
    port = Port()
    renewer = Renewer(watched.settings, node, cast(Any, port), loop)
    commands = watched.store.commands

    def renew() -> None:
        loop.turned()
        renewer.renew(watched.store, watched.config)

    renewer.register(watched.store, watched.config)
    assert not watched.path.exists()
    renew()
    assert watched.is_renewed("node n1 is up")
    watched.store.run(commands.set_node(0, "n1", "drain", None, "no deadline"))
    renew()
    assert watched.is_renewed("node n1 is drained")
    watched.store.run(commands.set_node(0, "n1", "undrain"))
    watched.store.run(commands.set_node(0, "n1", "suspect", node.inc, "tasks fail there"))
    renew()
    assert not watched.is_renewed("node n1 is up"), "it is suspect"
    watched.store.run(commands.set_node(0, "n1", "trust", node.inc))
    renew()
    assert watched.is_renewed("node n1 is up")

    port.processes = 0
    renew()
    watched.is_renewed("")
    renew()
    assert watched.store.nodes(0)["n1"].state == "suspect"
    assert watched.is_renewed("node n1 is suspect"), (
        "somebody has emptied its pool: a restart would undo that"
    )
    port.processes = None
    renew()

    def stalls() -> bool:
        renewer.renew(watched.store, watched.config)
        return bool(node.stalled)

    until(stalls, "its event loop stands still")
    watched.is_renewed("node n1 is up")
    renewer.renew(watched.store, watched.config)
    assert not watched.is_renewed("node n1 is up"), (
        "its lease is renewed, but its loop stands still"
    )


def test_a_scheduler_renews_its_health_file_while_its_lease_is_renewed_and_its_loop_turns(
    watched: Watched,
) -> None:
    health = HealthFile(watched.settings.health_file)
    scheduler = Scheduler(
        watched.store.with_own_connections(), watched.config, watched.settings, "s1", health=health
    )
    assert scheduler.enter()
    assert not watched.path.exists(), "its loop has not turned"
    scheduler.turn()
    assert watched.is_renewed("scheduler s1 is one of 1, the leader")
    scheduler.membership.renew()
    assert not watched.is_renewed("scheduler s1 is one of 1, the leader"), (
        "its loop has not turned since"
    )

    def turns() -> bool:
        scheduler.turn()
        return watched.is_renewed("scheduler s1 is one of 1, the leader")

    until(turns, "its loop turns again")
    for _ in range(20):
        scheduler.turn()
    assert not watched.is_renewed("scheduler s1 is one of 1, the leader"), (
        "its lease was not renewed since"
    )
    scheduler.leave()
    scheduler.listener.close()

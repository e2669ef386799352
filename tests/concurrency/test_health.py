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
from tests.serving import url_of
from tests.waiting import until

pytestmark = pytest.mark.one_server(0)


class Port:
    """The port of a worker that runs nothing."""

    processes: int | None = None
    queues: set[str] | None = None

    def busy(self) -> bool:
        return False

    def listen(self) -> None:
        """Do nothing: this worker has no inbox."""


class Rig:
    """A cluster with a short lease, and a health file."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.path = folder / "health"
        where = {"url": url_of(store), "cluster": store.keys.cluster}
        self.settings = Settings.load(
            **where, partitions=1, gap_s=0.1, lease_s=0.5, health_file=self.path
        )
        found = join_cluster(store, self.settings, create=True)
        assert found is not None
        self.config: ClusterConfig = found

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
def rig(store: Store, tmp_path: Path) -> Rig:
    return Rig(store, tmp_path)


def test_a_node_renews_its_health_file_while_it_is_up_and_its_event_loop_turns(rig: Rig) -> None:
    loop = LoopWatch()
    node = AgentState(NodeSpec("n1", Resources.of(1), 1.0), Isolation())
    node.lease_s = rig.config.lease_s
    port = Port()
    renewer = Renewer(rig.settings, node, cast(Any, port), loop)
    commands = rig.store.commands

    def renew() -> None:
        loop.turned()
        renewer.renew(rig.store, rig.config)

    renewer.register(rig.store, rig.config)
    assert not rig.path.exists()
    renew()
    assert rig.is_renewed("node n1 is up")
    rig.store.run(commands.set_node(0, "n1", "drain", None, "no deadline"))
    renew()
    assert rig.is_renewed("node n1 is drained")
    rig.store.run(commands.set_node(0, "n1", "undrain"))
    rig.store.run(commands.set_node(0, "n1", "suspect", node.inc, "tasks fail there"))
    renew()
    assert not rig.is_renewed("node n1 is up"), "it is suspect"
    rig.store.run(commands.set_node(0, "n1", "trust", node.inc))
    renew()
    assert rig.is_renewed("node n1 is up")

    port.processes = 0
    renew()
    rig.is_renewed("")
    renew()
    assert rig.store.nodes(0)["n1"].state == "suspect"
    assert rig.is_renewed("node n1 is suspect"), (
        "somebody has emptied its pool: a restart would undo that"
    )
    port.processes = None
    renew()

    def stalls() -> bool:
        renewer.renew(rig.store, rig.config)
        return bool(node.stalled)

    until(stalls, "its event loop stands still")
    rig.is_renewed("node n1 is up")
    renewer.renew(rig.store, rig.config)
    assert not rig.is_renewed("node n1 is up"), "its lease is renewed, but its loop stands still"


def test_a_scheduler_renews_it_if_its_lease_is_renewed_and_its_loop_turns(rig: Rig) -> None:
    health = HealthFile(rig.settings.health_file)
    scheduler = Scheduler(
        rig.store.with_own_connections(), rig.config, rig.settings, "s1", health=health
    )
    assert scheduler.enter()
    assert not rig.path.exists(), "its loop has not turned"
    scheduler.turn()
    assert rig.is_renewed("scheduler s1 is one of 1, the leader")
    scheduler.membership.renew()
    assert not rig.is_renewed("scheduler s1 is one of 1, the leader"), (
        "its loop has not turned since"
    )

    def turns() -> bool:
        scheduler.turn()
        return rig.is_renewed("scheduler s1 is one of 1, the leader")

    until(turns, "its loop turns again")
    for _ in range(20):
        scheduler.turn()
    assert not rig.is_renewed("scheduler s1 is one of 1, the leader"), (
        "its lease was not renewed since"
    )
    scheduler.leave()
    scheduler.listener.close()

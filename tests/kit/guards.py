"""A node on a real server whose lease a real guard keeps, without a worker: the test is
the worker.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parsync_redis.store import Store
from parsync_redis.worker.isolation.guarding import Guarded
from parsync_redis.worker.isolation.machine import MachineIsolation
from parsync_redis.worker.isolation.tie import RunIsolation
from parsync_redis.worker.node.lease import LeaseKeeper, Order, Report
from tests.kit.waiting import child_ended, until

LONG_S = 3600.0


class GuardedNode:
    """Node n1 of partition 0 and its guard. The test plays the agent's thread that renews."""

    def __init__(self, url: str, file: Path, standstill_s: float = LONG_S, shards: int = 1) -> None:
        self.store = Store.from_url(url, "guarded")
        self.store.keys.shards = shards
        self.store.set_timeouts(60)
        self.inc, _ = self.store.run(
            self.store.commands.register_node(0, "n1", 0, 1.0, "slots=4", 0)
        )
        self.isolation = MachineIsolation(
            lambda _: file, True, Guarded("n1", url, "guarded", 86_400, 3, standstill_s)
        )
        self.isolation.join("", shards)

    def give_sign(self, lease_s: float = LONG_S, still: str = "") -> list[Report]:
        """Give a sign of life; return what the guard has reported."""
        return self.isolation.keep(
            self.store, LeaseKeeper("n1"), Order(0, self.inc, lease_s, still)
        )

    def renewed(self, lease_s: float = LONG_S) -> RunIsolation:
        """Wait until the guard has renewed a lease of this length; return what isolates a run."""
        self.isolation.begin()
        before = self.counter
        self.give_sign(lease_s)
        until(lambda: self.counter > before, "the guard has renewed by this order")
        until(self.isolation.has_news, "it says so")
        until(
            lambda: not self.isolation.hindrance((0,)) or not self.give_sign(lease_s),
            "runs may be started",
        )
        isolation = self.isolation.of((0,))
        assert isolation is not None
        return isolation

    @property
    def counter(self) -> int:
        """Return the node's counter."""
        line: Any = self.store.client.hget(self.store.keys.partition(0, "alive"), "n1")
        return int(line.decode().split()[1].partition("=")[2])

    @property
    def state(self) -> str:
        """Return the node's state."""
        return self.store.nodes(0)["n1"].state

    @property
    def pid(self) -> int:
        """Return the process id of the guard."""
        assert self.isolation._guard is not None
        return self.isolation._guard.pid

    def give_up(self) -> None:
        """Have the server give the node up (`reclaim`), as a leader would."""
        commands = self.store.commands
        until(
            lambda: self.store.run(commands.reclaim(0, "n1", self.inc, self.counter))[0] == "down",
            "it is down",
        )

    def close(self) -> None:
        """End the guard."""
        if self.isolation._guard is not None:
            self.isolation._guard.end()
        self.store.client.close()


def forked(work: Callable[[], Any]) -> int:
    """Fork a child that does this and ends; return its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def ended_by(pid: int) -> int:
    """Return the signal that ended a child, 0 for none. A child that does not end is killed, and the test fails."""
    return os.WTERMSIG(child_ended(pid, "its guard kills it", 60))

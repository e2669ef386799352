"""A small cluster in this process, on a real server: schedulers as threads; the test plays the
nodes' agents.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from parsync_redis.errors import ServerUnfit
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Lease
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster

LEASE_S = 3.0
GAP_S = 0.1
PATIENCE_S = 60.0


class SmallCluster:
    """A cluster of one partition; `wait` and `work` renew the leases of its nodes."""

    def __init__(self, url: str, cluster: str, schedulers: int = 2) -> None:
        settings = Settings(url=url, cluster=cluster, partitions=1, lease_s=LEASE_S, gap_s=GAP_S)
        self.store = Store.from_url(url, cluster)
        config = join_cluster(self.store, settings, create=True)
        assert config is not None
        self._stop = threading.Event()
        self.incs: dict[str, int] = {}
        self.started: list[tuple[str, str]] = []
        self.schedulers = [
            Scheduler(Store.from_url(url, cluster), config, settings, f"s{n}")
            for n in range(schedulers)
        ]
        self._threads = [
            threading.Thread(target=each.run, args=(self._stop,)) for each in self.schedulers
        ]
        for thread in self._threads:
            thread.start()

    # -- agents ------------------------------------------------------------------------------------

    def node(self, name: str, slots: int) -> None:
        """Register a node."""
        call = self.store.commands.register_node(
            0, name, self.incs.get(name, 0), 1.0, Resources.of(slots).text
        )
        self.incs[name], _ = self.store.run(call)

    def renew(self) -> list[str]:
        """Renew each node's lease; return the words. A node that was given up, or forgotten, registers again."""
        words = []
        for name, inc in list(self.incs.items()):
            words.append(self.store.run(self.store.commands.renew(0, name, inc))[0])
            if words[-1] == "lapsed":
                self.node(name, 2)
        return words

    def leases(self) -> list[Lease]:
        """Return the leases of the present incarnations."""
        nodes = [node for node in self.store.nodes(0).values() if node.name in self.incs]
        return [
            lease
            for lease in self.store.leases(0, nodes)
            if lease.place.inc == self.incs[lease.place.node]
        ]

    def start(self) -> list[Place]:
        """Start what is held and was not started yet; return the places."""
        begun = []
        for x in self.leases():
            if self.store.run(self.store.commands.start([x.place]))[0][0] == "ok":
                self.started.append((x.place.task, x.place.attempt))
                begun.append(x.place)
        return begun

    def end(self, places: Sequence[Place]) -> list[str]:
        """Report these runs and free their slots; return the words of the outcomes."""
        commands = self.store.commands
        finish = commands.finish([(place, "succeeded", "") for place in places])
        return list(self.store.run_all([finish, commands.release(0, places)])[0]) if places else []

    def work(self) -> None:
        """Run one turn of all agents; a server that is away is asked again in the next turn."""
        try:
            self.renew()
            for lease in self.leases():
                if self.store.run(self.store.commands.start([lease.place]))[0][0] == "ok":
                    self.started.append((lease.place.task, lease.place.attempt))
                self.end([lease.place])
        except ServerUnfit:
            time.sleep(0.02)

    # -- the test's own ----------------------------------------------------------------------------

    def submit(self, *ids: str) -> list[str]:
        """Submit tasks; return the word of each."""
        call = self.store.commands.submit([Submission(id, "job", b"{}") for id in ids])
        return self.store.run(call)

    def wait(self, fact: Callable[[], Any], what: str, working: bool = False) -> Any:
        """Wait for a fact, while nodes renew, or also work; return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                (self.work if working else self.renew)()
                if found := fact():
                    return found
            except ServerUnfit:
                pass
            assert time.monotonic() < deadline, f"not seen: {what}"
            time.sleep(0.01)

    def done(self, ids: Sequence[str]) -> bool:
        """Return whether all have succeeded."""
        return set(self.store.states(ids)) == {"succeeded"}

    def close(self) -> None:
        """Stop the schedulers."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=180)
        self.store.client.close()

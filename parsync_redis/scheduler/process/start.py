"""Start a scheduler: wait for its server, set the cluster up if it is the first, stand by, run."""

import gc
import logging
import os
import random
import socket
import threading
import time
from typing import Any, Final, cast

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...health_file import HealthFile
from ...model.ids import check_name
from ...settings import Settings
from ...store.cluster import ClusterConfig, join_cluster
from ...store.server.server_errors import AWAY, Backoff
from ...store.server.server_info import explain_durability
from ...store.store import Store
from .lease_watch import LeaseWatch
from .loop import Scheduler

# Stand by: watch the members of a cluster, and join when there are fewer of them than there may be.

LOOKS: Final = 8
"""How often in a lease it looks, as often as members renew."""


class Standby:
    """Asks to join again and again; lua/verbs/renew_scheduler.lua decides whether there is room.

    A member that was killed is still listed. The leader removes it. If no leader lives, this
    observer does, by the same rule: it has itself watched the member's counter stand still for one
    lease.
    """

    def __init__(
        self,
        store: Store,
        config: ClusterConfig,
        name: str,
        at_most: int,
        health: HealthFile | None = None,
    ) -> None:
        self.store = store
        self.me = name
        self.at_most = at_most
        self._health = health or HealthFile()
        self._pause_s = config.lease_s / LOOKS
        self._members = LeaseWatch(config.lease_s)
        self._run_id = ""
        self._said = False

    def wait(self, stop: threading.Event) -> bool:
        """Wait until it is a member. Returns False if it was stopped before."""
        backoff = Backoff(log, f"scheduler {self.me}", self._pause_s)
        lost = ""
        while not stop.is_set():
            try:
                # nobody is judged for one lease
                if (run_id := self.store.run_id()) != self._run_id:
                    self._run_id = run_id
                    lost = ""
                    self._members.reset()
                members = self.store.run(
                    self.store.commands.renew_scheduler(self.me, lost=lost, at_most=self.at_most)
                )
                backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                self._members.reset()
                lost = ""
                stop.wait(backoff.pause_s(error))
                continue
            if self.me in members.counters:
                return True
            self._health.renew(time.monotonic(), f"scheduler {self.me} stands by")
            if not self._said:
                self._said = True
                names = ", ".join(sorted(members.counters))
                log.info(
                    "scheduler %s stands by: %s are active, and at most %d may be",
                    self.me,
                    names,
                    self.at_most,
                )
            still = cast(
                list[str],
                self._members.look(time.monotonic(), cast(dict[Any, Any], members.counters)),
            )
            lost = f"{still[0]} {members.counters[still[0]]}" if still else ""
            if lost:
                log.warning("scheduler %s stood still for a lease", still[0])
            stop.wait(0.0 if lost else self._pause_s)
        return False


log = logging.getLogger("parsync.scheduler")

SAY_S: Final = 5.0
"""How often a scheduler that waits for its server says so."""

RETRY_S: Final = 0.5
"""How often it asks for its server."""


def run(
    settings: Settings,
    name: str | None = None,
    stop: threading.Event | None = None,
    at_most: int = 0,
) -> None:
    """Run a scheduler in this process until `stop` is set; set the cluster up if it is the first.

    at_most: stand by while the cluster has so many schedulers; 0: never. While no server answers it
    waits and says so. Raises ServerUnfit, ClusterMismatch or InvalidInput before it starts; it
    survives later outages.
    """
    health = HealthFile(settings.health_file)
    store = Store.from_url(
        settings.url, settings.cluster, settings.retention_s, settings.max_starts
    )
    stop = stop or threading.Event()
    config = join_when_up(store, settings, stop)
    if config is None:
        return
    # what was imported stays: the collector, which stops all threads, need not look through it
    gc.freeze()
    name = check_name("scheduler name", name or own_name())
    try:
        while not stop.is_set():
            if at_most and not Standby(store, config, name, at_most, health).wait(stop):
                break
            Scheduler(store, config, settings, name, at_most, health=health).run(stop)
    finally:
        health.remove()


def join_when_up(store: Store, settings: Settings, stop: threading.Event) -> ClusterConfig | None:
    """Return the cluster's settings as soon as its server takes writes, None if stopped before.

    It waits for a replica as well, which becomes the primary in a failover, and for one whose
    memory is full. Raises ServerUnfit, AccessDenied or ClusterMismatch at once: no waiting repairs
    those.
    """
    said_s = float("-inf")
    while not stop.is_set():
        try:
            config = join_cluster(store, settings, create=True)
            for address, info in store.check_servers().items():
                if danger := explain_durability(info):
                    log.warning("the server at %s: %s", address, danger)
            return config
        except AWAY as error:
            if time.monotonic() - said_s >= SAY_S:
                said_s = time.monotonic()
                log.warning("%s: this scheduler waits for it", error)
        stop.wait(RETRY_S)
    return None


def own_name() -> str:
    """Return a name that no other process has: host, process, and a few random letters."""
    host = (
        "".join(c if c.isalnum() or c in "_.-" else "-" for c in socket.gethostname())[:64].strip(
            "-_."
        )
        or "host"
    )
    return f"{host}-{os.getpid()}-{random.randrange(16**4):04x}"

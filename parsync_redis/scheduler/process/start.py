"""The start of a scheduler: it waits for its server, sets the cluster up, stands by, and runs."""

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

LOOKS_PER_LEASE: Final = 8
"""Number of looks in a lease of a scheduler that stands by: as often as members renew."""


class Standby:
    """A scheduler that watches the members of a cluster, and joins when there is room.

    A standby asks to join again and again; lua/verbs/renew_scheduler.lua decides whether there is
    room. A member that was killed stays listed until the leader removes it. If no leader lives,
    this scheduler removes the member by the leader's rule: the counter stood still for a lease
    while this scheduler watched. at_most: maximum number of members.
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
        self._pause_s = config.lease_s / LOOKS_PER_LEASE
        self._members = LeaseWatch(config.lease_s)
        self._run_id = ""
        self._has_logged = False

    def wait(self, stop: threading.Event) -> bool:
        """Wait until this scheduler is a member. Returns False if `stop` was set before."""
        backoff = Backoff(log, f"scheduler {self.me}", self._pause_s)
        lost = ""
        while not stop.is_set():
            try:
                # another server: nobody is judged for one lease
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
            if not self._has_logged:
                self._has_logged = True
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

SAY_EVERY_S: Final = 5.0
"""Interval at which a scheduler that waits for its server logs that, in seconds."""

RETRY_S: Final = 0.5
"""Pause between two attempts to reach the server."""


def run(
    settings: Settings,
    name: str | None = None,
    stop: threading.Event | None = None,
    at_most: int = 0,
) -> None:
    """Run a scheduler in this process until `stop` is set; set the cluster up if it is the first.

    While no server answers, it waits and logs that. Raises ServerUnfit, ClusterMismatch or
    InvalidInput before it starts; it survives later outages. at_most: the scheduler stands by while
    the cluster has so many schedulers; 0 for never.
    """
    health = HealthFile(settings.health_file)
    store = Store.from_url(
        settings.url, settings.cluster, settings.retention_s, settings.max_starts
    )
    stop = stop or threading.Event()
    config = join_when_up(store, settings, stop)
    if config is None:
        return
    # imported modules stay, so the garbage collector, which stops all threads, may pass them over
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
    """Return the cluster's settings as soon as its server takes writes; None if stopped before.

    The function waits too for a replica, which a failover makes the primary, and for a server whose
    memory is full. Raises ServerUnfit, AccessDenied or ClusterMismatch at once, because waiting
    repairs none of these.
    """
    logged_s = float("-inf")
    while not stop.is_set():
        try:
            config = join_cluster(store, settings, create=True)
            for address, info in store.check_servers().items():
                if danger := explain_durability(info):
                    log.warning("the server at %s: %s", address, danger)
            return config
        except AWAY as error:
            if time.monotonic() - logged_s >= SAY_EVERY_S:
                logged_s = time.monotonic()
                log.warning("%s: this scheduler waits for it", error)
        stop.wait(RETRY_S)
    return None


def own_name() -> str:
    """Return a name that no other process has: host, process, and random letters."""
    letters = (c if c.isalnum() or c in "_.-" else "-" for c in socket.gethostname())
    host = "".join(letters)[:64].strip("-_.") or "host"
    return f"{host}-{os.getpid()}-{random.randrange(16**4):04x}"

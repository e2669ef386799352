"""Start a scheduler: wait for its server, set the cluster up if it is the first, stand by, run."""

import gc
import logging
import os
import random
import socket
import threading
import time
from typing import Final

from ..health_file import HealthFile
from ..model.ids import check_name
from ..settings import Settings
from ..store.cluster import ClusterConfig, join_cluster
from ..store.server_errors import AWAY
from ..store.server_info import explain_durability
from ..store.store import Store
from .loop import Scheduler
from .standby import Standby

log = logging.getLogger("parsync.scheduler")

SAY_S: Final = 5.0
"""How often a scheduler that waits for its server says so."""

RETRY_S: Final = 0.5
"""How often it asks for its server."""


def run(settings: Settings, name: str | None = None, stop: threading.Event | None = None, at_most: int = 0) -> None:
    """Run a scheduler in this process until `stop` is set; set the cluster up if it is the first.

    at_most: stand by while the cluster has so many schedulers; 0: never. While no server answers it waits and says so.
    Raises ServerUnfit, ClusterMismatch or InvalidInput before it starts; it survives later outages.
    """
    health = HealthFile(settings.health_file)
    store = Store.from_url(settings.url, settings.cluster, settings.retention_s, settings.max_starts)
    stop = stop or threading.Event()
    config = join_when_up(store, settings, stop)
    if config is None:
        return
    gc.freeze()  # what was imported stays: the collector, which stops all threads, need not look through it
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

    It waits for a replica as well, which becomes the primary in a failover, and for one whose memory is full. Raises
    ServerUnfit, AccessDenied or ClusterMismatch at once: no waiting repairs those.
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
    host = "".join(c if c.isalnum() or c in "_.-" else "-" for c in socket.gethostname())[:64].strip("-_.") or "host"
    return f"{host}-{os.getpid()}-{random.randrange(16**4):04x}"

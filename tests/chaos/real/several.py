"""The stack on several servers: three primaries with a replica each, and Celery's broker on a
server of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import redis

from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from parsync_redis.store.server.slot_map import SlotMap, slot_of
from parsync_redis.store.store import Store
from parsync_redis.wire.keys import DEFAULT_SHARDS_OF_SEVERAL

from .proxy import Line
from .stack import Spec, Stack

PRIMARIES: Final = 3
NAME: Final = "chaos0"
"""A name of which each of the three primaries has two of six partitions."""

FAILS_OVER: Final = {"cluster-node-timeout": 1000}
"""A replica takes over from a primary that is silent for a second."""

NODES: Final = tuple(Spec(f"n{i}", "threads", 3) for i in range(1, 7))


@dataclass(slots=True)
class SeveralStack(Stack):
    """All processes.

    There are no lines: a cluster tells its clients the addresses of its servers.
    """

    workers: tuple[Spec, ...] = NODES
    cluster: str = NAME
    partitions: int = 6
    shards: int = DEFAULT_SHARDS_OF_SEVERAL
    lease_s: float = 4.0
    program: str | None = None
    several: EmbeddedCluster = field(init=False)
    broker: EmbeddedServer = field(init=False)

    def serve(self) -> None:
        """Start the servers."""
        self.several = EmbeddedCluster(PRIMARIES, 1, self.program, aof=True, options=FAILS_OVER)
        self.broker = EmbeddedServer()

    def line(self, seed: int) -> Line | None:
        """Return None."""
        return None

    def url_by(self, line: Line | None) -> str:
        """Return the address of the cluster."""
        return self.several.url

    def addresses(self, line: Line | None) -> dict[str, str]:
        """Return the environment that tells a process where its servers are."""
        return {
            "PARSYNC_URL": self.several.url,
            "CHAOS_BROKER": self.broker.url,
            "PARSYNC_SHARDS": str(self.shards),
        }

    def store(self) -> Store:
        """Return a store on the cluster that knows its shards."""
        store = Store.from_url(self.several.url, self.cluster)
        store.config()
        return store

    def client_of(self, key: str) -> redis.Redis:
        """Return a client of the primary that has a key. Raises ServerUnreachable without one."""
        return self.several.client(self.several.primary_of(key))

    def end_servers(self) -> None:
        """End the servers."""
        self.several.stop()
        self.broker.stop()

    def owners(self, told_by: EmbeddedServer) -> SlotMap:
        """Return which primary has which slot, as a server tells."""
        with self.several.client(told_by) as client:
            return SlotMap.of(client.execute_command("CLUSTER SLOTS"), "127.0.0.1")

    def of_server(
        self, server: EmbeddedServer, store: Store
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Return the shards and the partitions that a server has now."""
        keys = store.keys
        owners = self.owners(server)
        me = f"127.0.0.1:{server.port}"
        shards = [
            shard
            for shard in range(keys.shards)
            if owners.owner(slot_of(keys.queue("meta", shard))) == me
        ]
        partitions = [
            p
            for p in range(self.partitions)
            if owners.owner(slot_of(keys.partition(p, "meta"))) == me
        ]
        return frozenset(shards), frozenset(partitions)

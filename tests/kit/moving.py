"""Move a slot from one primary to another, as redis-cli does: key by key, or all at once where the
server can.
"""

import time
from typing import Any

from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from parsync_redis.store.server.slot_map import slot_of


def other_primaries(cluster: EmbeddedCluster, server: EmbeddedServer) -> list[EmbeddedServer]:
    """Return the servers that are primaries now, without one of them."""
    roles: list[Any] = []
    for each in cluster.servers:
        with cluster.client(each) as client:
            roles.append(client.info("replication")["role"])
    return [
        each
        for each, role in zip(cluster.servers, roles, strict=True)
        if role == "master" and each is not server
    ]


class Move:
    """A slot that moves key by key: `begin`, `carry`, `end`. key: one of the slot."""

    def __init__(
        self, cluster: EmbeddedCluster, key: str, target: EmbeddedServer | None = None
    ) -> None:
        self.cluster = cluster
        self.slot = slot_of(key)
        self.source = cluster.primary_of(key)
        self.target = target or other_primaries(cluster, self.source)[0]

    def begin(self) -> None:
        """Say at both ends that the slot moves."""
        source = self.cluster.id_of(self.source)
        target = self.cluster.id_of(self.target)
        self._set(self.target, "IMPORTING", source)
        self._set(self.source, "MIGRATING", target)

    def carry(self, most: int = 10**6) -> int:
        """Move some keys; return how many."""
        with self.cluster.client(self.source) as client:
            keys: Any = client.execute_command("CLUSTER GETKEYSINSLOT", self.slot, most)
            if keys:
                client.execute_command(
                    "MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys
                )
            return len(keys)

    def end(self) -> None:
        """Give the slot to the target, which has all keys."""
        new = self.cluster.id_of(self.target)
        for server in (self.target, self.source):
            self._set(server, "NODE", new)
        for server in other_primaries(self.cluster, self.target):
            self._set(server, "NODE", new)

    def whole(self) -> None:
        """Move the slot."""
        self.begin()
        while self.carry(1):
            pass
        self.end()

    def _set(self, server: EmbeddedServer, *words: str) -> None:
        with self.cluster.client(server) as client:
            client.execute_command("CLUSTER SETSLOT", self.slot, *words)

    # -- all at once -------------------------------------------------------------------------------

    def at_once(self) -> None:
        """Move the slot with the server's own migration (Valkey 9), and wait until it is over."""
        target = self.cluster.id_of(self.target)
        with self.cluster.client(self.source) as client:
            client.execute_command(
                "CLUSTER MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", target
            )
            deadline_s = time.monotonic() + 180
            while self.cluster.primary_of_slot(self.slot) is not self.target:
                assert time.monotonic() < deadline_s, client.execute_command(
                    "CLUSTER GETSLOTMIGRATIONS"
                )
                time.sleep(0.01)


def can_move_at_once(cluster: EmbeddedCluster) -> bool:
    """Return whether the servers move slots all at once."""
    with cluster.client(cluster.servers[0]) as client:
        version = str(client.info("server").get("valkey_version", "0"))
    return int(version.partition(".")[0]) >= 9

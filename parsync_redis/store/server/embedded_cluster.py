"""An embedded Redis Cluster on free ports of 127.0.0.1, for tests, benches and trials."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import redis
from redis.exceptions import RedisError

from ...errors import ServerUnreachable
from .embedded import EmbeddedServer
from .slot_map import HASH_SLOTS, slot_of

_FORM_S: Final = 30.0
"""Seconds that the servers have to form the cluster."""

_MEET_S: Final = 2.0
"""Seconds between two introductions of servers that do not know each other yet."""

NODE_TIMEOUT_MS: Final = 15_000
"""Time after which the cluster takes a silent server for dead.

On a busy machine a live server can be silent for seconds.
"""

_OPTIONS: Final = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": NODE_TIMEOUT_MS,
    # otherwise all primaries refuse requests while one is away
    "cluster-require-full-coverage": "no",
    "cluster-replica-validity-factor": 0,
    "repl-diskless-sync-delay": 0,
}


class EmbeddedCluster:
    """A cluster of servers; `stop` ends the servers and removes their folders.

    servers: the primaries, then the replicas. Replica R * PRIMARIES + N follows primary N.

    replicas: the number of replicas of each primary.
    options: further options of every server.
    launchers: for each server, the words before its program.
    """

    def __init__(
        self,
        primaries: int = 3,
        replicas: int = 0,
        program: str | None = None,
        aof: bool = False,
        options: Mapping[str, object] | None = None,
        launchers: Sequence[Sequence[str]] = (),
    ) -> None:
        self.primaries = primaries
        self.servers = list[EmbeddedServer]()
        try:
            server_options = {**_OPTIONS, **(options or {})}
            count = primaries * (1 + replicas)
            for _, launcher in zip(range(count), launchers or [()] * count, strict=True):
                self.servers.append(
                    EmbeddedServer(program, aof=aof, options=server_options, launcher=launcher)
                )
            self._form()
        except BaseException:
            self.stop()
            raise
        self.url = "redis+cluster://" + ",".join(
            f"127.0.0.1:{server.port}" for server in self.servers[:primaries]
        )

    def _form(self) -> None:
        """Give slots to the primaries, introduce the servers to each other, start the replicas."""
        count = self.primaries
        for n, server in enumerate(self.servers):
            self._ask(server, "CLUSTER SET-CONFIG-EPOCH", n + 1)
            if n < count:
                self._ask(
                    server,
                    "CLUSTER ADDSLOTSRANGE",
                    n * HASH_SLOTS // count,
                    (n + 1) * HASH_SLOTS // count - 1,
                )
        self._introduce()
        ids = [self.id_of(server) for server in self.servers]
        for n, server in enumerate(self.servers[count:]):
            self._ask(server, "CLUSTER REPLICATE", ids[n % count])
        self.wait_until_well()

    def _introduce(self) -> None:
        """Introduce the servers to each other, until every server knows all servers.

        A slow server gives up a handshake, so one introduction is not enough.
        """
        first = self.servers[0]
        asked_s = -math.inf

        def knows_all(server: EmbeddedServer) -> bool:
            nonlocal asked_s
            nodes = self.nodes(server)
            if len(nodes) == len(self.servers) and not any(
                "handshake" in flags for flags in nodes.values()
            ):
                return True
            if asked_s < time.monotonic() - _MEET_S:
                asked_s = time.monotonic()
                for peer in self.servers[1:]:
                    self._ask(first, "CLUSTER MEET", "127.0.0.1", peer.port, peer.bus)
            return False

        self.wait(knows_all)

    def wait_until_well(self) -> None:
        """Wait until every server serves and every replica follows its primary.

        Raises ServerUnreachable if that takes too long.
        """
        self.wait(self._is_well)

    def _is_well(self, server: EmbeddedServer) -> bool:
        with self.client(server) as client:
            state: Any = client.execute_command("CLUSTER INFO")
            info: Any = client.info("replication")
        nodes = self.nodes(server)
        return (
            state["cluster_state"] == "ok"
            and int(state["cluster_slots_ok"]) == HASH_SLOTS
            and len(nodes) == len(self.servers)
            and sum("master" in flags for flags in nodes.values()) == self.primaries
            and not any("fail" in flags or "fail?" in flags for flags in nodes.values())
            and info.get("master_link_status", "up") == "up"
        )

    def wait(self, is_so: Callable[[EmbeddedServer], bool]) -> None:
        """Wait until `is_so` holds for each server.

        Raises ServerUnreachable if that takes too long.
        """
        deadline_s = time.monotonic() + _FORM_S
        for server in self.servers:
            while not is_so(server):
                if time.monotonic() > deadline_s:
                    raise ServerUnreachable(f"the cluster did not form: {self.nodes(server)}")
                time.sleep(0.02)

    # -- asking ------------------------------------------------------------------------------------

    @staticmethod
    def client(server: EmbeddedServer) -> "redis.Redis":
        """Return a client of one of the servers."""
        return redis.Redis(port=server.port, socket_timeout=10)

    def _ask(self, server: EmbeddedServer, *words: str | int) -> Any:
        with self.client(server) as client:
            return client.execute_command(*words)

    def id_of(self, server: EmbeddedServer) -> str:
        """Return the id by which the cluster knows a server."""
        return cast(bytes, self._ask(server, "CLUSTER MYID")).decode()

    def nodes(self, server: EmbeddedServer) -> dict[str, list[str]]:
        """Return the flags of each server that `server` knows, by id."""
        with self.client(server) as client:
            nodes: Any = client.execute_command("CLUSTER NODES")
        return {flags["node_id"]: flags["flags"].split(",") for flags in nodes.values()}

    def primary_of(self, key: str) -> EmbeddedServer:
        """Return the server that has a key now, by the majority of the servers that answer.

        Raises ServerUnreachable if no server has the key's slot.
        """
        return self.primary_of_slot(slot_of(key))

    def primary_of_slot(self, slot: int) -> EmbeddedServer:
        """Return the server that has a slot now, see `primary_of`."""
        ports: list[int] = []
        for server in self.servers:
            try:
                with self.client(server) as client:
                    ranges: Any = client.execute_command("CLUSTER SLOTS")
            except RedisError:
                continue
            ports += [int(place[1]) for first, last, place, *_ in ranges if first <= slot <= last]
        if not ports:
            raise ServerUnreachable(f"no server has slot {slot}")
        port = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == port)

    # -- ending ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the servers and remove their folders."""
        for server in self.servers:
            server.stop()

    def __enter__(self) -> "EmbeddedCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

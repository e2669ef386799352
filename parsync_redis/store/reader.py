"""Read with plain commands, on one server or on all primaries of a cluster.

Errors are those of errors.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha1
from typing import Any, Final, cast

import redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from ..errors import ParsyncError, ServerUnreachable
from ..model.ids import readable
from .server.connection import address_of, disconnect, set_timeouts
from .server.primaries import away
from .server.redis_cluster import ClusterClient
from .server.server_errors import Fault, no_writes, translate
from .server.slot_map import slot_of

PROBE: Final = "#!lua\nreturn 1"
"""A script that does nothing, but does not declare that it only reads.

A server that takes no writes refuses such a script, so PROBE tells whether a server takes writes.
Every login may run PROBE, because it names no key. Processes that load the scripts load PROBE too.
"""

_PROBE_SHA: Final = sha1(PROBE.encode()).hexdigest()


class Reader:
    """Plain commands on a server, or on a cluster by the primary of each command's key."""

    def __init__(self, client: "redis.Redis") -> None:
        self.client = client

    @property
    def address(self) -> str:
        """The address of the server, without its password."""
        return address_of(self.client)

    def read(self, command: str, *args: Any) -> Any:
        """Run one plain command, by the name of redis-py's method. Raises errors of errors.py."""
        try:
            return getattr(self.client, command)(*args)
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def pipe(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run plain commands in one round trip, and return the replies.

        commands: (redis-py method, arguments...). Raises the first error, one of errors.py.
        """
        try:
            with self.client.pipeline(transaction=False) as batch:
                for command, *args in commands:
                    getattr(batch, command)(*args)
                return batch.execute()
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def pipe_each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run plain commands as `pipe` does; the error of a failed command stands in for its reply.

        On one server only error replies are returned: if the server does not answer, pipe_each
        raises what `pipe` raises.
        """
        try:
            with self.client.pipeline(transaction=False) as batch:
                for command, *args in commands:
                    getattr(batch, command)(*args)
                return batch.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            raise translate(self.address, error) from None

    def hash(self, key: str) -> dict[str, str]:
        """Return a small hash as text; bytes that are not UTF-8 are escaped."""
        return {
            readable(k): readable(v)
            for k, v in cast(Mapping[bytes, bytes], self.read("hgetall", key)).items()
        }

    def why_no_writes(self) -> dict[str, Fault]:
        """Return the fault of each server that takes no writes, by the server's address.

        A process that renews nothing may be alive and unable to write. So ask this before you
        conclude from its silence that it is dead. Costs one round trip per server. Of several
        servers, a server that does not answer is passed over.
        """
        faults: dict[str, Fault] = {}
        for address, server in self.servers().items():
            try:
                if server is not None and (fault := server._why_no_writes()):
                    faults[address] = fault
            except ServerUnreachable:
                if not self.several:
                    raise
        return faults

    def _why_no_writes(self) -> Fault | None:
        ask = ("evalsha", _PROBE_SHA, 0)
        reply = self.pipe_each([ask])[0]
        if isinstance(reply, NoScriptError):
            reply = self.pipe_each([("execute_command", "SCRIPT LOAD", PROBE), ask])[1]
        primary = ""
        if isinstance(reply, ReadOnlyError):
            replication = self.read("info", "replication")
            if "master_host" in replication:  # missing if the replica was promoted meanwhile
                primary = f"{replication['master_host']}:{replication['master_port']}"
        return no_writes(self.address, reply, primary)

    # -- servers -----------------------------------------------------------------------------------

    @property
    def several(self) -> bool:
        """True on a cluster, where one primary may be away while other primaries serve."""
        return isinstance(self.client, ClusterClient)

    def servers(self, also: Iterable[str] = ()) -> "dict[str, Reader | None]":
        """Return a reader of each server that has keys, by address; None for a server that is away.

        also: addresses of further servers that have keys, which the map of slots may lack at
        present.
        """
        if not isinstance(self.client, ClusterClient):
            return {self.address: self}
        return {
            place: None if client is None else Reader(client)
            for place, client in self.client.servers.all(also).items()
        }

    def ask_servers(
        self, commands: Sequence[tuple[Any, ...]], also: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Run plain commands on each server: address -> replies as of `pipe`, or a ParsyncError.

        also: see `servers`.
        """
        replies_by_address: dict[str, Any] = {}
        for address, server in self.servers(also).items():
            try:
                replies_by_address[address] = (
                    away(address) if server is None else server.pipe(commands)
                )
            except ParsyncError as error:
                replies_by_address[address] = error
        return replies_by_address

    def place_of(self, key: str) -> str:
        """Return the address of the server that has a key, '' if no server is known to have it."""
        return (
            self.client.servers.slots.owner(slot_of(key))
            if isinstance(self.client, ClusterClient)
            else self.address
        )

    def is_away(self, key: str) -> bool:
        """Return True if the server that has a key is known to be away."""
        return isinstance(self.client, ClusterClient) and self.client.servers.is_away(
            self.place_of(key)
        )

    def pool_of(self, key: str) -> Any:
        """Return the connection pool to the server that has a key now.

        Raises ServerUnreachable if that server is away.
        """
        pools = self.pools_of([key], anew=True)
        if key not in pools:
            raise ServerUnreachable(f"the server at {self.address} that has {key} is away")
        return pools[key]

    def pools_of(self, keys: Iterable[str], anew: bool = False) -> dict[str, Any]:
        """Return the connection pool to the server of each key; leave out servers that are away.

        anew: ask first which server has which key, because something has changed. Raises
        ServerUnreachable if no server tells that.
        """
        if isinstance(self.client, ClusterClient):
            return self.client.pools_of(keys, anew)
        return dict.fromkeys(keys, self.client.connection_pool)

    def set_timeouts(self, timeout_s: float) -> None:
        """Change the time-outs of new and existing connections, in seconds."""
        set_timeouts(self.client, timeout_s)

    def disconnect(self) -> None:
        """Close all connections."""
        disconnect(self.client)

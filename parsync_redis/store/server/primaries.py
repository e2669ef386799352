"""The primaries of a Redis Cluster: the map of slots, connection pools, primaries that are away.

A primary that does not answer is *away*. A request to such a primary fails at once, so no caller
waits for the primary twice. A thread asks the primary again, until it serves or the cluster gives
its slots to another primary. There are no locks, because a fork could copy a locked lock: the
values that are read here are replaced as a whole.
"""

import random
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import redis
from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...errors import ParsyncError, ServerUnfit, ServerUnreachable
from .server_errors import growing, translate
from .slot_map import SlotMap

_MAPS_COMPARED: Final = 2
"""Number of servers that are asked for the map of slots; the newest map counts."""

LOOK_PAUSES_S: Final = (0.02, 0.5)
"""The first and the longest pause between looks at primaries that are away, in seconds."""

SEND_PIECE_BYTES: Final = 1 << 16
"""Bytes that are sent at a time: the connection's time-out holds for each piece."""

Group = Sequence[tuple[int, bytes]]
"""Requests for one primary: the packed words, and for each the position of its reply (-1: drop it).
"""


def away(address: str) -> ServerUnreachable:
    """Return the error of a request to a primary that is known to be away."""
    return ServerUnreachable(f"the server at {address} is away: it is asked again every second")


class NotSent(ServerUnreachable):
    """A request that was certainly not executed: its primary is unreachable, or not ready."""


class Primaries:
    """The primaries of one cluster, as a process sees them.

    seeds: the addresses ('HOST:PORT') that are asked first.
    options: options of redis.Redis.
    slots: the map of slots as another Primaries has it.
    """

    sleep: "ClassVar[staticmethod[[float], None]]" = staticmethod(time.sleep)

    def __init__(
        self, seeds: Sequence[str], options: Mapping[str, Any], slots: SlotMap | None = None
    ) -> None:
        self.seeds = tuple(seeds)
        self.options = dict(options)
        self.slots = slots or SlotMap()
        self.timeout_s = float(options.get("socket_timeout") or 5.0)
        self._clients: dict[str, redis.Redis] = {}
        self._away: dict[str, None] = {}
        self._watcher: threading.Thread | None = None

    def client(self, address: str) -> "redis.Redis":
        """Return the client of one server; its pool serves all requests to that server."""
        return self._clients.get(address) or self._clients.setdefault(
            address, self._new_client(address)
        )

    def _new_client(self, address: str, **overrides: Any) -> "redis.Redis":
        host, _, port = address.rpartition(":")
        return redis.Redis(host=host, port=int(port), **{**self.options, **overrides})

    def all(self, also: Iterable[str] = ()) -> "dict[str, redis.Redis | None]":
        """Return a client of each primary by a new map, None for a primary that is away.

        also: addresses of further servers.

        Raises what `discover` raises.
        """
        self.discover()
        places = dict.fromkeys([*self.slots.primaries, *also])
        return {place: None if place in self._away else self.client(place) for place in places}

    def live(self) -> list[str]:
        """Return the addresses of the primaries that are not away."""
        return [address for address in self.slots.primaries if address not in self._away]

    def is_away(self, address: str) -> bool:
        """Return True if requests to this primary fail at once."""
        return address in self._away

    def close(self) -> None:
        """Close all connections; the next request opens new connections."""
        clients = self._clients
        self._clients = {}
        self._away = {}
        for client in clients.values():
            client.connection_pool.disconnect()

    def set_timeouts(self, timeout_s: float) -> None:
        """Change the time-outs and close all connections."""
        self.options.update(socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        self.timeout_s = timeout_s
        self.close()

    @property
    def short_s(self) -> float:
        """Seconds that a server has to answer a probe, or to answer after another server."""
        return min(self.timeout_s, max(1.0, self.timeout_s / 5))

    # -- the map -----------------------------------------------------------------------------------

    def discover(self) -> None:
        """Read the map of slots anew.

        Raises ServerUnreachable, ServerUnfit or AccessDenied if no server tells the map.
        """
        live_servers = [
            address for address in dict.fromkeys(self.slots.servers) if address not in self._away
        ]
        random.shuffle(live_servers)
        maps: list[tuple[bool, int, SlotMap]] = []
        trouble: Exception | None = None
        for address in dict.fromkeys([*live_servers, *self.seeds]):
            try:
                maps.append(self._read_map(address))
            except ResponseError as error:
                trouble = ServerUnfit(
                    f"the server at {address} is of no cluster ({error}): its address is redis://"
                )
            except (RedisError, OSError) as error:
                trouble = translate(address, error)
            if len(maps) == _MAPS_COMPARED:
                break
        if not maps:
            raise trouble or ServerUnreachable(
                f"no server of the cluster at {','.join(self.seeds)} answers"
            )
        # A server that is cut off from the cluster has an old map, of a smaller epoch.
        self.slots = max(maps, key=lambda slot_map: slot_map[:2])[2]

    def _read_map(self, address: str) -> tuple[bool, int, SlotMap]:
        """Return whether a server's map has primaries, the map's epoch, and the map."""
        with self._probe(address) as client, client.pipeline(transaction=False) as pipe:
            ranges, info = (
                pipe.execute_command("CLUSTER SLOTS").execute_command("CLUSTER INFO").execute()
            )
        slots = SlotMap.of(ranges, address.rpartition(":")[0])
        return bool(slots.primaries), int(info.get("cluster_current_epoch", 0)), slots

    def _probe(self, address: str) -> "redis.Redis":
        return self._new_client(
            address, socket_timeout=self.short_s, socket_connect_timeout=self.short_s
        )

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, groups: Mapping[str, Group], replies: list[Any], impatient: bool = False) -> None:
        """Send each primary its requests in one write, then read all replies: one round trip.

        replies: the list into which each reply is put, at the position that the group names. An
            error reply is put there too; a primary that fails gives a ParsyncError.
        impatient: after the first primary has answered, wait only `short_s` for the other
            primaries.
        """
        unread: dict[str, tuple[Any, Any]] = {}  # a pool and its connection
        try:
            for address, group in groups.items():
                self._send(address, group, replies, unread)
            until_s = time.monotonic() + self.short_s if impatient and len(unread) > 1 else None
            for address, (pool, connection) in [*unread.items()]:
                if self._read(address, connection, groups[address], replies, until_s):
                    pool.release(connection)
                    del unread[address]
        finally:
            # An unread reply must not answer the next request.
            for pool, connection in unread.values():
                connection.disconnect()
                pool.release(connection)

    def _send(
        self, address: str, group: Group, replies: list[Any], unread: dict[str, tuple[Any, Any]]
    ) -> None:
        if address in self._away:
            self._start_watch()  # In a forked process the thread is missing.
            _fill(replies, group, away(address))
            return
        pool: Any = self.client(address).connection_pool
        try:
            connection = pool.get_connection()
        except (RedisError, OSError) as error:
            _fill(replies, group, self._failed(address, error, sent=False))
            return
        try:
            data = b"".join([packed for _, packed in group])
            connection.send_packed_command(
                [
                    data[start : start + SEND_PIECE_BYTES]
                    for start in range(0, len(data), SEND_PIECE_BYTES)
                ]
            )
        except (RedisError, OSError) as error:
            _fill(replies, group, self._failed(address, error))
            connection.disconnect()
            pool.release(connection)
        else:
            unread[address] = pool, connection

    def _read(
        self, address: str, connection: Any, group: Group, replies: list[Any], until_s: float | None
    ) -> bool:
        """Read the replies of one primary; return False if its connection is of no further use."""
        if until_s is not None and not self._limit(
            connection, max(0.01, until_s - time.monotonic())
        ):
            _fill(
                replies,
                group,
                self._failed(address, LostConnection("another thread closed the connection")),
            )
            return False
        for position, (number, _) in enumerate(group):
            try:
                reply = connection.read_response()
            except ResponseError as error:
                reply = error
            except (RedisError, OSError) as error:
                _fill(replies, group[position:], self._failed(address, error))
                return False
            if number >= 0:
                replies[number] = reply
        return until_s is None or self._limit(connection, None)

    def _limit(self, connection: Any, timeout_s: float | None) -> bool:
        """Set the time-out of a connection, None for the usual; return False if it is closed."""
        try:
            connection._sock.settimeout(
                connection.socket_timeout if timeout_s is None else timeout_s
            )
        except (AttributeError, OSError):
            return False
        return True

    def _failed(self, address: str, error: Exception, sent: bool = True) -> Exception:
        """Return the error for requests that a primary has not answered; record that it is away."""
        failure = translate(address, error)
        if not isinstance(failure, ServerUnreachable):
            return failure
        if sent and not isinstance(error, BusyLoadingError | RedisTimeoutError):
            return (
                failure  # a connection was lost: the next one will show whether the server is away
            )
        self._away[address] = None
        self._start_watch()
        return failure if isinstance(error, RedisTimeoutError) and sent else NotSent(str(failure))

    # -- primaries that are away -------------------------------------------------------------------

    def _start_watch(self) -> None:
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(
                target=_watch, args=(weakref.ref(self),), name="parsync-cluster", daemon=True
            )
            self._watcher.start()

    def look(self) -> bool:
        """Forget that primaries are away if they serve again or were replaced.

        Returns False if no primary is away any more.
        """
        try:
            self.discover()
        except ParsyncError:
            return bool(self._away)
        for address in [*self._away]:
            if address not in self.slots.primaries or self._serves(address):
                self._away.pop(address, None)
        return bool(self._away)

    def _serves(self, address: str) -> bool:
        try:
            with self._probe(address) as client:
                return bool(client.ping())
        except (RedisError, OSError):
            return False


def _watch(reference: "weakref.ref[Primaries]") -> None:
    """Look for primaries that serve again, until none is away or the cluster is unused."""
    for pause_s in growing(*LOOK_PAUSES_S):
        primaries = reference()
        if primaries is None or not primaries.look():
            return
        del primaries
        time.sleep(pause_s)


def _fill(replies: list[Any], group: Group, error: Exception) -> None:
    for number, _ in group:
        if number >= 0:
            replies[number] = error

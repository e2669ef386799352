"""A client of a Redis Cluster with the interface of redis-py's client of one server.

Each command goes to the primary of its key. redis-py's own RedisCluster refuses EVALSHA in
pipelines, and asks one primary after the other.

A slot may be moved while requests come. MOVED and ASK name another primary. TRYAGAIN says that the
slot's keys are on two primaries. After each of these replies the request is sent again, because
nothing was executed. After an error that a failover explains (CLUSTERDOWN, READONLY, no connection)
the map of slots is read again. The request is sent again if another primary has the slot now.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import hiredis
import redis
from redis.client import EMPTY_RESPONSE, NEVER_DECODE, Pipeline
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from ...errors import ParsyncError
from ...model.ids import readable
from .primaries import NotSent, Primaries, away
from .server_errors import refusal
from .server_info import ServerRun
from .slot_map import key_of, slot_of

_NOT_EXECUTED: Final = (AskError, ClusterDownError, TryAgainError)
"""Error replies to requests that the cluster does not execute now; MovedError is an AskError."""

_FAILED_OVER: Final = (NotSent, ClusterDownError, ReadOnlyError)
"""Errors that a failover explains: another primary may have the slot by now."""

_FIRST_MOVE_PAUSE_S = 0.002
_LONGEST_MOVE_PAUSE_S = 0.05
"""Pauses before a request is sent again because its slot is being moved."""

_ASKING: Final = (-1, b"*1\r\n$6\r\nASKING\r\n")

_EVERYWHERE: Final = ("FLUSHALL", "SCRIPT", "CONFIG")
"""Commands for a whole server: each primary runs them, and the first reply is returned."""

Command = tuple[tuple[Any, ...], dict[str, Any]]
Packed = tuple[str | bytes | None, bytes]
"""A request: one of its keys (None if any primary may answer), and its words as they are sent."""


class ClusterClient(redis.Redis):
    """redis-py's client, for a cluster; `exchange` sends the requests of all methods and pipelines.

    A command without a key goes to any primary, and a command for a whole server to each. Raises
    errors of errors.py where a primary does not answer.
    """

    def __init__(self, primaries: Primaries) -> None:
        super().__init__(connection_pool=primaries.client(primaries.seeds[0]).connection_pool)
        self.servers = primaries

    def with_own_connections(self) -> "ClusterClient":
        """Return a client of the same cluster, with connections of its own."""
        servers = self.servers
        return ClusterClient(type(servers)(servers.seeds, servers.options, servers.slots))

    # -- requests ----------------------------------------------------------------------------------

    def exchange(
        self, requests: Sequence[Packed], patience_s: float | None = None, impatient: bool = False
    ) -> list[Any]:
        """Send requests to all primaries at once, and return the replies in order.

        A reply may be a ResponseError or, for a primary that fails, a ParsyncError.

        patience_s: how long requests are repeated while their slots are moved; by default the
            time-out of a connection.
        impatient: see Primaries.ask.
        """
        try:
            if not self.servers.slots.primaries:
                self.servers.discover()
        except ParsyncError as error:
            return [error] * len(requests)
        replies: list[Any] = [None] * len(requests)
        slots = [-1 if key is None else slot_of(key) for key, _ in requests]
        redirected: dict[int, str] = {}
        todo: Sequence[int] = range(len(requests))
        give_up_s = time.monotonic() + (
            self.servers.timeout_s if patience_s is None else patience_s
        )
        pause_s = 0.0
        rediscovered = False
        while True:
            groups: dict[str, list[tuple[int, bytes]]] = {}
            sent_to = {i: redirected.get(i) or self._owner(slots[i]) for i in todo}
            for i, address in sent_to.items():
                if not address:
                    replies[i] = NotSent(
                        f"no server of the cluster at {self.address} has the slot {slots[i]} now"
                    )
                    continue
                group = groups.setdefault(address, [])
                if i in redirected:
                    group.append(_ASKING)
                group.append((i, requests[i][1]))
            self.servers.ask(groups, replies, impatient)
            to_repeat = self._judge(sent_to, slots, replies, redirected)
            failed_over = [i for i in sent_to if isinstance(replies[i], _FAILED_OVER)]
            if failed_over and not rediscovered:
                rediscovered = True
                self._rediscover()
            to_repeat += [i for i in failed_over if self._owner(slots[i]) not in ("", sent_to[i])]
            if not to_repeat or time.monotonic() >= give_up_s:
                return [self._final(reply) for reply in replies]
            if pause_s or any(isinstance(replies[i], TryAgainError) for i in to_repeat):
                self.servers.sleep(random.uniform(0.5, 1.0) * pause_s)
                pause_s = min(_LONGEST_MOVE_PAUSE_S, 2 * pause_s)
            pause_s = pause_s or _FIRST_MOVE_PAUSE_S
            todo = sorted(to_repeat)

    def _final(self, reply: Any) -> Any:
        """Return a reply, or the error that it means if the request was never executed."""
        if isinstance(reply, _NOT_EXECUTED):
            return refusal(self.address, reply) or reply
        return reply

    def _judge(
        self,
        sent_to: dict[int, str],
        slots: Sequence[int],
        replies: list[Any],
        redirected: dict[int, str],
    ) -> list[int]:
        """Return the requests that were not executed because their slots are moved.

        redirected: the mapping to which the next address of each such request is added.
        """
        moved = []
        for i, address in sent_to.items():
            reply = replies[i]
            if not isinstance(reply, AskError | TryAgainError):
                continue
            moved.append(i)
            redirected.pop(i, None)
            if isinstance(reply, AskError):
                new_owner = f"{reply.host or address.rpartition(':')[0]}:{reply.port}"
                if isinstance(reply, MovedError):
                    self.servers.slots.move(slots[i], new_owner)
                else:
                    redirected[i] = new_owner
        return moved

    def _owner(self, slot: int) -> str:
        """Return the primary of a slot; for slot -1 any primary that is not away."""
        if slot >= 0:
            return self.servers.slots.owner(slot)
        return next(iter([*self.servers.live(), *self.servers.slots.primaries]), "")

    def _rediscover(self) -> None:
        try:
            self.servers.discover()
        except ParsyncError:
            return  # The map stays as it is; each request has an error of its own.

    # -- as redis-py's client ----------------------------------------------------------------------

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command at the primary of its key."""
        if args[0].split()[0] in _EVERYWHERE:
            first, *_ = [client.execute_command(*args, **options) for client in self.primaries()]
            return first
        (reply,) = self.run_commands([(args, options)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def primaries(self) -> "list[redis.Redis]":
        """Return a client of each primary. Raises ServerUnreachable if one is away."""
        clients = self.servers.all()
        if missing := [address for address, client in clients.items() if client is None]:
            raise away(missing[0])
        return [client for client in clients.values() if client is not None]

    def scan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield the keys of all primaries."""
        for client in self.primaries():
            yield from client.scan_iter(*args, **options)

    def run_commands(self, commands: Sequence[Command], impatient: bool = False) -> list[Any]:
        """Run commands; return each reply as redis-py reads it, or its error.

        commands: the words of each, and options of redis-py.
        impatient: see Primaries.ask.
        """
        commands_words = [(*args[0].split(), *args[1:]) for args, _ in commands]
        replies = self.exchange(
            [(key_of(words), _pack(words)) for words in commands_words], impatient=impatient
        )
        return [
            self._read(reply, *command) for reply, command in zip(replies, commands, strict=True)
        ]

    def _read(self, reply: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if isinstance(reply, ResponseError) and EMPTY_RESPONSE in options:
            return options[EMPTY_RESPONSE]
        read: Callable[..., Any] | None = self.response_callbacks.get(args[0])
        if isinstance(reply, Exception) or read is None:
            return reply
        return read(
            reply,
            **{k: v for k, v in options.items() if k not in (NEVER_DECODE, EMPTY_RESPONSE, "keys")},
        )

    def pipeline(self, transaction: bool = False, shard_hint: Any = None) -> "ClusterPipeline":
        """Return a pipeline that sends its commands to all primaries in one round trip.

        There are no transactions.
        """
        return ClusterPipeline(self)

    def close(self) -> None:
        """Close all connections."""
        self.servers.close()

    # -- servers -----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The addresses that the client was given, for people."""
        return ",".join(self.servers.seeds)

    def pools_of(self, keys: Iterable[str], anew: bool) -> dict[str, Any]:
        """Return the connection pool to the primary of each key; leave out primaries that are away.

        anew: read the map of slots first. Raises ServerUnreachable or AccessDenied if no server
        tells the map.
        """
        if anew or not self.servers.slots.primaries:
            self.servers.discover()
        owners = {key: self.servers.slots.owner(slot_of(key)) for key in keys}
        return {
            key: self.servers.client(owner).connection_pool
            for key, owner in owners.items()
            if owner and not self.servers.is_away(owner)
        }

    def server_runs(self, keys: Sequence[str]) -> dict[str, ServerRun]:
        """Return the run of each key's primary; a run without id for a primary that is away.

        Raises what `discover` raises.
        """
        if not self.servers.slots.primaries:
            self.servers.discover()
        owners = {key: self.servers.slots.owner(slot_of(key)) for key in keys}
        places = [place for place in dict.fromkeys(owners.values()) if place]
        replies: list[Any] = [None] * len(places)
        ask = _pack(("INFO", *ServerRun.SECTIONS))
        self.servers.ask(
            {place: [(i, ask)] for i, place in enumerate(places)}, replies, impatient=True
        )
        runs = dict(zip(places, (_run_of(reply) for reply in replies), strict=True))
        return {key: runs.get(place) or ServerRun() for key, place in owners.items()}


class ClusterPipeline(Pipeline):
    """A pipeline of redis-py that runs its commands on all primaries at once."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, None)
        self._cluster = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the commands and return their replies; raises the first error.

        raise_on_error: if False, return each error in its place, and wait less for slow primaries.
        """
        commands = self.command_stack
        self.command_stack = []
        replies = self._cluster.run_commands(commands, impatient=not raise_on_error)
        for reply in replies:
            if raise_on_error and isinstance(reply, Exception):
                raise reply
        return replies


def _pack(words: tuple[Any, ...]) -> bytes:
    return bytes(hiredis.pack_command(words))


def _run_of(reply: Any) -> ServerRun:
    lines = readable(reply).splitlines() if isinstance(reply, bytes) else ()
    return ServerRun.of(dict(line.split(":", 1) for line in lines if ":" in line))

"""A client of a Redis Cluster that looks like redis-py's of one server: each command goes to the
primary of its key.

redis-py's own RedisCluster refuses EVALSHA in pipelines, and asks one primary after the other.

A slot may be moved while requests come. MOVED and ASK name another primary, and TRYAGAIN says that
the slot is in two places: nothing was executed, and the request is sent again. After an error that
a failover explains (CLUSTERDOWN, READONLY, no connection) the map of slots is read again; if
another primary has the slot now, the request goes there.
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
from .server_run import ServerRun
from .slot_map import key_of, slot_of

_NOT_NOW: Final = (AskError, ClusterDownError, TryAgainError)
"""Error replies to requests that the cluster does not execute now; MovedError is an AskError."""

_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05
"""Pauses before a request is sent again because its slot is being moved."""

_ASKING: Final = (-1, b"*1\r\n$6\r\nASKING\r\n")

_EVERYWHERE: Final = ("FLUSHALL", "SCRIPT", "CONFIG")
"""Commands that are for the whole server: each primary runs them, and the first one's reply is
returned.
"""

Command = tuple[tuple[Any, ...], dict[str, Any]]
Packed = tuple[str | bytes | None, bytes]
"""A request: a key of it, None if any primary may answer, and its words as they are sent."""


class ClusterClient(redis.Redis):
    """redis-py's client, on a cluster; its pipelines too. `exchange` is what all of them use.

    A command without a key goes to any primary, and one for the whole server to each. Raises errors
    of errors.py where a primary does not answer.
    """

    def __init__(self, primaries: Primaries) -> None:
        super().__init__(connection_pool=primaries.client(primaries.seeds[0]).connection_pool)
        self.servers = primaries

    def again(self) -> "ClusterClient":
        """Return a client of the same cluster with connections of its own."""
        mine = self.servers
        return ClusterClient(type(mine)(mine.seeds, mine.options, mine.slots))

    # -- requests ----------------------------------------------------------------------------------

    def exchange(
        self, requests: Sequence[Packed], patience_s: float | None = None, each: bool = False
    ) -> list[Any]:
        """Send requests to all primaries at once, and return their replies in order.

        A reply may be a ResponseError or, of a primary that fails, a ParsyncError. patience_s: how
        long to go on while slots are moved; by default the time-out of a connection. each: see
        Primaries.ask.
        """
        try:
            if not self.servers.slots.primaries:
                self.servers.discover()
        except ParsyncError as error:
            return [error] * len(requests)
        found: list[Any] = [None] * len(requests)
        slots = [-1 if key is None else slot_of(key) for key, _ in requests]
        asked: dict[int, str] = {}
        todo: Sequence[int] = range(len(requests))
        give_up_s = time.monotonic() + (
            self.servers.timeout_s if patience_s is None else patience_s
        )
        pause_s = 0.0
        stale = False
        while True:
            groups: dict[str, list[tuple[int, bytes]]] = {}
            sent_to = {i: asked.get(i) or self._owner(slots[i]) for i in todo}
            for i, address in sent_to.items():
                if not address:
                    found[i] = NotSent(
                        f"no server of the cluster at {self.address} has the slot {slots[i]} now"
                    )
                    continue
                group = groups.setdefault(address, [])
                group += (_ASKING, (i, requests[i][1])) if i in asked else ((i, requests[i][1]),)
            self.servers.ask(groups, found, each)
            again = self._judge(sent_to, slots, found, asked)
            if lost := [
                i
                for i in sent_to
                if isinstance(found[i], NotSent | ClusterDownError | ReadOnlyError)
            ]:
                if not stale:
                    stale = True
                    self._rediscover()
                again += [i for i in lost if self._owner(slots[i]) not in ("", sent_to[i])]
            if not again or time.monotonic() >= give_up_s:
                return [
                    refusal(self.address, reply) or reply if isinstance(reply, _NOT_NOW) else reply
                    for reply in found
                ]
            if pause_s or any(isinstance(found[i], TryAgainError) for i in again):
                self.servers.sleep(random.uniform(0.5, 1.0) * pause_s)
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            pause_s = pause_s or _PAUSE_S
            todo = sorted(again)

    def _judge(
        self, sent_to: dict[int, str], slots: Sequence[int], found: list[Any], asked: dict[int, str]
    ) -> list[int]:
        """Return the requests that were not executed because their slots are moved; note where they
        go next.
        """
        again = []
        for i, address in sent_to.items():
            reply = found[i]
            if not isinstance(reply, AskError | TryAgainError):
                continue
            again.append(i)
            asked.pop(i, None)
            if isinstance(reply, AskError):
                there = f"{reply.host or address.rpartition(':')[0]}:{reply.port}"
                if isinstance(reply, MovedError):
                    self.servers.slots.move(slots[i], there)
                else:
                    asked[i] = there
        return again

    def _owner(self, slot: int) -> str:
        """Return the primary of a slot; of slot -1 any that is not away."""
        if slot >= 0:
            return self.servers.slots.owner(slot)
        return next(iter([*self.servers.live(), *self.servers.slots.primaries]), "")

    def _rediscover(self) -> None:
        try:
            self.servers.discover()
        except ParsyncError:
            return  # the map stays as it is: the requests have errors of their own

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
        found = self.servers.all()
        if missing := [address for address, client in found.items() if client is None]:
            raise away(missing[0])
        return [client for client in found.values() if client is not None]

    def scan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield the keys of all primaries."""
        for client in self.primaries():
            yield from client.scan_iter(*args, **options)

    def run_commands(self, commands: Sequence[Command], each: bool = False) -> list[Any]:
        """Run commands, (words, options of redis-py), and return their replies as redis-py reads
        them, or errors.
        """
        words = [(*args[0].split(), *args[1:]) for args, _ in commands]
        replies = self.exchange([(key_of(some), _pack(some)) for some in words], each=each)
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
        """Return a pipeline whose commands go to all primaries in one round trip; there are no
        transactions.
        """
        return ClusterPipeline(self)

    def close(self) -> None:
        """Close all connections."""
        self.servers.close()

    # -- servers -----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The addresses that were given, for people."""
        return ",".join(self.servers.seeds)

    def pools_of(self, keys: Iterable[str], anew: bool) -> dict[str, Any]:
        """Return the pool of connections to the primary of each key that has one which is not away.

        anew: read the map first. Raises ServerUnreachable or AccessDenied if nobody tells it.
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
        """Return the run of each key's primary, one without id while it is away.

        Raises what `discover` raises.
        """
        if not self.servers.slots.primaries:
            self.servers.discover()
        of = {key: self.servers.slots.owner(slot_of(key)) for key in keys}
        places = [place for place in dict.fromkeys(of.values()) if place]
        told: list[Any] = [None] * len(places)
        ask = _pack(("INFO", *ServerRun.SECTIONS))
        self.servers.ask({place: [(i, ask)] for i, place in enumerate(places)}, told, each=True)
        runs = dict(zip(places, (_run_of(reply) for reply in told), strict=True))
        return {key: runs.get(place) or ServerRun() for key, place in of.items()}


class ClusterPipeline(Pipeline):
    """Collects commands as redis-py's pipeline does, and runs them on all primaries at once."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, None)
        self._cluster = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the commands; raises the first error, or returns errors in their places and waits
        less for stragglers.
        """
        commands = self.command_stack
        self.command_stack = []
        replies = self._cluster.run_commands(commands, each=not raise_on_error)
        for reply in replies:
            if raise_on_error and isinstance(reply, Exception):
                raise reply
        return replies


def _pack(words: tuple[Any, ...]) -> bytes:
    return bytes(hiredis.pack_command(words))


def _run_of(reply: Any) -> ServerRun:
    lines = readable(reply).splitlines() if isinstance(reply, bytes) else ()
    return ServerRun.of(dict(line.split(":", 1) for line in lines if ":" in line))

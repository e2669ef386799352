"""Clients of redis.asyncio with the interface of redis-py's blocking clients.

Only code inside `bridge.call` may use these clients. The store sends scripts over connections of a
pool, and plain commands by methods of a client or a pipeline. The classes of this module have just
the methods for that. redis.asyncio makes each request, so no connection blocks the event loop.
"""

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any, Self

import redis.asyncio as aio
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.commands import CoreCommands

from .bridge import call, sleep, wait
from .connection import Kit
from .primaries import LOOK_PAUSES_S, Primaries
from .server_errors import growing


class LoopConnection:
    """A connection of a LoopPool that is in use."""

    def __init__(self, connection: Any) -> None:
        self.own = connection
        self.timeout_s: float | None = None  # None: its own

    def send_packed_command(self, pieces: Sequence[bytes]) -> None:
        """Send packed requests."""
        wait(self.own.send_packed_command(pieces))

    def read_response(self) -> Any:
        """Return the next reply; raises an error reply.

        A reply that does not come in time closes the connection. redis-py's own argument `timeout`
        would return None instead, and the next request would read the late reply.
        """
        usual_s = self.own.socket_timeout
        try:
            if self.timeout_s is not None:
                self.own.socket_timeout = self.timeout_s
            return wait(self.own.read_response())
        finally:
            self.own.socket_timeout = usual_s

    def disconnect(self) -> None:
        """Close the connection at once, also after its call was cancelled.

        The pool opens the connection again when it is needed.
        """
        wait(self.own.disconnect(nowait=True))


class LoopPool:
    """The connections of one client of redis.asyncio."""

    def __init__(self, pool: Any) -> None:
        self.own = pool

    @property
    def connection_kwargs(self) -> dict[str, Any]:
        """The options of new connections."""
        options: dict[str, Any] = self.own.connection_kwargs
        return options

    @property
    def service_name(self) -> str:
        """The name of the service that Sentinels watch, '' for a plain server."""
        return str(getattr(self.own, "service_name", ""))

    def get_connection(self) -> LoopConnection:
        """Return a connection that no other call uses."""
        return LoopConnection(wait(self._get()))

    async def _get(self) -> Any:
        """Get a connection of the pool; give it back if the call is cancelled meanwhile.

        redis-py may swallow a cancel (asyncio.wait_for of Python 3.11). `bridge.call` raises the
        CancelledError nevertheless, and then no caller gets the connection.
        """
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        connection = self.own.get_available_connection()
        try:
            await self.own.ensure_connection(connection)
            if task.cancelling() > cancels:
                raise asyncio.CancelledError
        except BaseException:
            await connection.disconnect(nowait=True)
            await self.own.release(connection)
            raise
        return connection

    def release(self, connection: LoopConnection) -> None:
        """Return a connection to the pool."""
        wait(self.own.release(connection.own))

    def disconnect(self) -> None:
        """Close all connections, also connections in use."""
        wait(self.own.disconnect())


class _Commands(CoreCommands):
    """redis-py's methods of the commands, which all end in `execute_command`."""

    _event_dispatcher: Any = None  # of redis-py's own clients

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what the object holds: nothing, unless a subclass says otherwise."""


class LoopClient(_Commands):
    """A client of one server, or of the primary of a service."""

    def __init__(self, client: "aio.Redis") -> None:
        self.own = client
        self.connection_pool = LoopPool(client.connection_pool)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command, and return its reply as redis-py reads it."""
        return wait(self.own.execute_command(*args, **options))

    def pipeline(self, transaction: bool = False) -> "LoopPipeline":
        """Return a pipeline; there are no transactions."""
        return LoopPipeline(self.own)

    def close(self) -> None:
        """Close all connections."""
        self.connection_pool.disconnect()


class LoopPipeline(_Commands):
    """Collects commands and sends them in one write."""

    def __init__(self, client: "aio.Redis") -> None:
        self._client = client
        self._stack = list[tuple[tuple[Any, ...], dict[str, Any]]]()

    def execute_command(self, *args: Any, **options: Any) -> Self:
        """Add a command."""
        self._stack.append((args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send the commands and return their replies.

        Raises the first error, or with `raise_on_error` False returns each error in its place.
        """
        stack = self._stack
        self._stack = []
        return wait(self._send(stack, raise_on_error))

    async def _send(
        self, stack: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], raise_on_error: bool
    ) -> list[Any]:
        async with self._client.pipeline(transaction=False) as batch:
            for args, options in stack:
                batch.execute_command(*args, **options)
            return list(await batch.execute(raise_on_error))


class LoopPrimaries(Primaries):
    """The primaries of a Redis Cluster, for an event loop.

    A task of the event loop watches the primaries that are away.
    """

    sleep = staticmethod(sleep)
    _task: "asyncio.Task[None] | None" = None

    def _new_client(self, address: str, **overrides: Any) -> Any:
        host, _, port = address.rpartition(":")
        return LoopClient(aio.Redis(host=host, port=int(port), **{**self.options, **overrides}))

    def _limit(self, connection: LoopConnection, timeout_s: float | None) -> bool:
        connection.timeout_s = timeout_s
        return True

    def _start_watch(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                _watch(weakref.ref(self)), name="parsync-cluster"
            )

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        if self._task is not None:
            self._task.cancel()
        super().close()


async def _watch(reference: "weakref.ref[LoopPrimaries]") -> None:
    """Look for primaries that serve again, until none is away or the cluster is unused."""
    for pause_s in growing(*LOOK_PAUSES_S):
        primaries = reference()
        if primaries is None or not await call(primaries.look):
            return
        del primaries
        await asyncio.sleep(pause_s)


def _connect(url: str, **options: Any) -> Any:
    return LoopClient(aio.Redis.from_url(url, **options))


def _find_primary(sentinel: Sentinel, name: str, **options: Any) -> Any:
    return LoopClient(sentinel.master_for(name, **options))


ON_LOOP: Kit = Kit(_connect, Sentinel, _find_primary, LoopPrimaries, Retry, sleep)
"""The kit for code inside `bridge.call`: its connections do not block the event loop."""

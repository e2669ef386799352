"""Connections that no peer can hold without end.

A connection is uvicorn's, with a limit of time. The number of resting connections has a limit too.
"""

import asyncio
import resource
import socket
import struct
from functools import partial
from typing import Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from .shares import owner_of

REST_S: Final = 20.0
"""Seconds within which the header of a request must come, and a peer must take what it is sent."""

BACKLOG: Final = 64
"""Maximum number of connections that are accepted in one turn of the event loop."""

OTHER_FILES: Final = 100 + 4 * BACKLOG
"""File descriptors for all but connections.

A connection that is given up keeps its descriptor for some turns of the event loop.
"""

RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER that drops a connection at once."""


class RestingConnections:
    """Connections on which no request is being answered.

    most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_owner: dict[str, dict[Connection, None]] = {}  # the oldest first

    def add(self, connection: "Connection") -> None:
        """Add a connection.

        Beyond the limit, the owner with the most connections loses its oldest connection.
        """
        self._by_owner.setdefault(connection.owner, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            largest = max(self._by_owner.values(), key=len)
            next(iter(largest)).give_up()

    def discard(self, connection: "Connection") -> None:
        """Remove a connection."""
        connections = self._by_owner.get(connection.owner, {})
        if connection in connections:
            del connections[connection]
            self._count -= 1
        if not connections:
            self._by_owner.pop(connection.owner, None)


class Connection(H11Protocol):
    """A connection that is given up if it rests too long, or if its peer takes nothing.

    A connection rests while no request is being answered: before the header of a request is
    complete, and after the answer. uvicorn's own limit of time between two requests ends with the
    first byte of the next request.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        resting: RestingConnections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.owner = ""
        self._resting = resting
        self._rests = False
        self._stuck = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to rest."""
        super().connection_made(transport)
        self.owner = owner_of(self.client[0] if self.client else "")
        self._update()

    def data_received(self, data: bytes) -> None:
        """Read, and stop to rest if a request is complete."""
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Rest, or answer the next request."""
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        """Stop the answer until the peer takes it."""
        super().pause_writing()
        self._stuck = True
        self._update()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._stuck = False
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._resting.discard(self)
        self._stop_timer()

    def give_up(self) -> None:
        """Close the connection at once; what the peer has not taken is dropped."""
        self._resting.discard(self)
        self._stop_timer()
        peer = self.transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()

    def _update(self) -> None:
        """Note whether the connection rests, and start or stop its timer.

        The timer runs while the connection rests, or while its peer takes nothing.
        """
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        rests = cycle is None or cycle.response_complete
        if (rests or self._stuck) and self._timer is None:
            self._timer = self.loop.call_later(REST_S, self.give_up)
        elif not rests and not self._stuck:
            self._stop_timer()
        if rests != self._rests:
            self._rests = rests
            change = self._resting.add if rests else self._resting.discard
            change(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def make_connections(most: int) -> Any:
    """Return the factory of connections for uvicorn. most: how many of them may rest."""
    return partial(Connection, resting=RestingConnections(most))


def count_places(most: int) -> int:
    """Raise this process's limit of open files to serve `most` connections.

    Returns for how many connections the limit suffices, `most` at most.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = most + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= files:
        return most
    limit = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(BACKLOG, limit - OTHER_FILES)

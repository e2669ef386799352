"""Connections that nobody can hold without end: uvicorn's, with a limit of time and a limit of
number.
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
"""Seconds in which the whole header of a request must come, and in which a peer must take what it
is sent.
"""

BACKLOG: Final = 64
"""Connections that are accepted in one turn of the event loop."""

OTHER_FILES: Final = 100 + 4 * BACKLOG
"""Descriptors for all but connections; a connection that is given up is closed some turns later."""

RESET: Final = struct.pack("ii", 1, 0)
"""To linger for 0 s."""


class Resting:
    """Connections on which no request is being answered, by owner of the address, each owner's
    oldest first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._of: dict[str, dict[Connection, None]] = {}

    def add(self, connection: "Connection") -> None:
        """Add a connection.

        If there are too many, give up the oldest of the owner that has the most.
        """
        self._of.setdefault(connection.owner, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            largest = max(self._of.values(), key=len)
            next(iter(largest)).give_up()

    def discard(self, connection: "Connection") -> None:
        """Remove a connection."""
        of_owner = self._of.get(connection.owner, {})
        if connection in of_owner:
            del of_owner[connection]
            self._count -= 1
        if not of_owner:
            self._of.pop(connection.owner, None)


class Connection(H11Protocol):
    """A connection that is given up if it rests too long, or if its peer does not take what it is
    sent.

    It rests while no request is being answered: before the header of a request is complete, and
    after the answer. uvicorn's own limit of time between two requests ends with the first byte of
    the next one.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        resting: Resting,
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
        self._look()

    def data_received(self, data: bytes) -> None:
        """Read, and perhaps begin to answer."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Rest, or answer the next request."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Stop the answer, because the peer does not take it."""
        super().pause_writing()
        self._stuck = True
        self._look()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._stuck = False
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything."""
        super().connection_lost(exc)
        self._resting.discard(self)
        self._stop_timer()

    def give_up(self) -> None:
        """Close the connection at once, and let the system forget what the peer has not
        taken yet.
        """
        self._resting.discard(self)
        self._stop_timer()
        peer = self.transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()

    def _look(self) -> None:
        """Count this connection among those that rest or not, and run its timer or not."""
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
    """Return what makes the connections of one server, of which so many may rest."""
    return partial(Connection, resting=Resting(most))


def count_places(most: int) -> int:
    """Raise this process's limit of open files if need be.

    Return for how many of `most` connections it suffices.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return most
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(BACKLOG, limit - OTHER_FILES)

"""The server: it listens, and answers with uvicorn until a signal comes."""

import logging
import socket
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Final

import uvicorn
from starlette.applications import Starlette

from ..errors import InvalidInput
from .connection import BACKLOG, make_connections

log = logging.getLogger("parsync.serve")

SHUTDOWN_GRACE_S: Final = 3
"""Seconds in which open connections may end when the process stops."""

MOST_CONNECTIONS: Final = 1500
"""Maximum number of connections; a third of them may rest."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 stands for any free port. Raises InvalidInput."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket for people."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def hosts_of(listening: socket.socket) -> list[str]:
    """Return the host names that requests may have.

    On a loopback address these are the names of this machine, else any. A page of a stranger whose
    name leads here (DNS rebinding) sends its own host name, and could otherwise read the answers.
    """
    host = str(listening.getsockname()[0])
    return (
        ["localhost", "127.0.0.1", "[::1]", "::1", host] if ip_address(host).is_loopback else ["*"]
    )


class Server(uvicorn.Server):
    """uvicorn's server, which also stops for an earlier signal.

    end: ends the answers that would not end by themselves.
    signals: the signals that came before the start.
    """

    def __init__(
        self, config: uvicorn.Config, end: Callable[[], None], signals: Collection[int]
    ) -> None:
        super().__init__(config)
        self._end = end
        self._signals = signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start. From now on uvicorn receives the signals itself."""
        await super().startup(sockets)
        self.should_exit = self.should_exit or bool(self._signals)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the endless answers, and stop."""
        self._end()
        await super().shutdown(sockets)


def make_config(app: Starlette, resting: int) -> uvicorn.Config:
    """Return the configuration of uvicorn. resting: how many connections may rest."""
    return uvicorn.Config(
        app,
        http=make_connections(resting),
        ws="none",  # connections of websockets would have no limits
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        log_level="error",  # a warning for each bad request would let anybody fill the log
        proxy_headers=False,  # otherwise anybody on this machine could pretend another address
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )


def run(
    app: Starlette,
    listening: socket.socket,
    end: Callable[[], None],
    signals: Collection[int] = (),
    resting: int = MOST_CONNECTIONS // 3,
) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    end: ends the answers that would not end by themselves.
    signals: the signals that came before.
    resting: how many connections may rest.
    """
    Server(make_config(app, resting), end, signals).run(sockets=[listening])

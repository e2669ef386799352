"""Listen, and answer with uvicorn until a signal comes."""

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

GRACE_S: Final = 3
"""Open connections get so long to end when the process stops."""

MOST: Final = 1500
"""Connections at a time; on a third of them no request is being answered."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one. Raises InvalidInput."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return found


def url_of(listening: socket.socket) -> str:
    """Return the address of a listening socket for people."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def hosts_of(listening: socket.socket) -> list[str]:
    """Return the hosts in whose name somebody may ask: on a loopback address those of this machine,
    else any.

    A stranger's page whose name leads here (DNS rebinding) asks in that name, and could read the
    answers.
    """
    host = str(listening.getsockname()[0])
    return (
        ["localhost", "127.0.0.1", "[::1]", "::1", host] if ip_address(host).is_loopback else ["*"]
    )


class Server(uvicorn.Server):
    """uvicorn's server, which stops for a signal that came before, and first ends what would not
    end by itself.
    """

    def __init__(
        self, config: uvicorn.Config, end: Callable[[], None], came: Collection[int]
    ) -> None:
        super().__init__(config)
        self._end = end
        self._came = came

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start. From now on uvicorn sees the signals itself."""
        await super().startup(sockets)
        self.should_exit = self.should_exit or bool(self._came)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop."""
        self._end()
        await super().shutdown(sockets)


def make_config(app: Starlette, resting: int) -> uvicorn.Config:
    """Return how uvicorn answers. resting: the connections without a request at a time."""
    return uvicorn.Config(
        app,
        http=make_connections(resting),
        ws="none",  # its connections would be without limits
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        log_level="error",  # a warning for each bad request would let anybody fill the log
        proxy_headers=False,  # else anybody on this machine could say from which address they come
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )


def run(
    app: Starlette,
    listening: socket.socket,
    end: Callable[[], None],
    came: Collection[int] = (),
    resting: int = MOST // 3,
) -> None:
    """Answer until SIGTERM or Ctrl-C.

    end: ends the answers that have no end. came: the signals that came before.
    """
    Server(make_config(app, resting), end, came).run(sockets=[listening])

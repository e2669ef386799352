"""A connection that packs repeated commands once and reads replies by hiredis.

The bench's own traffic is cheap that way, and hardly adds to the measured cost.
"""

import socket
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.connection import parse_url


class Wire:
    """A plain connection to a server without a password."""

    def __init__(self, url: str) -> None:
        where = parse_url(url)
        self._socket = socket.create_connection(
            (where.get("host", "127.0.0.1"), where.get("port", 6379)), timeout=60
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self.ask(pack([("SELECT", int(where.get("db") or 0))]), 1)

    def ask(self, packed: bytes, count: int) -> list[Any]:
        """Send packed commands; return their `count` replies, or raise the first error of them."""
        self.send(packed)
        return self.read(count)

    def send(self, packed: bytes) -> None:
        """Send packed commands, whose replies are to be read."""
        self._socket.sendall(packed)

    def read(self, count: int) -> list[Any]:
        """Return the next `count` replies; raise the first error among them."""
        replies: list[Any] = []
        gets = self._reader.gets
        while len(replies) < count:
            reply = gets()
            if reply is False:
                data = self._socket.recv(1 << 20)
                if not data:
                    raise ConnectionError("the server closed the connection")
                self._reader.feed(data)
            elif isinstance(reply, Exception):
                raise reply
            else:
                replies.append(reply)
        return replies

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def pack(commands: Sequence[Sequence[str | int | float | bytes]]) -> bytes:
    """Return commands as the bytes to send."""
    return b"".join(hiredis.pack_command(tuple(words)) for words in commands)  # type: ignore[arg-type]

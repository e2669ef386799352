"""Read the options of an address as redis-py takes them: its own parser, and those that it leaves
as text.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.connection import parse_url


def _keepalive(text: str) -> dict[int, int]:
    """Return the options of a socket: 'TCP_KEEPIDLE:60,TCP_KEEPINTVL:10' -> {socket.TCP_KEEPIDLE:
    60, ...}.

    Raises ValueError for an option that this system lacks.
    """
    pairs = [pair.split(":") for pair in text.split(",")]
    if missing := [name for name, _ in pairs if not hasattr(socket, name)]:
        raise ValueError(f"this system has no socket option {missing[0]}")
    return {getattr(socket, name): int(number) for name, number in pairs}


_OURS: Final[Mapping[str, Callable[[str], Any]]] = {
    "protocol": int,
    "socket_keepalive_options": _keepalive,
    "socket_read_size": int,
    "ssl_min_version": int,
}
"""Options that redis-py, or an older version of it, does not convert."""


def read_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of an address, converted.

    Raises ValueError for a value that cannot be read.
    """
    chosen: dict[str, Any] = dict(parse_url(f"redis://h/?{urlencode(options)}"))
    del chosen["host"]
    return chosen | {name: _OURS[name](value) for name, value in options.items() if name in _OURS}


def split_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return an address without the options that redis-py does not convert, and these.

    Raises ValueError.
    """
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: _OURS[name](value) for name, value in pairs if name in _OURS}
    if not ours:
        return url, {}
    others = urlencode([(name, value) for name, value in pairs if name not in _OURS])
    return urlunsplit(parts._replace(query=others)), ours

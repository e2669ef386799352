"""Read the options of an address: by redis-py's parser, and by own converters where it has none."""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.connection import parse_url


def _keepalive(text: str) -> dict[int, int]:
    """Return socket options: 'TCP_KEEPIDLE:60,TCP_KEEPINTVL:10' -> {socket.TCP_KEEPIDLE: 60, ...}.

    Raises ValueError for an option that this system lacks.
    """
    pairs = [pair.split(":") for pair in text.split(",")]
    if missing := [name for name, _ in pairs if not hasattr(socket, name)]:
        raise ValueError(f"this system has no socket option {missing[0]}")
    return {getattr(socket, name): int(number) for name, number in pairs}


_CONVERTERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "protocol": int,
    "socket_keepalive_options": _keepalive,
    "socket_read_size": int,
    "ssl_min_version": int,
}
"""Converters of the options that redis-py, or an older version of it, leaves as text."""


def read_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of an address, converted.

    Raises ValueError for a value that cannot be read.
    """
    chosen: dict[str, Any] = dict(parse_url(f"redis://h/?{urlencode(options)}"))
    del chosen["host"]
    return chosen | {
        name: _CONVERTERS[name](value) for name, value in options.items() if name in _CONVERTERS
    }


def split_options(url: str) -> tuple[str, dict[str, Any]]:
    """Split an address into the address for redis-py, and the options that redis-py leaves as text.

    The options are converted. Raises ValueError for a value that cannot be read.
    """
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    converted = {name: _CONVERTERS[name](value) for name, value in pairs if name in _CONVERTERS}
    if not converted:
        return url, {}
    unconverted = urlencode([(name, value) for name, value in pairs if name not in _CONVERTERS])
    return urlunsplit(parts._replace(query=unconverted)), converted

"""Connections to a server: open one from an address, copy one for another thread, say which server it is.

redis-py retries by itself; here it must not. If a reply is lost, the caller finds out whether the request was
executed: every script answers "yours" if it is repeated (docs/journey-of-a-task.md).
"""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from ..errors import InvalidInput
from ..model.address import SCHEME, as_redis, parse_service, safe_url
from .sentinel import connect_service, copy_pool


def connect(url: str, timeout_s: float = 5.0) -> "redis.Redis":
    """Return a client for the server at `url`, with time-outs and without retries; raises InvalidInput for a bad URL.

    It connects when it is first used.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    try:
        if url.startswith(SCHEME):
            return connect_service(parse_service(url), **options)
        return redis.Redis.from_url(as_redis(url), **options)
    except ValueError as error:
        why = "special characters in a password are written %XX" if "@" in url else error  # it may quote the password
        raise InvalidInput(f"server address {safe_url(url)!r} is not valid: {why}") from None


def copy_client(client: "redis.Redis") -> "redis.Redis":
    """Return a client for the same server with connections of its own."""
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        copied: Any = copy_pool(pool)
    else:
        copied = type(pool)(connection_class=pool.connection_class, **pool.connection_kwargs)
    return redis.Redis(connection_pool=copied)


def address_of(client: "redis.Redis") -> str:
    """Return where the server of a client is, for people: 'HOST:PORT', a socket's path or a service's name."""
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return str(pool.service_name)
    kwargs = pool.connection_kwargs
    return str(kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}")


def database_of(client: "redis.Redis") -> int:
    """Return the number of the database that a client uses."""
    return int(client.connection_pool.connection_kwargs.get("db") or 0)

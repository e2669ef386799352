"""Open a connection to a server, copy a connection for another thread, name the server.

redis-py can send a lost request again by itself. Here redis-py must not do that: if a reply is
lost, the caller repeats the request, and every script answers "yours" to a repeated request
(docs/journey-of-a-task.md).
"""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from ...errors import InvalidInput
from ...model.address import (
    SCHEME,
    Seeds,
    check_address,
    is_cluster,
    parse_cluster,
    parse_service,
    safe_url,
)
from ...model.address_rules import BadAddress
from ..address_options import read_options, split_options
from .primaries import Primaries
from .redis_cluster import ClusterClient
from .sentinel import connect_service, copy_pool


class Kit(NamedTuple):
    """The classes that open connections and sleep: redis-py's blocking ones, or loop_client.py's.

    by_url: returns a client, from an address and options of redis-py.
    by_service: returns a client, from Sentinels, the name of a service and options of redis-py.
    """

    by_url: Callable[..., "redis.Redis"]
    sentinel: Any
    by_service: Callable[..., "redis.Redis"]
    primaries: type[Primaries]
    retry: Any
    sleep: Callable[[float], None]


BLOCKING: Final = Kit(
    redis.Redis.from_url, Sentinel, Sentinel.master_for, Primaries, Retry, time.sleep
)
"""The kit for threads."""


def connect(url: str, timeout_s: float = 5.0, kit: Kit = BLOCKING) -> "redis.Redis":
    """Return a client for the server or cluster at `url`, with time-outs and without retries.

    The client connects when it is first used. Raises InvalidInput for a bad URL.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "retry": kit.retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    try:
        url = check_address(url)
        if url.startswith(SCHEME):
            return connect_service(parse_service(url), kit.sentinel, kit.by_service, **options)
        if is_cluster(url):
            return connect_cluster(parse_cluster(url), kit.primaries, **options)
        if url.startswith("unix://"):
            del options["socket_keepalive"]  # only TCP has this option
        bare, converted = split_options(url)
        return kit.by_url(bare, **options, **converted)
    except BadAddress as error:
        raise InvalidInput(f"server address {safe_url(url)!r} is not valid: {error}") from None
    except ValueError as error:
        # The text of redis-py's error may quote the password.
        why = "special characters in a password are written %XX" if "@" in url else error
        raise InvalidInput(f"server address {safe_url(url)!r} is not valid: {why}") from None


def connect_cluster(seeds: Seeds, primaries: type[Primaries], **options: Any) -> ClusterClient:
    """Return a client of a Redis Cluster.

    Raises ValueError if an option of the address has a value that redis-py cannot read.
    """
    chosen = read_options(seeds.options)
    secured = {"ssl": True} if seeds.secured else {}
    return ClusterClient(primaries(seeds.servers, {**options, **chosen, **secured, **seeds.login}))


def copy_client(client: "redis.Redis") -> "redis.Redis":
    """Return a client for the same server, with connections of its own."""
    if isinstance(client, ClusterClient):
        return client.with_own_connections()
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        own_pool: Any = copy_pool(pool)
    else:
        own_pool = type(pool)(connection_class=pool.connection_class, **pool.connection_kwargs)
    return redis.Redis(connection_pool=own_pool)


def address_of(client: "redis.Redis") -> str:
    """Return a server's name for people: 'HOST:PORT', a socket's path or a service's name."""
    if isinstance(client, ClusterClient):
        return client.address
    pool = client.connection_pool
    if service := getattr(pool, "service_name", ""):
        return str(service)
    kwargs = pool.connection_kwargs
    return str(
        kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
    )


def database_of(client: "redis.Redis") -> int:
    """Return the number of the database that a client uses."""
    return int(client.connection_pool.connection_kwargs.get("db") or 0)


def set_timeouts(client: "redis.Redis", timeout_s: float) -> None:
    """Change the time-outs of a client; connections with the earlier time-outs are closed."""
    if isinstance(client, ClusterClient):
        client.servers.set_timeouts(timeout_s)
        return
    pool = client.connection_pool
    pool.connection_kwargs.update(socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
    pool.disconnect()


def disconnect(client: "redis.Redis") -> None:
    """Close all connections of a client, also connections in use."""
    if isinstance(client, ClusterClient):
        client.close()
    else:
        client.connection_pool.disconnect()

"""Open a connection to a server, copy a connection for another thread, name the server.

model/address.py reads addresses. redis-py's parser reads the options of an address, and own
converters read those that it leaves as text.

redis-py can send a lost request again by itself. Here redis-py must not do that: if a reply is
lost, the caller repeats the request, and every script answers "yours" to a repeated request
(docs/journey-of-a-task.md).
"""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from ...errors import InvalidInput
from ...model.address import (
    SCHEME,
    Seeds,
    Service,
    check_address,
    is_cluster,
    parse_cluster,
    parse_service,
    safe_url,
)
from ...model.address_rules import BadAddress
from .primaries import Primaries
from .redis_cluster import ClusterClient

SENTINEL_ASK_S: Final = 1.0
"""Seconds that one Sentinel may take to answer before the next Sentinel is asked."""


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


def connect_service(
    service: Service, sentinel: Any, find: Callable[..., "redis.Redis"], **options: Any
) -> "redis.Redis":
    """Return a client of the current primary; each new connection asks the Sentinels.

    sentinel, find: the fields `sentinel` and `by_service` of a Kit. options: options of redis-py.
    Raises ValueError if an option in the address has a value that redis-py cannot read.
    """
    chosen = read_options(service.options)
    limits = {"socket_timeout": SENTINEL_ASK_S, "socket_connect_timeout": SENTINEL_ASK_S}
    sentinel_tls = (
        {"ssl": True, **read_options(service.sentinel_tls)} if service.sentinel_secured else {}
    )
    sentinel_options = {**options, **limits, **sentinel_tls, **service.sentinel_login}
    tls = {"ssl": True} if service.secured else {}
    service_options = {**options, "db": service.db, **chosen, **tls, **service.login}
    sentinels = sentinel(
        service.sentinels, min_other_sentinels=service.min_others, sentinel_kwargs=sentinel_options
    )
    return find(sentinels, service.name, **service_options)


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


def copy_pool(pool: SentinelConnectionPool) -> SentinelConnectionPool:
    """Return a new pool that asks the same Sentinels."""
    options = {
        key: value for key, value in pool.connection_kwargs.items() if key != "connection_pool"
    }
    return SentinelConnectionPool(
        pool.service_name, pool.sentinel_manager, connection_class=pool.connection_class, **options
    )


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

"""Connect to the primary of a service that Sentinels watch; model/address.py reads the address."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import redis
from redis.connection import parse_url
from redis.sentinel import SentinelConnectionPool

from ..model.address import Service

ASK_S: Final = 1.0
"""How long one Sentinel may take to answer before the next one is asked."""


def connect_service(
    service: Service, sentinel: Any, find: Callable[..., "redis.Redis"], **options: Any
) -> "redis.Redis":
    """Return a client of the current primary; each new connection asks the Sentinels.

    sentinel, find: see Kit. options: redis-py's. Raises ValueError if an option in the address has a value that
    redis-py does not read.
    """
    chosen: dict[str, Any] = dict(parse_url(f"redis://h/?{urlencode(service.options)}"))
    del chosen["host"]
    tls = {"ssl": True, **{key: value for key, value in chosen.items() if key.startswith("ssl_")}}
    shared = tls if service.secured else {}
    ask = {**options, "socket_timeout": ASK_S, "socket_connect_timeout": ASK_S, **shared, **service.sentinel_login}
    own = {**options, "db": service.db, **chosen, **shared, **service.login}
    return find(sentinel(service.sentinels, sentinel_kwargs=ask), service.name, **own)


def copy_pool(pool: SentinelConnectionPool) -> SentinelConnectionPool:
    """Return a new pool that asks the same Sentinels."""
    options = {key: value for key, value in pool.connection_kwargs.items() if key != "connection_pool"}
    return SentinelConnectionPool(
        pool.service_name, pool.sentinel_manager, connection_class=pool.connection_class, **options
    )

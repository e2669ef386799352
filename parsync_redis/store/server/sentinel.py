"""Connect to the primary of a service that Sentinels watch; model/address.py reads the address."""

from collections.abc import Callable
from typing import Any, Final

import redis
from redis.sentinel import SentinelConnectionPool

from ...model.address import Service
from ..address_options import read_options

ASK_S: Final = 1.0
"""Seconds that one Sentinel may take to answer before the next Sentinel is asked."""


def connect_service(
    service: Service, sentinel: Any, find: Callable[..., "redis.Redis"], **options: Any
) -> "redis.Redis":
    """Return a client of the current primary; each new connection asks the Sentinels.

    sentinel, find: the fields `sentinel` and `by_service` of a Kit. options: options of redis-py.
    Raises ValueError if an option in the address has a value that redis-py cannot read.
    """
    chosen = read_options(service.options)
    limits = {"socket_timeout": ASK_S, "socket_connect_timeout": ASK_S}
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


def copy_pool(pool: SentinelConnectionPool) -> SentinelConnectionPool:
    """Return a new pool that asks the same Sentinels."""
    options = {
        key: value for key, value in pool.connection_kwargs.items() if key != "connection_pool"
    }
    return SentinelConnectionPool(
        pool.service_name, pool.sentinel_manager, connection_class=pool.connection_class, **options
    )

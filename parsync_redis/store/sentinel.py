"""Addresses of a server that Sentinels watch: whoever is primary of a service now.

    sentinel://USER:PASSWORD@HOST:26379,HOST:26379/DB?service=mymaster
    sentinel://HOST:26379/DB;sentinel://HOST:26379/DB?service=mymaster     as Celery writes it

User and password are the server's. In the query: `service`; `sentinel_username` and `sentinel_password` for Sentinels
that ask for them; `ssl=true` or any of redis-py's `ssl_...` options, for TLS with both.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.connection import parse_url
from redis.sentinel import Sentinel, SentinelConnectionPool

SCHEME: Final = "sentinel://"
PORT: Final = 26379
ASK_S: Final = 1.0
"""How long one Sentinel may take to answer before the next one is asked."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service and who knows its primary; `login` and `sentinel_login` are redis-py's arguments."""

    name: str
    sentinels: tuple[tuple[str, int], ...]
    db: int
    login: dict[str, Any]
    sentinel_login: dict[str, Any]

    @property
    def address(self) -> str:
        """For people, without passwords."""
        return f"{self.name} (Sentinel {', '.join(f'{host}:{port}' for host, port in self.sentinels)})"


def parse_service(url: str) -> Service:
    """A sentinel:// address; raises ValueError saying what is missing."""
    first, *others = url.removeprefix(SCHEME).replace(f";{SCHEME}", ",").split(",")
    places = [urlsplit(f"//{place}") for place in (first, *others)]
    query = dict(parse_qsl(places[-1].query))
    name = query.pop("service", "")
    if not name:
        raise ValueError("it must end in ?service=NAME, the name by which the Sentinels know the primary")
    sentinels = tuple((_host(place.hostname), place.port or PORT) for place in places)
    own = {"username": query.pop("sentinel_username", None), "password": query.pop("sentinel_password", None)}
    secured = query.pop("ssl", "").lower() in ("true", "1", "yes") or any(key.startswith("ssl_") for key in query)
    options: dict[str, Any] = dict(parse_url(f"redis://h/?{urlencode(query)}"))
    del options["host"]
    tls = {"ssl": True, **{key: value for key, value in options.items() if key.startswith("ssl_")}} if secured else {}
    login = {"username": places[0].username, "password": places[0].password}
    return Service(
        name,
        sentinels,
        _db([place.path for place in places]),
        {**options, **tls, **_given(login)},
        {**tls, **_given(own)},
    )


def _host(name: str | None) -> str:
    if not name:
        raise ValueError("a host is missing: it must be sentinel://HOST:PORT,HOST:PORT/DB?service=NAME")
    return name


def _db(paths: list[str]) -> int:
    named = [path.strip("/") for path in paths if path.strip("/")]
    return int(named[0]) if named else 0


def _given(login: dict[str, str | None]) -> dict[str, str]:
    return {key: unquote(value) for key, value in login.items() if value}


def connect_service(service: Service, **options: Any) -> "redis.Redis":
    """A client of whoever is primary; each new connection asks the Sentinels. Options are redis-py's."""
    asking = {**options, "socket_timeout": ASK_S, "socket_connect_timeout": ASK_S, **service.sentinel_login}
    sentinel = Sentinel(service.sentinels, sentinel_kwargs=asking)
    found: redis.Redis = sentinel.master_for(service.name, db=service.db, **options, **service.login)
    return found


def pool_again(pool: SentinelConnectionPool) -> SentinelConnectionPool:
    """A pool of its own that asks the same Sentinels."""
    options = {key: value for key, value in pool.connection_kwargs.items() if key != "connection_pool"}
    return SentinelConnectionPool(
        pool.service_name, pool.sentinel_manager, connection_class=pool.connection_class, **options
    )

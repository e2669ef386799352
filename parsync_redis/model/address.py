"""Addresses of servers, as text: which schemes there are, what an address of Sentinels says, how to show one safely.

A server that Sentinels watch is named by its service; whichever server is primary at the moment is meant:

    sentinel://USER:PASSWORD@HOST:26379,HOST:26379/DB?service=mymaster
    sentinel://HOST:26379/DB;sentinel://HOST:26379/DB?service=mymaster     as Celery writes it

User and password are the server's. In the query: `service`; `sentinel_username` and `sentinel_password` for Sentinels
that ask for them; `ssl=true` or any of redis-py's `ssl_...` options, for TLS with both.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

SCHEME: Final = "sentinel://"
PORT: Final = 26379
_PASSWORD_OPTION: Final = re.compile(r"([?&;](?:ssl_|sentinel_)?password=)[^&;#]*")


def safe_url(url: str) -> str:
    """Return the address without its passwords; text that is no address is masked as well."""
    url = _PASSWORD_OPTION.sub(r"\1***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, credentials = head.partition("://")
    if not slashes or not scheme.isalpha():
        scheme, slashes, credentials = "", "", head
    user = credentials.partition(":")[0]
    return f"{scheme}{slashes}{user}:***@{tail}" if user else f"{scheme}{slashes}***@{tail}"


def as_redis(url: str) -> str:
    """Return a valkey:// or valkeys:// address with redis-py's scheme; others are returned unchanged."""
    scheme, slashes, rest = url.partition("://")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme) + slashes + rest


def with_password(url: str, password: str) -> str:
    """Return the address with this password, unless it has one already."""
    scheme, _, rest = url.partition("://")
    rest, semicolon, others = rest.partition(";")  # of several Sentinels, as Celery writes them, the first has it
    credentials, at, place = rest.rpartition("@")
    if ":" in credentials:
        return url
    return f"{scheme}://{credentials}:{quote(password, safe='')}@{place if at else rest}{semicolon}{others}"


def check_address(url: str) -> str:
    """Return the address of a server as redis-py or `parse_service` reads it; raises ValueError for any other text."""
    if url.startswith(SCHEME):
        parse_service(url)
        return url
    url = as_redis(url)
    if not url.startswith(("redis://", "rediss://", "unix://")) or len(url.split("://", 1)[1].strip("/")) == 0:
        raise ValueError("not a server address")
    return url


@dataclass(frozen=True, slots=True)
class Service:
    """A service that Sentinels watch.

    sentinels: (host, port) of each. login: user and password of the server; sentinel_login: those of the Sentinels.
    options: the rest of the query, as text. secured: TLS to the server and to the Sentinels.
    """

    name: str
    sentinels: tuple[tuple[str, int], ...]
    db: int
    login: dict[str, str]
    sentinel_login: dict[str, str]
    options: dict[str, str]
    secured: bool


def parse_service(url: str) -> Service:
    """Read a sentinel:// address; raises ValueError that says what is missing."""
    first, *others = url.removeprefix(SCHEME).replace(f";{SCHEME}", ",").split(",")
    places = [urlsplit(f"//{place}") for place in (first, *others)]
    options = dict(parse_qsl(places[-1].query))
    name = options.pop("service", "")
    if not name:
        raise ValueError("it must end in ?service=NAME, the name by which the Sentinels know the primary")
    sentinel_login = {
        "username": options.pop("sentinel_username", None),
        "password": options.pop("sentinel_password", None),
    }
    ssl = options.pop("ssl", "").lower() in ("true", "1", "yes")
    return Service(
        name,
        sentinels=tuple((_host(place.hostname), place.port or PORT) for place in places),
        db=_db([place.path for place in places]),
        login=_given({"username": places[0].username, "password": places[0].password}),
        sentinel_login=_given(sentinel_login),
        options=options,
        secured=ssl or any(key.startswith("ssl_") for key in options),
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

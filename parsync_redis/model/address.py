"""The addresses of servers as text: schemes, Sentinels, clusters, and masked passwords.

The address of a server that Sentinels watch names a service, and means its current primary:

    sentinel://USER:PASSWORD@HOST:26379,HOST:26379/DB?service=mymaster
    sentinel://HOST:26379/DB;sentinel://HOST:26379/DB?service=mymaster     as Celery writes it

User and password are the server's. In the query: `service`; `sentinel_username` and
`sentinel_password` for Sentinels that ask for them; `min_other_sentinels`; `ssl=true` or any of
redis-py's `ssl_...` options, for TLS with both. If the Sentinels differ: `sentinel_ssl=true` or
`false`, and their own `sentinel_ssl_...` options.

The address of a Redis Cluster names some servers, which tell the others. A cluster has database 0
only:

    redis+cluster://USER:PASSWORD@HOST:6379,HOST:6379

With TLS it is rediss+cluster://; valkey and valkeys are taken too.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from .address_rules import BadAddress, check_rules

SCHEME: Final = "sentinel://"
PORT: Final = 26379
_CLUSTERS: Final = ("redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster")
CLUSTER_FORM: Final = "redis+cluster://HOST:PORT,HOST:PORT"
_CLUSTER_PORT: Final = 6379
_TRUE: Final = ("true", "yes", "1", "t", "y")
_PASSWORD_OPTION: Final = re.compile(r"([?&;][a-z_]*password=)[^&;#]*")
_CONSTANT: Final = re.compile(r"(?<=ssl_cert_reqs=)CERT_(NONE|OPTIONAL|REQUIRED)(?=[&#]|$)")
"""The value of `ssl_cert_reqs` as Celery and kombu also write it: the name of Python's constant."""


def safe_url(url: str) -> str:
    """Return the address with *** for each password; any other text is masked as well."""
    url = _PASSWORD_OPTION.sub(r"\1***", url)
    head, separator, tail = url.rpartition("@")
    if not separator:
        return url
    scheme, slashes, credentials = head.partition("://")
    if not slashes or not scheme.replace("+", "").isalpha():
        scheme = ""
        slashes = ""
        credentials = head
    user = credentials.partition(":")[0]
    return f"{scheme}{slashes}{user}:***@{tail}" if user else f"{scheme}{slashes}***@{tail}"


def as_redis(url: str) -> str:
    """Return the address with redis-py's scheme, redis:// instead of valkey://."""
    scheme, slashes, location = url.partition("://")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme) + slashes + location


def with_password(url: str, password: str) -> str:
    """Return the address with this password, unless the address has a password."""
    scheme, _, location = url.partition("://")
    # of several Sentinels, in Celery's form, the first has the query
    location, semicolon, more_sentinels = location.partition(";")
    credentials, separator, place = location.rpartition("@")
    if ":" in credentials:
        return url
    login = f"{credentials}:{quote(password, safe='')}"
    return f"{scheme}://{login}@{place if separator else location}{semicolon}{more_sentinels}"


def check_address(url: str) -> str:
    """Return the address in the form that redis-py, `parse_service` or `parse_cluster` reads.

    Raises ValueError for any other text.
    """
    url = _CONSTANT.sub(lambda match: match[1].lower(), as_redis(url))
    has_scheme = url.startswith(("redis://", "rediss://", "unix://", SCHEME)) or is_cluster(url)
    if not has_scheme or len(url.split("://", 1)[1].strip("/")) == 0:
        raise ValueError("not a server address")
    check_rules(url)
    if url.startswith(SCHEME):
        parse_service(url)
    elif is_cluster(url):
        parse_cluster(url)
    return url


@dataclass(frozen=True, slots=True)
class Service:
    """A service that Sentinels watch.

    sentinels: (host, port) of each Sentinel.
    min_others: the number of other Sentinels that a Sentinel must know to be believed.
    db: the server's database.
    login: user and password of the server.
    sentinel_login: user and password of the Sentinels.
    options: the server's other options, as text.
    sentinel_tls: the TLS options of the Sentinels.
    secured: whether the server has TLS.
    sentinel_secured: whether the Sentinels have TLS.
    """

    name: str
    sentinels: tuple[tuple[str, int], ...]
    min_others: int
    db: int
    login: dict[str, str]
    sentinel_login: dict[str, str]
    options: dict[str, str]
    sentinel_tls: dict[str, str]
    secured: bool
    sentinel_secured: bool


def parse_service(url: str) -> Service:
    """Read a sentinel:// address; raises ValueError that says what is missing."""
    first, *more_places = url.removeprefix(SCHEME).replace(f";{SCHEME}", ",").split(",")
    places = [urlsplit(f"//{place}") for place in (first, *more_places)]
    options = dict(parse_qsl(places[-1].query))
    name = options.pop("service", "")
    if not name:
        raise BadAddress(
            "it must end in ?service=NAME, the name by which the Sentinels know the primary"
        )
    sentinel_login = {
        "username": options.pop("sentinel_username", None),
        "password": options.pop("sentinel_password", None),
    }
    min_others = int(options.pop("min_other_sentinels", "0"))
    sentinel_tls = {
        key.removeprefix("sentinel_"): options.pop(key)
        for key in [*options]
        if key.startswith("sentinel_ssl")
    }
    ssl = options.pop("ssl", "").lower() in _TRUE
    tls = {key: value for key, value in options.items() if key.startswith("ssl_")}
    sentinel_ssl = sentinel_tls.pop("ssl", "true" if sentinel_tls else "").lower()
    return Service(
        name,
        sentinels=tuple((_host(place.hostname), place.port or PORT) for place in places),
        min_others=min_others,
        db=_db([place.path for place in places]),
        login=_unquoted({"username": places[0].username, "password": places[0].password}),
        sentinel_login=_unquoted(sentinel_login),
        options=options,
        sentinel_tls=sentinel_tls if sentinel_ssl else tls,
        secured=ssl or bool(tls),
        sentinel_secured=sentinel_ssl in _TRUE if sentinel_ssl else ssl or bool(tls),
    )


@dataclass(frozen=True, slots=True)
class Seeds:
    """Some servers of a Redis Cluster, as 'HOST:PORT'.

    login, options and secured mean the same as in `Service`.
    """

    servers: tuple[str, ...]
    login: dict[str, str]
    options: dict[str, str]
    secured: bool


def is_cluster(url: str) -> bool:
    """Return True for the address of a Redis Cluster."""
    return url.partition("://")[0] in _CLUSTERS


def parse_cluster(url: str) -> Seeds:
    """Read the address of a Redis Cluster; raises ValueError that says what is wrong."""
    scheme, _, location = url.partition("://")
    places = [urlsplit(f"//{place}") for place in location.split(",")]
    options = dict(parse_qsl(places[-1].query))
    if _db([place.path for place in places]) or options.pop("db", "0") != "0":
        raise BadAddress("a Redis Cluster has database 0 only")
    return Seeds(
        tuple(
            f"{_host(place.hostname, CLUSTER_FORM)}:{place.port or _CLUSTER_PORT}"
            for place in places
        ),
        _unquoted({"username": places[0].username, "password": places[0].password}),
        options,
        scheme in ("rediss+cluster", "valkeys+cluster"),
    )


def _host(name: str | None, form: str = "sentinel://HOST:PORT,HOST:PORT/DB?service=NAME") -> str:
    if not name:
        raise BadAddress(f"a host is missing: it must be {form}")
    return name


def _db(paths: list[str]) -> int:
    named = [path.strip("/") for path in paths if path.strip("/")]
    return int(named[0]) if named else 0


def _unquoted(login: dict[str, str | None]) -> dict[str, str]:
    return {key: unquote(value) for key, value in login.items() if value}

"""The address of an app's broker, as parsync's settings write addresses.

By default the broker's server is parsync's server.

kombu makes its connection from the URL, `broker_use_ssl` and `broker_transport_options`. Guards,
and schedulers beside workers, get an address only. So the address carries these settings, as
options that model/address_rules.py lists. A setting that text cannot carry is refused: a placed
task must not use another login or another trust than a plain task (docs/decisions/0051).
"""

from __future__ import annotations

import math
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeGuard
from urllib.parse import urlencode, urlsplit

from kombu import Connection

from ..errors import InvalidInput
from ..model.address import SCHEME, as_redis, is_cluster, safe_url
from ..model.address_rules import KEEPALIVE_OPTIONS, TLS_OPTIONS
from ..model.ids import shown

_SOCKET_FILES: Final = {"redis+socket://": "unix://", "socket://": "unix://"}
_OF_TCP: Final = ("socket_connect_timeout", "socket_keepalive", "socket_keepalive_options")
"""Options that kombu leaves out for a socket file."""

_CERT_REQS: Final[Mapping[object, str]] = {
    ssl.CERT_NONE: "none",
    ssl.CERT_OPTIONAL: "optional",
    ssl.CERT_REQUIRED: "required",
}


def broker_address(connection: Connection) -> str | None:
    """Return the address of a kombu connection's broker, as `PARSYNC_URL` names it.

    None if the broker is not Redis. Raises InvalidInput for a Redis Cluster, for Sentinels without
    the service that they watch, and for a setting that an address cannot carry.
    """
    if callable(connection.password) and connection.transport.driver_type == "redis":
        raise _no_provider("the app's broker")
    broker = str(connection.as_uri(include_password=True))
    if is_cluster(broker):
        raise InvalidInput(
            f"the app's broker is {safe_url(broker)}, but Celery cannot use a Redis Cluster as "
            "broker: name one server as the broker, and the cluster with Parsync(app, url=...) or "
            "PARSYNC_URL"
        )
    if not broker.startswith(SCHEME) and redis_url(broker) is None:
        return None
    if getattr(connection, "credential_provider", None) or "credential_provider=" in broker:
        raise _no_provider("the app's broker")
    tls = tls_options(connection.ssl, "broker_use_ssl")
    options = connection.transport_options or {}
    if broker.startswith(SCHEME):
        return _sentinels(connection, broker, options, tls)
    url = redis_url(broker) or ""
    carried = transport_options(options)
    if url.startswith("unix://"):
        if tls is not None:
            raise InvalidInput(
                f"the app's broker is {safe_url(broker)}, but a socket file has no TLS: remove "
                "broker_use_ssl"
            )
        return _with(url, {name: value for name, value in carried.items() if name not in _OF_TCP})
    if tls is not None:
        url = f"rediss://{url.partition('://')[2]}"
    return _with(url, {**(tls or {}), **carried})


def redis_url(broker: str) -> str | None:
    """Return a kombu broker URL with redis-py's scheme, None if the broker is not Redis."""
    if broker.startswith(("redis://", "rediss://", "valkey://", "valkeys://")):
        return as_redis(broker.split(";")[0])
    for prefix, scheme in _SOCKET_FILES.items():
        if broker.startswith(prefix):
            return scheme + broker.removeprefix(prefix).replace("virtual_host=", "db=")
    return None


def transport_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return the transport options of each connection, as options of an address.

    Options of kombu's queues and pool mean nothing to parsync. Nor does `retry_on_timeout`, because
    parsync repeats requests itself. Raises InvalidInput for a value of another type.
    """
    writers: dict[str, Callable[[object], str]] = {
        "client_name": str,
        "health_check_interval": lambda value: str(math.ceil(_number(value))),
        "socket_connect_timeout": _seconds,
        "socket_keepalive": lambda value: str(bool(value)).lower(),
        "socket_keepalive_options": _keepalive,
        "socket_timeout": _seconds,
    }
    carried: dict[str, str] = {}
    for name, write in writers.items():
        value = options.get(name)
        if value is None or value == {}:
            continue
        try:
            carried[name] = write(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise InvalidInput(
                f"{name}={shown(value)} in broker_transport_options is not valid: it must be what "
                "redis-py takes"
            ) from None
    return carried


def _number(value: object) -> float:
    if not isinstance(value, int | float | str):
        raise TypeError("not a number")
    return float(value)


def _seconds(value: object) -> str:
    return f"{_number(value):.6f}".rstrip("0").rstrip(".")


def _keepalive(value: object) -> str:
    if not isinstance(value, Mapping):
        raise TypeError("not a mapping")
    names = {getattr(socket, name): name for name in KEEPALIVE_OPTIONS if hasattr(socket, name)}
    return ",".join(f"{names[option]}:{int(number)}" for option, number in value.items())


def _sentinels(
    connection: Connection,
    broker: str,
    options: Mapping[str, object],
    tls: Mapping[str, str] | None,
) -> str:
    """Return the address of Sentinels.

    kombu speaks TLS to Sentinels only if `sentinel_kwargs` says so.
    """
    if not options.get("master_name"):
        raise InvalidInput(
            f"the app's broker is {safe_url(broker)}, but which service is not said: "
            "set broker_transport_options = {'master_name': ...}"
        )
    kwargs = options.get("sentinel_kwargs")
    sentinel: Mapping[str, object] = kwargs if isinstance(kwargs, Mapping) else {}
    if sentinel.get("credential_provider"):
        raise _no_provider("sentinel_kwargs")
    query = {"service": str(options["master_name"])}
    for name in ("username", "password"):
        if sentinel.get(name):
            query[f"sentinel_{name}"] = str(sentinel[name])
    if options.get("min_other_sentinels"):
        query["min_other_sentinels"] = str(options["min_other_sentinels"])
    if sentinel.get("ssl"):
        tls_kwargs = {name: value for name, value in sentinel.items() if name.startswith("ssl_")}
        query["sentinel_ssl"] = "true"
        query |= {
            f"sentinel_{name}": value
            for name, value in (tls_options(tls_kwargs, "sentinel_kwargs") or {}).items()
        }
    elif tls is not None:
        query["sentinel_ssl"] = "false"
    if tls is not None:
        query |= {"ssl": "true", **tls}
    other_hosts = [urlsplit(str(place)).netloc.rpartition("@")[2] for place in connection.alt[1:]]
    places = [broker, *(f"{SCHEME}{place}" for place in other_hosts)]
    return _with(";".join(places), {**query, **transport_options(options)})


def _with(url: str, options: Mapping[str, str]) -> str:
    if not options:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(options)}"


def _no_provider(where: str) -> InvalidInput:
    return InvalidInput(
        f"{where} has a credential provider, and parsync's other processes cannot have that "
        "object: give parsync a login of its own with Parsync(app, url=...) or PARSYNC_URL"
    )


def tls_options(ssl_options: object, setting: str) -> dict[str, str] | None:
    """Return redis-py's `ssl_...` arguments as TLS options of an address, None for no TLS.

    setting: the name of the dict, for messages. Raises InvalidInput for True, and for an argument
    that an address cannot carry.
    """
    if not ssl_options:
        return None
    if not isinstance(ssl_options, Mapping):
        raise InvalidInput(
            f"{setting}={shown(ssl_options)} is not valid: with it Celery speaks no TLS to "
            "Redis, and sends the password in clear; it must be a dict, "
            "such as {'ssl_cert_reqs': 'required', 'ssl_ca_certs': FILE}"
        )
    options: dict[str, str] = {}
    for name, value in ssl_options.items():
        if name not in TLS_OPTIONS:
            raise InvalidInput(
                f"{setting} has {shown(name)}, which no address can carry to parsync's other "
                f"processes: use {', '.join(TLS_OPTIONS)}, "
                "or name parsync's server with Parsync(app, url=...) or PARSYNC_URL"
            )
        if name == "ssl_cert_reqs":
            options[name] = _cert_reqs(value, setting)
        elif value is not None and (text := _text(name, value, setting)):
            options[name] = text
    return options


def _cert_reqs(value: object, setting: str) -> str:
    """Return the word of redis-py for a value of ssl_cert_reqs.

    None is "none" to redis-py. kombu also knows the names of Python's constants.
    """
    if isinstance(value, str):
        word = value.removeprefix("CERT_").lower()
    else:
        word = _CERT_REQS.get(value or ssl.CERT_NONE, "") if isinstance(value, int | None) else ""
    if word not in _CERT_REQS.values():
        raise InvalidInput(
            f"ssl_cert_reqs={shown(value)} in {setting} is not valid: it must be none, optional or "
            "required"
        )
    return word


def _are_numbers(value: object) -> TypeGuard[Sequence[int]]:
    return isinstance(value, list | tuple) and all(isinstance(flag, int) for flag in value)


def _text(name: str, value: object, setting: str) -> str:
    if name == "ssl_check_hostname":
        return str(bool(value)).lower()
    if name.endswith("verify_flags") and _are_numbers(value):
        return ",".join(ssl.VerifyFlags(flag).name or shown(flag) for flag in value)
    if name == "ssl_min_version" and isinstance(value, int):
        return str(int(value))
    if isinstance(value, str | os.PathLike) and not name.endswith("verify_flags"):
        return os.fsdecode(value)
    shown_value = "" if "password" in name or "data" in name else f"={shown(value)}"
    raise InvalidInput(
        f"{name}{shown_value} in {setting} is not valid: an address can carry no "
        f"{type(value).__name__} here"
    )

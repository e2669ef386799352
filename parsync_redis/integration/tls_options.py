"""TLS options of an address, from the Python settings of kombu and redis-py."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from ..errors import InvalidInput
from ..model.address_rules import TLS_OPTIONS
from ..model.ids import shown

_CERT_REQS: Final[Mapping[object, str]] = {
    ssl.CERT_NONE: "none",
    ssl.CERT_OPTIONAL: "optional",
    ssl.CERT_REQUIRED: "required",
}


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

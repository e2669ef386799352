"""The rules for the address of a server: options and values, host, port, path and database.

redis-py would pass on an option that it does not know, and then fail to connect without a clear
message, or connect to a wrong server. So parsync checks an address itself.
"""

import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_WHOLE_NUMBER: Final = (r"\d{1,9}", "a whole number")
_POSITIVE_SECONDS: Final = (r"(?!0*\.?0*$)\d{1,6}(\.\d{1,6})?", "a number of seconds above 0")
_BOOLEAN: Final = (r"(?i:true|false|yes|no|1|0|t|f|y|n)", "true or false")
_ANY_TEXT: Final = (r"[^\0]+", "some text")
_VERIFY_FLAG: Final = f"({'|'.join(ssl.VerifyFlags.__members__)})"
_VERIFY_FLAGS: Final = (
    f"{_VERIFY_FLAG}(,{_VERIFY_FLAG})*",
    "names such as VERIFY_X509_STRICT, with commas",
)

KEEPALIVE_OPTIONS: Final = ("TCP_KEEPCNT", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_USER_TIMEOUT")
"""The socket options that `socket_keepalive_options` may set."""
_KEEPALIVE_OPTION: Final = rf"({'|'.join(KEEPALIVE_OPTIONS)}):\d{{1,9}}"

COMMON_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "client_name": (r"[!-~]+", "text without spaces"),
    "db": _WHOLE_NUMBER,
    "health_check_interval": _WHOLE_NUMBER,
    "max_connections": (r"[1-9]\d{0,8}", "a whole number above 0"),
    "password": _ANY_TEXT,
    "protocol": (r"[23]", "2 or 3"),
    "retry_on_timeout": _BOOLEAN,
    "socket_connect_timeout": _POSITIVE_SECONDS,
    "socket_keepalive": _BOOLEAN,
    "socket_keepalive_options": (
        f"{_KEEPALIVE_OPTION}(,{_KEEPALIVE_OPTION})*",
        f"NAME:NUMBER with commas, of {', '.join(KEEPALIVE_OPTIONS)}",
    ),
    "socket_read_size": (r"[1-9]\d{0,8}", "a whole number above 0"),
    "socket_timeout": _POSITIVE_SECONDS,
    "username": _ANY_TEXT,
}
"""{option of every address: (pattern of its value, the pattern in words)}."""

TLS_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "ssl_ca_certs": _ANY_TEXT,
    "ssl_ca_data": _ANY_TEXT,
    "ssl_ca_path": _ANY_TEXT,
    "ssl_cert_reqs": (r"none|optional|required", "none, optional or required"),
    "ssl_certfile": _ANY_TEXT,
    "ssl_check_hostname": _BOOLEAN,
    "ssl_ciphers": _ANY_TEXT,
    "ssl_exclude_verify_flags": _VERIFY_FLAGS,
    "ssl_include_verify_flags": _VERIFY_FLAGS,
    "ssl_keyfile": _ANY_TEXT,
    "ssl_min_version": (r"769|77[0-2]", "771 (TLS 1.2) or 772 (TLS 1.3)"),
    "ssl_password": _ANY_TEXT,
}
"""The options of an address with TLS, and the rule of each value."""

SENTINEL_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "min_other_sentinels": _WHOLE_NUMBER,
    "sentinel_password": _ANY_TEXT,
    "sentinel_ssl": _BOOLEAN,
    "sentinel_username": _ANY_TEXT,
    **{f"sentinel_{name}": rule for name, rule in TLS_OPTIONS.items()},
    "service": _ANY_TEXT,
    "ssl": _BOOLEAN,
}
"""The options of an address with Sentinels, and the rule of each value."""


class BadAddress(ValueError):
    """The error of an address; its message has no password."""


def check_rules(url: str) -> None:
    """Raise BadAddress for a part of the address that breaks a rule.

    The caller has checked the scheme.
    """
    if unsafe := re.search(r"[\0-\x20\x7f]|[\ud800-\udfff]", url):
        raise BadAddress(f"it contains {unsafe[0]!a}: such a character is written %XX")
    scheme, _, location = url.partition("://")
    location = location.replace(";sentinel://", ",")
    places = [location] if scheme in ("redis", "rediss", "unix") else location.split(",")
    for place in places:
        _check_place(scheme, place)
    _check_options(scheme, parse_qsl(_query(places), keep_blank_values=True))


def _query(places: Iterable[str]) -> str:
    """Return the options (query) of an address, which stand behind its last host."""
    *earlier_options, options = [place.partition("#")[0].partition("?")[2] for place in places]
    if any(earlier_options):
        raise BadAddress("options come last, behind all hosts")
    return options


def _check_place(scheme: str, place: str) -> None:
    # what stands there may be a password
    if scheme != "unix" and "@" in (re.search(r"[/?#].*|$", place) or [""])[0]:
        raise BadAddress("special characters in a user or a password are written %XX")
    try:
        parts = urlsplit(f"//{place}")
        port = parts.port
    except ValueError:
        raise BadAddress(
            "its host or port cannot be read: a port is a number from 1 to 65535, an IPv6 address "
            "is in brackets, and special characters in a password are written %XX"
        ) from None
    if parts.fragment or "#" in place:
        raise BadAddress("it contains #: such a character is written %23")
    if scheme == "unix":
        if "\0" in unquote(parts.path) or not parts.path.strip("/"):
            raise BadAddress("it names no socket: it must be unix:///PATH")
        return
    if port == 0:
        raise BadAddress("a port is a number from 1 to 65535")
    host = unquote(parts.hostname or "")
    if host and not _is_host(host):
        raise BadAddress(f"{host!a} is no host")
    if not re.fullmatch(r"\d{0,9}", unquote(parts.path).strip("/")):
        raise BadAddress(f"{unquote(parts.path).strip('/')!a} is no database: it must be a number")


def _is_host(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return re.fullmatch(r"[^\0-\x20\x7f/@]+", host) is not None


def _check_options(scheme: str, options: Iterable[tuple[str, str]]) -> None:
    secured = scheme.startswith(("rediss", "valkeys", "sentinel"))
    rules = {
        **COMMON_OPTIONS,
        **(TLS_OPTIONS if secured else {}),
        **(SENTINEL_OPTIONS if scheme == "sentinel" else {}),
    }
    if scheme == "unix":
        for name in ("socket_keepalive", "socket_keepalive_options"):
            rules.pop(name)
    names: set[str] = set()
    for name, value in options:
        if name in TLS_OPTIONS and not secured:
            raise BadAddress(f"the option {name} needs TLS: use rediss:// or rediss+cluster://")
        if name not in rules:
            raise BadAddress(
                f"there is no option {name!a:.80}; known are {', '.join(sorted(rules))}"
            )
        if name in names:
            raise BadAddress(f"the option {name} is given twice")
        names.add(name)
        pattern, right = rules[name]
        if not re.fullmatch(pattern, value):
            shown_value = "" if "password" in name or "data" in name else f"={value!a:.80}"
            raise BadAddress(f"the option {name}{shown_value} is not valid: it must be {right}")

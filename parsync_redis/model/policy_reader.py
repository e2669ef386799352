"""Read the document of a policy, TOML. Pure.

    [tenants]                    # the root
    children = "strict"
    [tenants."research"]
    weight = 3
    at_least = {gpu = 4, slots = 20}
    [limits."stripe"]
    at_once = 5
    rate = "100/m"

A document with a mistake is refused as a whole; the error names each mistake.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ..errors import InvalidInput
from .account import (
    ACCOUNT_WORDS,
    LIMIT_PATTERN,
    NO_TENANT,
    RESERVED_AMOUNTS,
    check_limit,
    check_tenant,
)
from .amount import THOUSANDTHS, exact_text, parse_amount
from .ids import close_to, is_name, shown
from .limits import MAX_WORDS
from .policy import (
    AGE,
    FAIR,
    SLOTS_HELD,
    STRICT,
    WORK,
    LimitEntry,
    Policy,
    PolicyAmounts,
    StartRate,
    TenantEntry,
)

MAX_AT_ONCE: Final = 1_000_000
"""The maximum of `at_once`, of the number of a rate, and of `burst`."""
MAX_POLICY_ENTRIES: Final = 1000
"""The maximum number of tenants and limits in a policy; patterns cover any number."""
MAX_DOCUMENT_BYTES: Final = 256 * 2**10
"""The maximum size of the document."""

TENANT_KEYS: Final = ("weight", "at_least", "at_most", "children", "order", "half_life")
"""The keys of a tenant's entry."""
LIMIT_KEYS: Final = ("at_once", "rate", "burst")
"""The keys of a limit's entry."""
ROOT_KEYS: Final = ("children", "count")
"""The keys of `[tenants]` beside the names of tenants."""
PERIODS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""The units of rates and durations, in milliseconds."""
_RATE_TEXT: Final = re.compile(r"(\d{1,7})/([smhd])", re.ASCII)
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", re.ASCII)
_ORDER: Final = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_LIMITS_PATTERN: Final = re.compile(rf"{LIMIT_PATTERN}", re.ASCII)
_MAX_MISTAKES: Final = 10
"""Maximum number of mistakes that an error names."""

_WHOLE: Final = f"a whole number from {{}} to {MAX_AT_ONCE:,}"

T = TypeVar("T")


def read_policy(text: str) -> Policy:
    """Return the policy that a TOML document says; raises InvalidInput with each mistake."""
    if len(text.encode(errors="replace")) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(f"a policy has at most {MAX_DOCUMENT_BYTES // 1024} KiB")
    try:
        return policy_of(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"the policy is not TOML: {error}") from None
    except RecursionError:
        raise InvalidInput("the policy is not valid: its tables are nested too deep") from None


def policy_of(document: Mapping[str, Any]) -> Policy:
    """Return the policy of a document that was read; raises InvalidInput with each mistake."""
    reader = _Reader()
    policy = reader.read(document)
    if reader.mistakes:
        unnamed = len(reader.mistakes) - _MAX_MISTAKES
        suffix = f"; and {unnamed} more mistakes" if unnamed > 0 else ""
        raise InvalidInput("; ".join(reader.mistakes[:_MAX_MISTAKES]) + suffix)
    return policy


def read_declared(limits: object) -> Mapping[str, LimitEntry]:
    """Return the limits that an app declares: {"stripe": 5, "api": {"rate": "100/m"}}.

    A number stands for `at_once`. Raises InvalidInput with each mistake.
    """
    if not isinstance(limits, Mapping):
        raise InvalidInput(
            f"limits={shown(limits)} is not valid: it must be a dict such as "
            '{"stripe": 5, "api": {"at_once": 5, "rate": "100/m"}}'
        )
    for name, value in limits.items():
        if not isinstance(name, str):
            raise InvalidInput(f"limits: {shown(name)} is not valid: the name of a limit is text")
        if not isinstance(value, (int, Mapping)):
            raise InvalidInput(
                f"limits.{name} must be a whole number, or a dict such as "
                f'{{"at_once": 5, "rate": "100/m"}}, not {shown(value)}'
            )
    tables = {
        name: {"at_once": value} if isinstance(value, int) else value
        for name, value in limits.items()
    }
    return policy_of({"limits": tables}).limits


def usual_burst(rate: StartRate) -> int:
    """Return the burst of a rate without a burst of its own: a tenth of the rate's number."""
    return max(1, rate.number // 10)


class _Reader:
    """Reads a document, and gathers its mistakes as sentences."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def read(self, document: Mapping[str, Any]) -> Policy:
        """Return the policy; it counts only if there are no mistakes."""
        self._check_keys("", document, ("tenants", "limits"))
        tenants = self._table("tenants", document.get("tenants", {}))
        limits = self._table("limits", document.get("limits", {}))
        root = {key: value for key, value in tenants.items() if not isinstance(value, Mapping)}
        self._check_keys("tenants.", root, ROOT_KEYS)
        tenant_tables = {key: value for key, value in tenants.items() if key not in root}
        if len(tenant_tables) + len(limits) > MAX_POLICY_ENTRIES:
            count = len(tenant_tables) + len(limits)
            self.mistakes.append(
                f"{count:,} entries are too many: a policy has {MAX_POLICY_ENTRIES:,}; a pattern, "
                "such as customer:*, covers any number"
            )
        tenant_entries = {
            name: self._tenant(name, table, rank)
            for rank, (name, table) in enumerate(tenant_tables.items())
        }
        limit_entries = {name: self._limit(name, table) for name, table in limits.items()}
        return Policy(
            self._value("tenants.", root, "children", FAIR, _read_children),
            MappingProxyType(tenant_entries),
            MappingProxyType(limit_entries),
            self._value("tenants.", root, "count", SLOTS_HELD, _read_count),
        )

    def _tenant(self, name: str, table: Mapping[str, Any], rank: int) -> TenantEntry:
        self._check_name(name, _check_tenant_entry)
        path = f"tenants.{name}."
        self._check_keys(path, table, TENANT_KEYS)
        at_least = self._amounts(path, table, "at_least")
        at_most = self._amounts(path, table, "at_most")
        for key, amounts in (("at_least", at_least), ("at_most", at_most)):
            if name == NO_TENANT and amounts:
                self.mistakes.append(f"{path}{key} cannot be: no account counts tasks without one")
        if name == NO_TENANT and table.get("order", AGE) != AGE:
            self.mistakes.append(f"{path}order cannot be: tasks without a tenant go by age")
        most_by_name = dict(at_most)
        for resource, amount in at_least:
            most = most_by_name.get(resource, amount)
            if amount > most:
                self.mistakes.append(
                    f"{path}at_least {resource}={exact_text(amount)} is more than its at_most "
                    f"{resource}={exact_text(most)}"
                )
        return TenantEntry(
            self._value(path, table, "weight", 1.0, _read_weight),
            at_least,
            at_most,
            self._value(path, table, "children", FAIR, _read_children),
            self._value(path, table, "order", TenantEntry().order, _read_order),
            self._value(path, table, "half_life", 0.0, _read_half_life),
            rank,
        )

    def _limit(self, name: str, value: object) -> LimitEntry:
        table = self._table(f"limits.{name}", value)
        self._check_name(name, _check_limit_entry)
        path = f"limits.{name}."
        self._check_keys(path, table, LIMIT_KEYS)
        at_once = self._value(path, table, "at_once", None, _read_at_once)
        rate = self._value(path, table, "rate", None, _read_rate)
        default_burst = 0 if rate is None else usual_burst(rate)
        burst = self._value(path, table, "burst", default_burst, _read_burst)
        if not table.keys() & {"at_once", "rate"} and isinstance(value, Mapping):
            self.mistakes.append(f'limits.{name} must have at_once = 5, rate = "100/m", or both')
        if "burst" in table and "rate" not in table:
            self.mistakes.append(f"{path}burst counts only with a rate: add {path}rate")
        return LimitEntry(at_once, rate, burst)

    def _amounts(self, path: str, table: Mapping[str, Any], key: str) -> PolicyAmounts:
        none: PolicyAmounts = ()
        return self._value(path, table, key, none, _read_amounts)

    def _check_name(self, name: str, check: Callable[[str], object]) -> None:
        try:
            check(name)
        except InvalidInput as error:
            self.mistakes.append(str(error))

    def _check_keys(self, path: str, table: Mapping[str, Any], valid: tuple[str, ...]) -> None:
        for key in table:
            if key in valid:
                continue
            close = close_to(key, valid)
            hint = f"did you mean {close}?" if close else f"known are {', '.join(valid)}"
            section, _, name = path.rstrip(".").partition(".")
            if isinstance(table[key], Mapping) and name:
                inner = f"{name}/{key}" if section == "tenants" else f"{name}.{key}"
                hint = f'did you mean [{section}."{inner}"]?'
            self.mistakes.append(f"unknown key {path}{key}; {hint}")

    def _table(self, path: str, value: object) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        self.mistakes.append(f"{path} must be a table, [{path}], not {shown(value)}")
        return {}

    def _value(
        self,
        path: str,
        table: Mapping[str, Any],
        key: str,
        default: T,
        read: Callable[[str, Any], T],
    ) -> T:
        """Return the value of a key, the default without one or for a mistake."""
        if key not in table:
            return default
        try:
            return read(f"{path}{key}", table[key])
        except InvalidInput as error:
            self.mistakes.append(str(error))
            return default


def _check_tenant_entry(name: str) -> None:
    parent = name.removesuffix("/*")
    if name not in ("*", NO_TENANT) and (parent == name or parent.count("/") < 2):
        check_tenant(parent)
    elif name not in ("*", NO_TENANT):
        raise InvalidInput(f"tenant {shown(name)} is not valid: a tenant has three words at most")


def _check_limit_entry(name: str) -> None:
    head, colon, last = name.partition(":")
    if last == "*" and colon and _LIMITS_PATTERN.fullmatch(head):
        return
    if "*" in name:
        raise InvalidInput(
            f"limit {shown(name)} is not valid: a pattern is a name and its first colon, such as "
            "customer:*"
        )
    check_limit(name)


def _must(path: str, value: object, right: str) -> InvalidInput:
    return InvalidInput(f"{path} must be {right}, not {shown(value)}")


def _is_whole(value: object, least: int) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and least <= value <= MAX_AT_ONCE  # type: ignore[operator]


def _read_at_once(path: str, value: Any) -> int | None:
    if not _is_whole(value, 0):
        raise _must(path, value, _WHOLE.format(0))
    return int(value)


def _read_burst(path: str, value: Any) -> int:
    if not _is_whole(value, 1):
        raise _must(path, value, _WHOLE.format(1))
    return int(value)


def _read_rate(path: str, value: Any) -> StartRate | None:
    match = _RATE_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[1]) <= MAX_AT_ONCE:
        right = f'a text such as "100/m": 1 to {MAX_AT_ONCE:,} in one s, m, h or d'
        raise _must(path, value, right)
    return StartRate(int(match[1]), PERIODS_MS[match[2]])


def _read_weight(path: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0.001 <= value <= MAX_AT_ONCE:
        raise _must(path, value, f"a number from 0.001 to {MAX_AT_ONCE:,}")
    return float(value)


def _read_children(path: str, value: Any) -> str:
    if value not in (FAIR, STRICT):
        raise _must(path, value, '"fair" or "strict"')
    return str(value)


def _read_count(path: str, value: Any) -> str:
    if value not in (SLOTS_HELD, WORK):
        raise _must(path, value, '"held" or "work"')
    return str(value)


def _read_order(path: str, value: Any) -> str:
    if not isinstance(value, str) or not _ORDER.fullmatch(value) or value in (FAIR, STRICT):
        hint = f"; {path.removesuffix('order')}children takes it" if value in (FAIR, STRICT) else ""
        right = "the name of an order, such as age, shortest or least"
        raise InvalidInput(f"{_must(path, value, right)}{hint}")
    return value


def _read_half_life(path: str, value: Any) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(match[1]) * PERIODS_MS[match[2]] / 1000 if match else math.inf
    if seconds > 365 * 86_400:
        raise _must(path, value, 'a text such as "0s", "90s", "30m", "2h" or "7d", up to "365d"')
    return seconds


def _read_amounts(path: str, value: Any) -> PolicyAmounts:
    if not isinstance(value, Mapping):
        raise _must(path, value, "a table such as {slots = 20, gpu = 4}")
    if len(value) > MAX_WORDS:
        raise InvalidInput(f"{path} has {len(value)} amounts: there may be {MAX_WORDS}")
    amounts: dict[str, int] = {}
    for name, amount in value.items():
        if not is_name("resource name", name) or name in (*RESERVED_AMOUNTS, *ACCOUNT_WORDS):
            raise InvalidInput(f"{path}.{name} must be slots or the name of a resource")
        try:
            amounts[name] = parse_amount(name, amount)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
        if name == "slots" and amounts[name] % THOUSANDTHS:
            raise _must(f"{path}.slots", amount, "a whole number")
    return tuple(sorted(amounts.items(), key=lambda pair: (pair[0] != "slots", pair[0])))

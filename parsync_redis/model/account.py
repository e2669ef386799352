"""Accounts: what tasks count to while they are taken, placed or running.

An account is a tenant, a limit or a key. A task for the tenant `research/anna` counts to the
accounts `@research` and `@research/anna`. A task under the limit `stripe` counts to the account
`stripe`, a task with the rule `warm:llama` (model/preferences.py) to the account `~llama` of a key.
A shard of the queue has for each account what the tasks of the account hold, and their ids
(lua/lib/kind/accounts.lua). A *ceiling* is what they may hold at most; a key has none.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ..errors import InvalidInput
from .ids import shown

MAX_LIMITS: Final = 8
"""The maximum number of limits of a task."""
MAX_UNITS: Final = 1000
"""The maximum number of units of a limit that one task holds."""
TENANT_MARK: Final = "@"
"""The first character of a tenant's account."""
KEY_MARK: Final = "~"
"""The first character of the account of a key."""
NO_TENANT: Final = "-"
"""The tenant of tasks without a tenant."""
ACCOUNT_WORDS: Final = ("next", "units", "shards", "rate", "burst")
"""Names of resources that do not count to tenants: words of an account's line or ceiling."""
RESERVED_AMOUNTS: Final = ("for", "under", "prefer")
"""Names that no resource may have: words of a kind begin with them."""

_TENANT_WORD: Final = r"[a-z0-9][a-z0-9_.-]{0,31}"
_TENANT: Final = re.compile(rf"{_TENANT_WORD}(?:/{_TENANT_WORD}){{0,2}}", re.ASCII)
LIMIT_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.:@+/-]{0,127}"
"""The name of a limit, as a regular expression."""
_LIMIT: Final = re.compile(LIMIT_PATTERN, re.ASCII)
TENANT_RULE: Final = (
    "up to three words with / between, each 1 to 32 of a-z 0-9 _ . - and not beginning with _ . -"
)
_LIMITS: Final = re.compile(
    rf"{LIMIT_PATTERN}(?:\*\d{{1,4}})?(?:,{LIMIT_PATTERN}(?:\*\d{{1,4}})?)*", re.ASCII
)


class Account(NamedTuple):
    """An account of a task, and how many units of the account one task holds.

    name: `@research/anna` for a tenant, `stripe` for a limit, `~llama` for a key. units: 1 for a
    tenant and a key.
    """

    name: str
    units: int = 1

    @property
    def is_tenant(self) -> bool:
        """Return whether the account is a tenant's."""
        return self.name.startswith(TENANT_MARK)


def is_tenant(name: str) -> bool:
    """Return whether a text is the name of a tenant."""
    return _TENANT.fullmatch(name) is not None


def is_limit(account: str) -> bool:
    """Return whether an account is that of a limit: neither a tenant's nor a key's."""
    return not account.startswith((TENANT_MARK, KEY_MARK))


def check_tenant(value: object) -> str:
    """Return the name of a tenant; raises InvalidInput."""
    if not isinstance(value, str) or not _TENANT.fullmatch(value):
        raise InvalidInput(f"tenant={shown(value)} is not valid: it must be {TENANT_RULE}")
    return value


def check_limit(value: object) -> str:
    """Return the name of a limit; raises InvalidInput."""
    if not isinstance(value, str) or not _LIMIT.fullmatch(value):
        raise InvalidInput(
            f"limit {shown(value)} is not valid: it must be 1 to 128 of A-Z a-z 0-9 _ . : @ + / - "
            "and begin with a letter or a digit"
        )
    return value


def limits_text(limits: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the text of the limits of a task, 'customer:7,stripe*2'; raises InvalidInput.

    limits: names, or name -> units.
    """
    units_by_name = dict(limits) if isinstance(limits, Mapping) else dict.fromkeys(limits, 1)
    if not isinstance(limits, Mapping) and len(units_by_name) < len(limits):
        twice = next(name for name in limits if list(limits).count(name) > 1)
        raise InvalidInput(f"limit {shown(twice)} is given twice; units are {{{shown(twice)}: 2}}")
    if len(units_by_name) > MAX_LIMITS:
        raise InvalidInput(f"{len(units_by_name)} limits are too many: a task has {MAX_LIMITS}")
    words = []
    for name, units in sorted(units_by_name.items()):
        check_limit(name)
        if not isinstance(units, int) or isinstance(units, bool) or not 1 <= units <= MAX_UNITS:
            raise InvalidInput(
                f"limits={{{shown(name)}: {shown(units)}}} is not valid: units are a whole number "
                f"from 1 to {MAX_UNITS:,}"
            )
        words.append(name if units == 1 else f"{name}*{units}")
    return ",".join(words)


@lru_cache(maxsize=4096)
def tenant_accounts(tenant: str) -> tuple[Account, ...]:
    """Return the accounts of a tenant, from the root down: `@a`, `@a/b`; none for ''."""
    if not tenant:
        return ()
    words = tenant.split("/")
    return tuple(Account(TENANT_MARK + "/".join(words[: depth + 1])) for depth in range(len(words)))


@lru_cache(maxsize=4096)
def limits_of(text: str) -> tuple[Account, ...]:
    """Return the accounts of the limits in a kind's text."""
    words = (word.partition("*") for word in text.split(",") if word)
    return tuple(Account(name, int(units) if units.isdecimal() else 1) for name, _, units in words)


def are_accounts(tenant: str, limits: str) -> bool:
    """Return whether these are the tenant and the limits of a kind; both may be ''."""
    if tenant and not _TENANT.fullmatch(tenant):
        return False
    if not limits:
        return True
    if not _LIMITS.fullmatch(limits):
        return False
    accounts = limits_of(limits)
    return len(accounts) <= MAX_LIMITS and all(
        0 < account.units <= MAX_UNITS for account in accounts
    )


def pattern_of(account: str) -> str:
    """Return the entry of the policy that counts for an account without an entry of its own.

    `customer:7` -> `customer:*`, `@acme` -> `@*`, `@research/anna` -> `@research/*`; '' for a limit
    without a colon.
    """
    if account.startswith(TENANT_MARK):
        parent, slash, _ = account.rpartition("/")
        return f"{parent}{slash}*" if slash else f"{TENANT_MARK}*"
    head, colon, _ = account.partition(":")
    return f"{head}:*" if colon else ""


def is_account_change(name: bytes) -> bool:
    """Return whether an entry of `changed` is an account, '=stripe', and no kind.

    A kind has a space.
    """
    return name.startswith(b"=") and b" " not in name


def check_amount_name(name: str) -> None:
    """Refuse a resource whose name is a word of a kind; raises InvalidInput."""
    if name in RESERVED_AMOUNTS:
        raise InvalidInput(
            f"resource name {shown(name)} is reserved: tenant=... and limits=... say whom a task "
            "counts to"
        )

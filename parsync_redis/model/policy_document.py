"""Write the document of a policy, set one value of it, and compare two policies in words. Pure."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..errors import InvalidInput
from .amount import amount_number, exact_text
from .ids import close_to, shown
from .policy import FAIR, SLOTS_HELD, LimitEntry, Policy, StartRate, TenantEntry
from .policy_reader import LIMIT_KEYS, PERIODS_MS, ROOT_KEYS, TENANT_KEYS, policy_of, usual_burst


def document_of(policy: Policy) -> dict[str, dict[str, Any]]:
    """Return the document of a policy, as `policy_of` reads it; defaults are left out."""
    tenants: dict[str, Any] = {}
    if policy.children != FAIR:
        tenants["children"] = policy.children
    if policy.count != SLOTS_HELD:
        tenants["count"] = policy.count
    for name, entry in policy.tenants.items():
        tenants[name] = _tenant_table(entry)
    limits = {name: _limit_table(entry) for name, entry in policy.limits.items()}
    return {"tenants": tenants, "limits": limits}


def _tenant_table(entry: TenantEntry) -> dict[str, Any]:
    table: dict[str, Any] = {}
    blank = TenantEntry()
    if entry.weight != blank.weight:
        table["weight"] = int(entry.weight) if entry.weight.is_integer() else entry.weight
    for key, amounts in (("at_least", entry.at_least), ("at_most", entry.at_most)):
        if amounts:
            table[key] = {name: _amount_value(amount) for name, amount in amounts}
    if entry.children != blank.children:
        table["children"] = entry.children
    if entry.order != blank.order:
        table["order"] = entry.order
    if entry.half_life_s:
        table["half_life"] = duration_text(entry.half_life_s)
    return table


def _amount_value(thousandths: int) -> int | float | str:
    """Return an amount as a number, or with its unit if it has one: '4GiB'."""
    text = exact_text(thousandths)
    return amount_number(thousandths) if text[-1].isdecimal() else text


def _limit_table(entry: LimitEntry) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if entry.at_once is not None:
        table["at_once"] = entry.at_once
    if entry.rate is not None:
        table["rate"] = rate_text(entry.rate)
        if entry.burst != usual_burst(entry.rate):
            table["burst"] = entry.burst
    return table


def entry_text(entry: LimitEntry) -> str:
    """Return the values of a limit in one line: 'at_once = 5, rate = "100/m"'."""
    return ", ".join(_value_lines(_limit_table(entry)))


def rate_text(rate: StartRate) -> str:
    """Return a rate as the document has it, '100/m'."""
    unit = next(unit for unit, period_ms in PERIODS_MS.items() if period_ms == rate.period_ms)
    return f"{rate.number}/{unit}"


def duration_text(seconds: float) -> str:
    """Return a duration as the document has it: in the largest unit that divides it."""
    for unit in reversed(PERIODS_MS):
        size = PERIODS_MS[unit] / 1000
        if seconds and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def policy_text(policy: Policy) -> str:
    """Return the TOML document of a policy; `read_policy` reads an equal policy from it."""
    lines: list[str] = []
    for section, tables in document_of(policy).items():
        values = {key: value for key, value in tables.items() if not isinstance(value, dict)}
        if values:
            lines += [f"[{section}]", *_value_lines(values), ""]
        for name, table in tables.items():
            if isinstance(table, dict):
                lines += [f"[{section}.{json.dumps(name)}]", *_value_lines(table), ""]
    return "\n".join(lines)


def _value_lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _toml(value: Any) -> str:
    """Return a value of a document as TOML; its texts are ASCII, so JSON writes them alike."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


_AMOUNT_PATH: Final = re.compile(
    r"(?P<name>.+)\.(?P<key>at_least|at_most)\.(?P<amount>[a-z][a-z0-9_]*)"
)


def with_value(policy: Policy, assignment: str) -> Policy:
    """Return the policy with one value set: 'limits.stripe.at_once=3'; raises InvalidInput.

    The value is TOML, or a plain word: 'limits.stripe.rate=100/m'. An empty value removes the key;
    'limits.stripe=' removes the entry. 'tenants.sales.at_most.slots=2' sets one amount of a key.
    """
    path, equals, word = assignment.partition("=")
    section, dot, rest_of_path = path.strip().partition(".")
    if not equals or not dot or section not in ("tenants", "limits"):
        raise InvalidInput(
            f"{shown(assignment)} is not valid: it must be such as limits.stripe.at_once=3, "
            "tenants.research.weight=2 or tenants.children=strict"
        )
    document = document_of(policy)
    if amount := _AMOUNT_PATH.fullmatch(rest_of_path):
        table = document[section].get(amount["name"].strip('"'), {})
        amounts = {k: v for k, v in table.get(amount["key"], {}).items() if k != amount["amount"]}
        if word.strip():
            amounts[amount["amount"]] = _toml_value(word.strip())
        elif len(amounts) == len(table.get(amount["key"], {})):
            raise InvalidInput(f"{path} is not in the policy, so it cannot be removed")
        document[section][amount["name"].strip('"')] = {**table, amount["key"]: amounts}
        return policy_of(document)
    name, key = _split_path(
        rest_of_path, (*TENANT_KEYS, *ROOT_KEYS) if section == "tenants" else LIMIT_KEYS
    )
    tables = document[section]
    word = word.strip()
    if key and name:
        table = tables.get(name, {})
        if not word and key not in table:
            raise InvalidInput(f"{path} is not in the policy, so it cannot be removed")
        tables[name] = {k: v for k, v in table.items() if k != key}
        if word:
            tables[name] = {**table, key: _toml_value(word)}
    elif word:
        tables[key or name] = _toml_value(word)
    elif tables.pop(key or name, None) is None:
        raise InvalidInput(f"{path} is not in the policy, so it cannot be removed")
    return policy_of(document)


def _split_path(path: str, keys: tuple[str, ...]) -> tuple[str, str]:
    """Return the name and the key of 'stripe.at_once', '"a.b".at_once' or 'a.b.at_once'.

    The key is '' if the path ends with the name; the name is '' for a key of the root.
    """
    if path.startswith('"') and path.endswith('"') and path.count('"') == 2:
        return path.strip('"'), ""
    name, dot, key = path.rpartition(".")
    if not dot:
        return ("", path) if path in keys else (path, "")
    close = key if key in keys else close_to(key, keys)
    if close or name.endswith('"'):
        return name.strip('"'), key
    return path, ""


def _toml_value(word: str) -> Any:
    try:
        return tomllib.loads(f"value = {word}")["value"]
    except tomllib.TOMLDecodeError:
        return word


# -- comparing -------------------------------------------------------------------------------------


def find_changes(before: Policy, after: Policy) -> list[str]:
    """Return the difference of two policies in words, [] if they say the same.

    'limits.stripe.at_once: 5 -> 3', 'tenants.research is new: weight = 3', 'limits.old is removed'.
    """
    changes: list[str] = []
    tables_after = document_of(after)
    for section, tables_before in document_of(before).items():
        changes += _compare(section, tables_before, tables_after[section])
    names = [name for name in before.tenants if name in after.tenants]
    if names != [name for name in after.tenants if name in before.tenants]:
        changes.append(f"the order of the tenants is now {', '.join(after.tenants)}")
    return changes


def _compare(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    for key, value in before.items():
        value_after = after.get(key)
        if key not in after:
            yield f"{path}.{key} is removed" + ("" if isinstance(value, dict) else _was(value))
        elif isinstance(value, dict) and isinstance(value_after, dict) and path.count(".") < 1:
            yield from _compare(f"{path}.{key}", value, value_after)
        elif value != value_after:
            yield f"{path}.{key}: {_toml(value)} -> {_toml(value_after)}"
    for key, value in after.items():
        if key not in before:
            text = ", ".join(_value_lines(value)) if isinstance(value, dict) else _toml(value)
            yield f"{path}.{key} is new: {text}" if text else f"{path}.{key} is new"


def _was(value: Any) -> str:
    return f": it was {_toml(value)}"

"""Conditions on a node's label: what a task requires of it. A node's label may have several values.

    zone:a               it has the value a
    zone:a|b             it has one of these values
    gpu_model:!t4|v100   it has none of these values, or the node lacks the label
    zone:*               the node has the label; zone:!* says that it lacks it
    vram_gb:>=24         it has a value that is a number of at least 24; others are >, <= and <

The text behind the colon is what Redis stores. lua/lib/kind/conditions.lua judges the same for
scripts; a property test compares the two. Numbers have at most 15 characters, so that both compare
them exactly.
"""

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ..errors import InvalidInput
from .ids import check_name, number_text, shown

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
OPERATORS: Final = ("=", "in", "not", "exists", *COMPARISONS)
"""The operators of a requirement that is a mapping."""

_VALUE: Final = r"[\w./%-]+"
CONDITION_PATTERN: Final = (
    rf"(?:!?(?:\*|{_VALUE}(?:\|{_VALUE})*)|[<>]=?(?=[^ ]{{1,15}}(?: "
    r"|$))-?\d{1,15}(?:\.\d{1,15})?)"
)
"""The text of a condition, as a regular expression."""

REQUIRE_FORMS: Final = (
    "NAME=A, NAME!=A, NAME in A,B, NAME not in A,B, NAME>=N (also > <= <), NAME exists, NAME not "
    "exists"
)
"""The forms of a condition that people write, see `read_condition`."""
_LABEL_COMPARISON: Final = re.compile(r"([^=!<>]+?)\s*(>=|<=|!=|=|>|<)\s*(\S+)")
_LABEL_CONDITION: Final = re.compile(r"(\S+)\s+(in|not in|exists|not exists)(?:\s+(\S.*))?")

_CONDITION: Final = re.compile(CONDITION_PATTERN, re.ASCII)
_COMPARISON: Final = re.compile(r"([<>]=?)(.+)", re.ASCII)
_DECIMAL: Final = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
MAX_DIGITS: Final = 15
"""The maximum number of characters of a number, with sign and point."""


def is_condition(text: str) -> bool:
    """Return whether a text is a condition, as Redis stores it."""
    return _CONDITION.fullmatch(text) is not None


def read_condition(text: str) -> tuple[str, str, Any] | None:
    """Return the label, the operator and the value of a condition as people write it.

    text: one of REQUIRE_FORMS; None for any other text. The value of `in` and `not` is a list.
    """
    if match := _LABEL_COMPARISON.fullmatch(text.strip()):
        name, sign, value = match.groups()
        return (name, "not", [value]) if sign == "!=" else (name, sign, value)
    if match := _LABEL_CONDITION.fullmatch(text.strip()):
        name, sign, value = match.groups()
        if sign.endswith("exists") and value is None:
            return name, "exists", sign == "exists"
        if sign.endswith("in") and value is not None:
            values = [part.strip() for part in value.split(",")]
            return name, "in" if sign == "in" else "not", values
    return None


def is_number(text: str) -> bool:
    """Return whether comparisons read a label's value as a number."""
    return len(text) <= MAX_DIGITS and _DECIMAL.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _parse(condition: str) -> tuple[str, frozenset[str]]:
    """Return a condition's operator ('in', 'not', '*', '!*' or a comparison) and values."""
    if match := _COMPARISON.fullmatch(condition):
        return match[1], frozenset([match[2]])
    if condition in ("*", "!*"):
        return condition, frozenset()
    return ("not" if condition[0] == "!" else "in"), frozenset(
        condition.removeprefix("!").split("|")
    )


def holds(condition: str, values: Collection[str]) -> bool:
    """Return whether a node fulfils a condition.

    values: the values of the label on that node; empty if the node lacks the label.
    """
    sign, accepted = _parse(condition)
    if sign == "in":
        return not accepted.isdisjoint(values)
    if sign == "not":
        return accepted.isdisjoint(values)
    if sign in ("*", "!*"):
        return bool(values) == (sign == "*")
    (bound,) = accepted
    return any(
        is_number(value) and COMPARISONS[sign](float(value), float(bound)) for value in values
    )


def describe(name: str, condition: str) -> str:
    """Return a condition on a label for people: 'zone in a, b', 'vram_gb >= 24', 'zone:a'."""
    sign, operands = _parse(condition)
    if sign in COMPARISONS:
        return f"{name} {sign} {''.join(operands)}"
    if sign in ("*", "!*"):
        return f"label {name}" if sign == "*" else f"no label {name}"
    listed = ", ".join(sorted(operands))
    if sign == "not":
        return f"{name} not in {listed}" if len(operands) > 1 else f"{name} other than {listed}"
    return f"{name} in {listed}" if len(operands) > 1 else f"{name}:{listed}"


def written(name: str, condition: str) -> str:
    """Return a condition on a label as people write it, see REQUIRE_FORMS."""
    sign, operands = _parse(condition)
    if sign in COMPARISONS:
        return f"{name}{condition}"
    if sign in ("*", "!*"):
        return f"{name} exists" if sign == "*" else f"{name} not exists"
    listed = ",".join(sorted(operands))
    if sign == "not":
        return f"{name} not in {listed}" if len(operands) > 1 else f"{name}!={listed}"
    return f"{name} in {listed}" if len(operands) > 1 else f"{name}={listed}"


def bound_of(condition: str) -> tuple[str, float] | None:
    """Return the comparison of a condition and its number; None if it compares no numbers."""
    sign, operands = _parse(condition)
    return (sign, float("".join(operands))) if sign in COMPARISONS else None


def wanted_of(condition: str) -> frozenset[str] | None:
    """Return the values of which a node must have one; None for any other condition."""
    sign, accepted = _parse(condition)
    return accepted if sign == "in" else None


def conditions_of(name: str, required: object, option: str = "require") -> list[str]:
    """Return the sorted conditions of a label that a task requires or prefers; raises InvalidInput.

    required: a value, a list of values of which the node must have one, or a mapping {OPERATOR:
    value}.
    option: the option that has the requirement, for errors.
    """
    subject = f"{option} {name}"
    if isinstance(required, str):
        return [check_name("label value", required)]
    if isinstance(required, Mapping):
        return _combined(subject, required)
    if isinstance(required, Sequence | set | frozenset) and not isinstance(required, bytes):
        return ["|".join(_values(subject, required))]
    raise InvalidInput(
        f"{subject}={shown(required)} is not valid: it must be a text, a list of texts, "
        f"or a mapping with the operators {' '.join(OPERATORS)}"
    )


def _combined(subject: str, required: Mapping[object, object]) -> list[str]:
    """Return the conditions of a mapping; a node must fulfil each of them.

    Raises InvalidInput, also if no node could ever fulfil all of them.
    """
    if not required:
        raise InvalidInput(f"{subject} has no operator: known are {' '.join(OPERATORS)}")
    if unknown := [sign for sign in required if sign not in OPERATORS]:
        raise InvalidInput(
            f"{subject}: unknown operator {shown(unknown[0])}: known are {' '.join(OPERATORS)}"
        )
    allowed: set[str] | None = None
    for sign in ("=", "in"):
        if sign in required:
            values = set(_values(subject, required[sign]))
            allowed = values if allowed is None else allowed & values
    barred = set(_values(subject, required["not"])) if "not" in required else set[str]()
    exists = required.get("exists")
    if not isinstance(exists, bool | None):
        raise InvalidInput(
            f"{subject}: exists={shown(exists)} is not valid: it must be True or False"
        )
    conditions = [
        f"{sign}{_bound(subject, sign, required[sign])}" for sign in COMPARISONS if sign in required
    ]
    nothing = allowed is not None and not allowed - barred
    if (
        nothing
        or _excludes(conditions)
        or (exists is False and (conditions or allowed is not None))
    ):
        raise InvalidInput(
            f"{subject}={shown(dict(required))} is a contradiction: no label can meet all of it"
        )
    if allowed is not None:
        # No value may be barred, whatever else the node has: the label may have several.
        conditions.append("|".join(sorted(allowed - barred)))
    if barred:
        conditions.append("!" + "|".join(sorted(barred)))
    if exists is not None:
        conditions.append("*" if exists else "!*")
    return sorted(conditions)


def _values(subject: str, listed: object) -> list[str]:
    """Return the values of a list or of a single value, sorted, each once; raises InvalidInput."""
    if isinstance(listed, str):
        return [check_name("label value", listed)]
    if isinstance(listed, Iterable) and not isinstance(listed, Mapping | bytes):
        if values := sorted({check_name("label value", value) for value in listed}):
            return values
        raise InvalidInput(f"{subject} has an empty list: it must have at least one value")
    raise InvalidInput(
        f"{subject}: {shown(listed)} is not valid: it must be a text or a list of texts"
    )


def _bound(subject: str, sign: str, number: object) -> str:
    """Return the text of a comparison's number; raises InvalidInput."""
    text = (
        number_text(number)
        if isinstance(number, str | int | float) and not isinstance(number, bool)
        else ""
    )
    if not is_number(text):
        rule = f"it must be a number of at most {MAX_DIGITS} characters"
        raise InvalidInput(f"{subject}: {sign} {shown(number)} is not valid: {rule}")
    return text


def _excludes(comparisons: Iterable[str]) -> bool:
    """Return True if no number fulfils all of these comparisons."""
    bounds = [bound for text in comparisons if (bound := bound_of(text))]
    lows = [(number, sign) for sign, number in bounds if sign[0] == ">"]
    highs = [(number, sign) for sign, number in bounds if sign[0] == "<"]
    return any(
        low > high or (low == high and (above, below) != (">=", "<="))
        for low, above in lows
        for high, below in highs
    )

"""Read the values of `--require`: 'zone=a', 'zone in a,b', 'gpu_model!=t4', 'vram_gb>=24'."""

import re
from collections.abc import Sequence
from typing import Any, Final

from ..errors import InvalidInput

FORMS: Final = (
    "NAME=A, NAME!=A, NAME in A,B, NAME not in A,B, NAME>=N (also > <= <), NAME exists, NAME not "
    "exists"
)

_LABEL_COMPARISON: Final = re.compile(r"([^=!<>]+?)\s*(>=|<=|!=|=|>|<)\s*(\S+)")
_LABEL_CONDITION: Final = re.compile(r"(\S+)\s+(in|not in|exists|not exists)(?:\s+(\S.*))?")


def parse_requirements(flag: str, words: Sequence[str] | None) -> dict[str, Any]:
    """Return the value of the option `require`: conditions by label, {"vram_gb": {">=": "24"}}.

    words: the values of the repeated flag. Raises InvalidInput.
    """
    conditions: dict[str, dict[str, Any]] = {}
    for word in words or ():
        name, sign, value = _read(flag, word)
        by_sign = conditions.setdefault(name, {})
        if sign == "not" and sign in by_sign:
            by_sign[sign] += value
        elif sign in by_sign:
            raise InvalidInput(f"{flag} {word!r} is not valid: {name} has another such requirement")
        else:
            by_sign[sign] = value
    return {
        name: by_sign["="] if [*by_sign] == ["="] else by_sign
        for name, by_sign in conditions.items()
    }


def _read(flag: str, word: str) -> tuple[str, str, Any]:
    """Return the label, the operator and the value of one requirement."""
    if match := _LABEL_COMPARISON.fullmatch(word.strip()):
        name, sign, value = match.groups()
        return (name, "not", [value]) if sign == "!=" else (name, sign, value)
    if match := _LABEL_CONDITION.fullmatch(word.strip()):
        name, sign, value = match.groups()
        if sign.endswith("exists") and value is None:
            return name, "exists", sign == "exists"
        if sign.endswith("in") and value is not None:
            return (
                name,
                "in" if sign == "in" else "not",
                [part.strip() for part in value.split(",")],
            )
    raise InvalidInput(f"{flag} {word!r} is not valid: it must be one of {FORMS}")

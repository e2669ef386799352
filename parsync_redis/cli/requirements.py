"""Read what `--require` asks of labels: 'zone=a', 'zone in a,b', 'gpu_model!=t4', 'vram_gb>=24',
'disk exists'.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from ..errors import InvalidInput

FORMS: Final = (
    "NAME=A, NAME!=A, NAME in A,B, NAME not in A,B, NAME>=N (also > <= <), NAME exists, NAME not "
    "exists"
)

_SIGN: Final = re.compile(r"([^=!<>]+?)\s*(>=|<=|!=|=|>|<)\s*(\S+)")
_WORD: Final = re.compile(r"(\S+)\s+(in|not in|exists|not exists)(?:\s+(\S.*))?")


def parse_requirements(flag: str, words: Sequence[str] | None) -> dict[str, Any]:
    """Return what the words of a repeated flag require, by label, as the option `require` takes it.

    Raises InvalidInput.
    """
    found: dict[str, dict[str, Any]] = {}
    for word in words or ():
        name, sign, value = _read(flag, word)
        of_name = found.setdefault(name, {})
        if sign == "not" and sign in of_name:
            of_name[sign] += value
        elif sign in of_name:
            raise InvalidInput(f"{flag} {word!r} is not valid: {name} has another such requirement")
        else:
            of_name[sign] = value
    return {name: signs["="] if [*signs] == ["="] else signs for name, signs in found.items()}


def _read(flag: str, word: str) -> tuple[str, str, Any]:
    """Return the label, the operator and the value of one requirement."""
    if match := _SIGN.fullmatch(word.strip()):
        name, sign, value = match.groups()
        return (name, "not", [value]) if sign == "!=" else (name, sign, value)
    if match := _WORD.fullmatch(word.strip()):
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

"""The option `apart`: tasks with the same word never run on the same node.

The word is a resource `apart_WORD`, which a task holds and no node declares: each node has 1 of it.
So a task's lease has the resource, and `left` of a node has `apart_web=0` while such a task is
there. lua/lib/kind/fits.lua does the same.
"""

import re
from typing import Final

from .amount import THOUSANDTHS

APART_PREFIX: Final = "apart_"
"""The beginning of the names of these resources; no other resource has it."""

APART_RULE: Final = "a word of 1 to 26 lower-case letters, digits or _"

_APART_WORD: Final = re.compile(r"[a-z0-9_]{1,26}", re.ASCII)


def is_word(value: object) -> bool:
    """Return whether a value is valid for the option `apart`; '' is valid and means no word."""
    return isinstance(value, str) and (not value or _APART_WORD.fullmatch(value) is not None)


def held_by(word: str) -> list[tuple[str, int]]:
    """Return the amounts (thousandths) that a task with this word holds; none for ''."""
    return [(APART_PREFIX + word, THOUSANDTHS)] if word else []


def undeclared(resource: str) -> int:
    """Return a node's amount (thousandths) of a resource that it does not declare."""
    return THOUSANDTHS if resource.startswith(APART_PREFIX) else 0

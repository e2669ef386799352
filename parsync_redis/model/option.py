"""An option of a task: a row of the table in model/options.py."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from ..errors import InvalidInput
from .ids import shown

CLOSE: Final = 0.7
"""How alike two words are, by difflib's ratio, of which one may be the other misspelt, where only
one is right.
"""
VERY_CLOSE: Final = 0.85
"""The same, where a word of any meaning may stand: `async` is none of ours."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a task.

    default: its value if it is not asked for; None is as if it were not asked for, if that is the
    default. valid and rule: what a value must be, as a check and in an error's words. flag, help:
    of `parsync submit`; value: the type that the flag takes, Mapping for NAME=VALUE (repeat), list
    for one of several texts (repeat). example: a value that is not the default.

    stored: the task's record keeps it in a field of that name, so that a retry and a requeue have
    it too; any other matters at the submit only, or is part of the record's needs. celerys: Celery
    has an option of that name, which goes before it: the client takes that one.
    """

    name: str
    default: Any
    valid: Callable[[Any], bool]
    rule: str
    flag: str
    value: type
    help: str
    example: Any
    stored: bool = False
    celerys: bool = False

    def check(self, value: object) -> Any:
        """Return a value that was asked for; raises InvalidInput with the rule."""
        if value is None and self.default in (None, ""):
            return self.default
        if not self.valid(value):
            raise InvalidInput(f"{self.name}={shown(value)} is not valid: it must be {self.rule}")
        return value


def close_to(word: object, valid_words: Iterable[str], ratio: float = CLOSE) -> str:
    """Return the known word that a word may be meant to be, '' if none is as alike, or if the word
    is known.
    """
    words = list(valid_words)
    close = (
        get_close_matches(word, words, 1, ratio)
        if isinstance(word, str) and word not in words
        else []
    )
    return close[0] if close else ""


def unknown_option(
    noun: str, name: object, valid_words: Iterable[str], value: object = None
) -> InvalidInput:
    """Return the error of an option that does not exist, with what it may be meant to be.

    noun: 'option' or 'parsync option'. value: of the option; one that begins with a digit may be
    meant as an amount.
    """
    words = list(valid_words)
    hint = f"; did you mean {close}?" if (close := close_to(name, words)) else ""
    if not hint and isinstance(name, str) and str(value)[:1].isdigit() and "resources" in words:
        amount = {name.removeprefix("num_").removesuffix("s"): value}
        hint = f"; did you mean resources={shown(amount)}?"
    return InvalidInput(f"unknown {noun} {shown(name)}: known are {', '.join(words)}{hint}")

"""An option of a task: a row of the table in model/options.py."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from ..errors import InvalidInput
from .ids import shown

CLOSE: Final = 0.7
"""The difflib ratio from which a word may be a misspelling of a word that is right."""
VERY_CLOSE: Final = 0.85
"""The same ratio where any other word is right as well: `async` is no misspelling."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a task.

    default: the value without the option; None counts as not set if it is the default.
    valid, rule: the check of a value, and the rule in words.
    flag, help: of `parsync submit`.
    value: the type of the flag's value; Mapping for NAME=VALUE (repeat), list for one of several
        texts (repeat).
    example: a value other than the default.
    stored: whether the task's record keeps the option in a field of that name, so that a retry and
        a requeue have it too. An option that is not stored matters at the submit only, or is part
        of the needs.
    celerys: whether Celery has an option of that name, which goes first; only the client takes
        parsync's.
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
        """Return the checked value; raises InvalidInput with the rule."""
        if value is None and self.default in (None, ""):
            return self.default
        if not self.valid(value):
            raise InvalidInput(f"{self.name}={shown(value)} is not valid: it must be {self.rule}")
        return value


def close_to(word: object, valid_words: Iterable[str], ratio: float = CLOSE) -> str:
    """Return the valid word most like `word`; '' if none is close or `word` is valid."""
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
    """Return the error of an unknown option, with a suggestion.

    noun: 'option' or 'parsync option'.
    value: the option's value; if it begins with a digit, the option may be meant as a resource.
    """
    words = list(valid_words)
    hint = f"; did you mean {close}?" if (close := close_to(name, words)) else ""
    if not hint and isinstance(name, str) and str(value)[:1].isdigit() and "resources" in words:
        amount = {name.removeprefix("num_").removesuffix("s"): value}
        hint = f"; did you mean resources={shown(amount)}?"
    return InvalidInput(f"unknown {noun} {shown(name)}: known are {', '.join(words)}{hint}")

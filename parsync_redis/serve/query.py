"""The parameters of requests, and how they are read.

A wrong one raises InvalidInput, with one sentence.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from starlette.requests import Request

from ..errors import InvalidInput
from ..model.ids import shown

MOST_WORDS: Final = 64
"""Times that one parameter may be repeated."""

MOST_TEXT: Final = 255
"""Characters of one value."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a query: its name, an example, and what it is for.

    words: the values that there are, () for any text. least, most: the bounds of a whole number,
    None for a text. repeated: it may come several times.
    """

    name: str
    example: str
    about: str
    words: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    repeated: bool = False


LIMIT: Final = Param("limit", "2", "The number of items, at most (100).", least=1, most=1000)
OFFSET: Final = Param(
    "offset", "0", "The number of items before the first (0).", least=0, most=10**8
)
USUAL: Final = {LIMIT: 100, OFFSET: 0}


def asked(request: Request) -> str:
    """Return the path and the query as they came.

    request.url has more in it: the header Host, which anybody sets.
    """
    return f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"


class Query:
    """The parameters of a request: each is one of `params`."""

    def __init__(self, request: Request, params: Sequence[Param] = ()) -> None:
        self._words: dict[str, list[str]] = {}
        known = {param.name: param for param in params}
        for name, value in request.query_params.multi_items():
            self._words.setdefault(name, []).append(value)
        for name, values in self._words.items():
            if name not in known:
                there_are = f"known are {', '.join(known)}" if known else "there are none here"
                raise InvalidInput(f"unknown parameter {shown(name)}: {there_are}")
            if len(values) > (MOST_WORDS if known[name].repeated else 1):
                raise InvalidInput(
                    f"parameter {name} is given {len(values)} times, which is too often"
                )
            if (longest := max(map(len, values))) > MOST_TEXT:
                raise InvalidInput(
                    f"parameter {name} has {longest} characters: there may be {MOST_TEXT}"
                )

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a parameter."""
        return self._words.get(name, [default])[0]

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a parameter."""
        return self._words.get(name, ())

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a pattern of names, `proj.*`, to `match` them; all names if it is not given."""
        # fnmatchcase would keep up to 32,768 patterns of strangers
        return re.compile(translate(self.text(name, "*")))

    def number(self, param: Param, default: int, least: int | None = None) -> int:
        """Return a whole number; raises InvalidInput. least: instead of the parameter's own."""
        name = param.name
        most = param.most or 0
        least = (param.least or 0) if least is None else least
        text = self.text(name, str(default))
        if not (
            text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most
        ):
            raise InvalidInput(
                f"{name}={shown(text)} is not valid: it must be a whole number from {least} to "
                f"{most}"
            )
        return int(text)

    def limit(self) -> int:
        """Return how many things are asked for."""
        return self.number(LIMIT, USUAL[LIMIT])

    def offset(self) -> int:
        """Return after how many things the page begins."""
        return self.number(OFFSET, USUAL[OFFSET])

    def one_of(self, param: Param) -> str:
        """Return one of a parameter's words, '' if it is not given; raises InvalidInput."""
        word = self.text(param.name)
        if word and word not in param.words:
            raise InvalidInput(
                f"{param.name}={shown(word)} is not known: known are {', '.join(param.words)}"
            )
        return word

    def pairs(self, name: str) -> Mapping[str, str]:
        """Return the words NAME=VALUE of a repeated parameter; raises InvalidInput."""
        found: dict[str, str] = {}
        for word in self.all(name):
            key, sign, value = word.partition("=")
            if not (key and sign and value) or key in found:
                raise InvalidInput(
                    f"{name}={shown(word)} is not valid: it must be NAME=VALUE, each name once"
                )
            found[key] = value
        return found

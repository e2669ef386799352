"""Read the query of a request. A wrong one raises InvalidInput, with one sentence."""

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import translate
from typing import Final

from starlette.requests import Request

from ..errors import InvalidInput
from ..model.ids import shown

MOST_WORDS: Final = 64
"""Times that one parameter may be repeated."""

MOST_TEXT: Final = 255
"""Characters of one value."""

MOST_LIMIT: Final = 1000
USUAL_LIMIT: Final = 100
PAGE: Final = ("limit", "offset")


def asked(request: Request) -> str:
    """Return the path and the query as they came. request.url has more in it: the header Host, which anybody sets."""
    return f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"


class Query:
    """The parameters of a request: each is one of `known`, and at most those of `repeated` come several times."""

    def __init__(self, request: Request, known: Collection[str] = (), repeated: Collection[str] = ()) -> None:
        self._words: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            self._words.setdefault(name, []).append(value)
        all_known = [*known, *repeated]
        for name, values in self._words.items():
            if name not in all_known:
                there_are = f"known are {', '.join(all_known)}" if all_known else "there are none here"
                raise InvalidInput(f"unknown parameter {shown(name)}: {there_are}")
            if len(values) > (MOST_WORDS if name in repeated else 1):
                raise InvalidInput(f"parameter {name} is given {len(values)} times, which is too often")
            if (longest := max(map(len, values))) > MOST_TEXT:
                raise InvalidInput(f"parameter {name} has {longest} characters: there may be {MOST_TEXT}")

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a parameter."""
        return self._words.get(name, [default])[0]

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a parameter."""
        return self._words.get(name, ())

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a pattern of names, `proj.*`, to `match` them; all names if it is not given."""
        return re.compile(translate(self.text(name, "*")))  # fnmatchcase would keep up to 32,768 patterns of strangers

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number; raises InvalidInput."""
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
            raise InvalidInput(f"{name}={shown(text)} is not valid: it must be a whole number from {least} to {most}")
        return int(text)

    def limit(self) -> int:
        """Return how many things are asked for."""
        return self.number("limit", USUAL_LIMIT, 1, MOST_LIMIT)

    def offset(self) -> int:
        """Return after how many things the page begins."""
        return self.number("offset", 0, 0, 10**8)

    def one_of(self, name: str, words: Sequence[str]) -> str:
        """Return a word, '' if it is not given; raises InvalidInput."""
        word = self.text(name)
        if word and word not in words:
            raise InvalidInput(f"{name}={shown(word)} is not known: known are {', '.join(words)}")
        return word

    def pairs(self, name: str) -> Mapping[str, str]:
        """Return the words NAME=VALUE of a repeated parameter; raises InvalidInput."""
        found: dict[str, str] = {}
        for word in self.all(name):
            key, sign, value = word.partition("=")
            if not (key and sign and value) or key in found:
                raise InvalidInput(f"{name}={shown(word)} is not valid: it must be NAME=VALUE, each name once")
            found[key] = value
        return found

"""The parameters of requests, and how they are read.

A bad parameter raises InvalidInput with one sentence.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from starlette.requests import Request

from ..errors import InvalidInput
from ..model.ids import shown

MOST_REPEATS: Final = 64
"""Maximum number of values of a repeated parameter."""

MOST_CHARACTERS: Final = 255
"""Maximum number of characters of a value."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a query: its name, an example value, and its description.

    words: the allowed values; () for any text.
    least, most: the bounds of a whole number; None for a text.
    repeated: whether the parameter may come several times.
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
DEFAULT_NUMBERS: Final = {LIMIT: 100, OFFSET: 0}


def path_and_query(request: Request) -> str:
    """Return the path and the query as the client sent them.

    request.url would also have the header Host, which the client chooses.
    """
    return f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"


class Query:
    """The parameters of a request. Raises InvalidInput for a parameter that is not in `params`."""

    def __init__(self, request: Request, params: Sequence[Param] = ()) -> None:
        self._words: dict[str, list[str]] = {}
        param_by_name = {param.name: param for param in params}
        for name, value in request.query_params.multi_items():
            self._words.setdefault(name, []).append(value)
        for name, values in self._words.items():
            if name not in param_by_name:
                names = (
                    f"known are {', '.join(param_by_name)}"
                    if param_by_name
                    else "there are none here"
                )
                raise InvalidInput(f"unknown parameter {shown(name)}: {names}")
            if len(values) > (MOST_REPEATS if param_by_name[name].repeated else 1):
                raise InvalidInput(
                    f"parameter {name} is given {len(values)} times, which is too often"
                )
            if (longest := max(map(len, values))) > MOST_CHARACTERS:
                raise InvalidInput(
                    f"parameter {name} has {longest} characters: there may be {MOST_CHARACTERS}"
                )

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a parameter."""
        return self._words.get(name, [default])[0]

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a parameter."""
        return self._words.get(name, ())

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a compiled pattern of names, such as `proj.*`; all names without the parameter."""
        # not fnmatchcase, which would keep up to 32,768 patterns of strangers in memory
        return re.compile(translate(self.text(name, "*")))

    def number(self, param: Param, default: int, least: int | None = None) -> int:
        """Return a whole number. least: replaces the parameter's own bound. Raises InvalidInput."""
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
        """Return the maximum number of items that the request asks for."""
        return self.number(LIMIT, DEFAULT_NUMBERS[LIMIT])

    def offset(self) -> int:
        """Return the number of items before the page."""
        return self.number(OFFSET, DEFAULT_NUMBERS[OFFSET])

    def one_of(self, param: Param) -> str:
        """Return one of the words of a parameter; '' without the parameter. Raises InvalidInput."""
        word = self.text(param.name)
        if word and word not in param.words:
            raise InvalidInput(
                f"{param.name}={shown(word)} is not known: known are {', '.join(param.words)}"
            )
        return word

    def pairs(self, name: str) -> Mapping[str, str]:
        """Return the values NAME=VALUE of a repeated parameter by name. Raises InvalidInput."""
        values: dict[str, str] = {}
        for word in self.all(name):
            key, sign, value = word.partition("=")
            if not (key and sign and value) or key in values:
                raise InvalidInput(
                    f"{name}={shown(word)} is not valid: it must be NAME=VALUE, each name once"
                )
            values[key] = value
        return values

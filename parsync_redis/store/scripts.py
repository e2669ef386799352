"""Loads the Lua scripts: textual includes, each file once, and the header that a Python binding must agree with.

-- verb: what it does.
-- KEYS: meta pending task*          names in order; a star for one or more, the last; their types are checked
-- ARGV: ...
--- @include name                    the text of lib/name.lua, once, in front
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from ..errors import BrokenContract
from ..wire.keys import NUMBERS, TYPES

HEADER: Final = ("KEYS", "ARGV", "RETURNS", "ERRORS", "INVARIANT", "ATOMICITY", "COMPLEXITY")
_INCLUDE: Final = re.compile(r"^--- @include (\w+)$", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^local function (\w+)\(.*(?: end|\n(?:(?:  .*)?\n)*end)\n", re.MULTILINE)


class Script:
    """A script by its verb and the names of its keys; its Lua files are read at first use."""

    def __init__(self, verb: str, keys: tuple[str, ...]) -> None:
        self.verb, self.keys = verb, keys

    def __repr__(self) -> str:
        return f"Script({self.verb!r})"

    @cached_property
    def text(self) -> str:
        """The text that is sent to the server; BrokenContract unless the header names just these keys."""
        folder = lua_folder()
        text = compose(self.verb, self.keys, folder)
        header = read_header(self.verb, (folder / f"{self.verb}.lua").read_text(encoding="utf-8"))
        if (named := tuple(header["KEYS"].split())) != self.keys:
            raise BrokenContract(
                f"lua: {self.verb}.lua takes the keys {' '.join(named)}, its binding gives {' '.join(self.keys)}"
            )
        return text

    @cached_property
    def sha(self) -> str:
        """The SHA-1 by which the server knows the text."""
        return hashlib.sha1(self.text.encode()).hexdigest()


def lua_folder() -> Path:
    """Where the scripts are: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "lua"
    return inside if inside.is_dir() else package.parent / "lua"


def expand(name: str, folder: Path, seen: list[str], on_the_way: tuple[str, ...] = ()) -> str:
    """The text of a file with its includes in front, each once; BrokenContract for a cycle or a missing file."""
    path = folder / f"{name}.lua"
    if name in on_the_way:
        raise BrokenContract(f"lua: includes go in a circle: {' -> '.join((*on_the_way, name))}")
    if not path.is_file():
        raise BrokenContract(f"lua: no file {path.name}, wanted by {on_the_way[-1] if on_the_way else 'a binding'}")
    text = path.read_text(encoding="utf-8")
    parts = []
    for library in _INCLUDE.findall(text):
        name_in_lib = f"lib/{library}"
        if name_in_lib not in seen or name_in_lib in on_the_way:
            parts.append(expand(name_in_lib, folder, seen, (*on_the_way, name)))
            seen.append(name_in_lib)
    return "\n".join([*parts, _INCLUDE.sub("", text)])


def read_header(verb: str, text: str) -> dict[str, str]:
    """The fields of a script's header; BrokenContract if one is missing or the first line does not name the verb."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith(f"-- {verb}: "):
        raise BrokenContract(f"lua: {verb}.lua must begin with '-- {verb}: '")
    fields = {
        name: line.partition(":")[2].strip() for name in HEADER for line in lines if line.startswith(f"-- {name}:")
    }
    if missing := [name for name in HEADER if name not in fields]:
        raise BrokenContract(f"lua: {verb}.lua says nothing of {', '.join(missing)}")
    return fields


def compose(verb: str, keys: tuple[str, ...], folder: Path) -> str:
    """The text of a script as it is sent: without the functions of libraries that it does not call, because Lua makes
    each function anew in each run.
    """
    text = describe(keys) + expand(verb, folder, [])
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(text)}
    called: set[str] = set()
    unread = [_FUNCTION.sub("", text)]
    while unread:
        names = (_words(unread.pop()) & functions.keys()) - called
        called |= names
        unread += [functions[name] for name in names]
    return _FUNCTION.sub(lambda found: found[0] if found[1] in called else "", text)


@cache
def _words(text: str) -> frozenset[str]:
    """The words of Lua code, without its comments and strings."""
    return frozenset(re.findall(r"[a-z_]\w*", re.sub(r"--.*|'[^'\n]*'", "", text)))


def describe(keys: tuple[str, ...]) -> str:
    """What lib/arguments.lua must know of a script's keys: their types, and of which of them fields are numbers."""

    def words(values: Iterable[str]) -> str:
        return "{" + ", ".join(values) + "}"

    names = [key.rstrip("*") for key in keys]
    types = [repr(TYPES.get(name, "")) for name in names]
    numbers = [f"[{at}] = {words(map(repr, NUMBERS[name]))}" for at, name in enumerate(names, 1) if name in NUMBERS]
    return f"local TYPES, NUMBERS = {words(types)}, {words(numbers)}\n"

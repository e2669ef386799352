"""Load the Lua scripts: their includes, each once, and what the header makes (header.py).

--- @include name                    the text of lib/name.lua, once, in front; lib/arguments.lua comes by itself
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from ..errors import BrokenContract
from .header import Header, Word

_INCLUDE: Final = re.compile(r"^--- @include (\w+)$", re.MULTILINE)
_RARE: Final = re.compile(r"\bin_full\(\)\.(\w+)")
_HERE: Final = "-- in_full\n"
_FUNCTION: Final = re.compile(r"^local function (\w+)\(.*(?: end|\n(?:(?:  .*)?\n)*end)\n", re.MULTILINE)


class Script:
    """A script by its verb and the names of its keys; its Lua files are read at first use."""

    def __init__(self, verb: str, keys: str) -> None:
        self.verb, self.keys = verb, tuple(keys.split())

    def __repr__(self) -> str:
        return f"Script({self.verb!r})"

    @cached_property
    def header(self) -> Header:
        """The script's header; BrokenContract unless it names just these keys."""
        header = read_header(self.verb, lua_folder())
        if header.keys != self.keys:
            raise BrokenContract(
                f"lua: {self.verb}.lua takes the keys {' '.join(header.keys)}, its binding gives {' '.join(self.keys)}"
            )
        return header

    @cached_property
    def text(self) -> str:
        """The text that is sent to the server."""
        return compose(self.header, lua_folder())

    @cached_property
    def sha(self) -> str:
        """The SHA-1 by which the server knows the text."""
        return hashlib.sha1(self.text.encode()).hexdigest()

    @cached_property
    def arguments(self) -> Callable[..., list[Word]]:
        """Header.arguments of this script."""
        return self.header.arguments


def lua_folder() -> Path:
    """Return the folder of the scripts: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "lua"
    return inside if inside.is_dir() else package.parent / "lua"


def read_header(verb: str, folder: Path) -> Header:
    """Return the header of a script in a folder."""
    return Header(verb, _read(verb, folder))


def expand(name: str, folder: Path, seen: list[str], on_the_way: tuple[str, ...] = ()) -> str:
    """Return a file's text with its includes in front, each once; BrokenContract for a circle or a missing file.

    `seen` lists the libraries that are in the text already, and grows.
    """
    if name in on_the_way:
        raise BrokenContract(f"lua: includes go in a circle: {' -> '.join((*on_the_way, name))}")
    text = _read(name, folder, on_the_way)
    parts = []
    for library in _INCLUDE.findall(text):
        name_in_lib = f"lib/{library}"
        if name_in_lib not in seen or name_in_lib in on_the_way:
            parts.append(expand(name_in_lib, folder, seen, (*on_the_way, name)))
            seen.append(name_in_lib)
    return "\n".join([*parts, _INCLUDE.sub("", text)])


def _read(name: str, folder: Path, on_the_way: tuple[str, ...] = ()) -> str:
    path = folder / f"{name}.lua"
    if not path.is_file():
        raise BrokenContract(f"lua: no file {path.name}, wanted by {on_the_way[-1] if on_the_way else 'a binding'}")
    return path.read_text(encoding="utf-8")


def compose(header: Header, folder: Path) -> str:
    """Return the text of a script as it is sent.

    Lua makes each function anew in each run, which costs as much as half a command. So functions of libraries that it
    does not call are left out, and those that it calls as in_full().NAME only are made when they are needed.
    """
    own = _INCLUDE.sub("", _read(header.verb, folder))
    libraries = expand(header.verb, folder, ["lib/arguments"]).removesuffix(own)
    arguments = expand("lib/arguments", folder, [])
    before = header.before() + header.table(libraries + own) + arguments
    text = "\n".join([before, libraries + _HERE + header.check(_words(own)), own])
    text = header.resolve(text)
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(text) if found[1] != "refuse_call"}
    main = _FUNCTION.sub(lambda found: found[0] if found[1] not in functions else "", text)
    hot = _reached([_RARE.sub("", main)], {name: _RARE.sub("", code) for name, code in functions.items()})
    rare = [name for name in functions if name in _reached([main], functions) - hot]
    text = _FUNCTION.sub(lambda found: found[0] if found[1] in hot | {"refuse_call"} else "", text)
    named = [*rare, *sorted({*_RARE.findall(text)} & hot)]
    if not named:
        return text.replace(_HERE, "")
    return "local in_full\n" + text.replace(_HERE, _in_full([functions[name] for name in rare], named))


def _reached(texts: list[str], functions: Mapping[str, str]) -> set[str]:
    """Return the names of the functions that these texts call, directly or not."""
    called: set[str] = set()
    while texts:
        names = (_words(texts.pop()) & functions.keys()) - called
        called |= names
        texts += [functions[name] for name in names]
    return called


def _in_full(texts: Sequence[str], names: Sequence[str]) -> str:
    """Return Lua for in_full(): the first call makes these functions; each call returns a table of them and others."""
    body = "".join(texts).replace("\n", "\n  ")
    table = ", ".join(f"{name} = {name}" for name in names)
    made = f"  if FULL then return FULL end\n  {body}FULL = {{{table}}}\n  return FULL\n"
    return f"local FULL\nfunction in_full()\n{made}end\n"


@cache
def _words(text: str) -> frozenset[str]:
    """Return the words of Lua code, without those of its comments and strings."""
    return frozenset(re.findall(r"[a-z_]\w*", re.sub(r"--.*|'[^'\n]*'", "", text)))

"""Load the Lua scripts: a verb's text with its libraries, and what its header generates.

    --- @include task/line              the text of lib/task/line.lua, once, in front

header.py generates the checks. lua/README.md tells how a script is made, and `parsync lua show
VERB` prints a script as it is sent.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from ...errors import BrokenContract
from .header import Header, Word
from .inline import inline_single_calls

_INCLUDE: Final = re.compile(r"^--- @include ([\w/]+)$", re.MULTILINE)
_ARGUMENTS: Final = "lib/call/arguments"
_RARE: Final = re.compile(r"in_full\(\)\.(\w+)")
_COUNTING: Final = re.compile(r"counting\(\)\.(\w+)")
_RARE_MARK: Final = "-- in_full\n"
_STATE: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = .*\n", re.MULTILINE)
_CONSTANT_NAME: Final = re.compile(r"\b[A-Z_]+\b")
_LUA_FUNCTION: Final = re.compile(
    r"\b(?:redis\.p?call|string\.[a-z]+|math\.[a-z]+|table\.[a-z]+)\b(?! *=)"
)
_FUNCTION: Final = re.compile(
    r"^local function (\w+)\(.*(?: end|\n(?:(?:  .*)?\n)*end)\n", re.MULTILINE
)


class Script:
    """A script by its verb. The Lua files are read at first use."""

    def __init__(self, verb: str) -> None:
        self.verb = verb

    def __repr__(self) -> str:
        return f"Script({self.verb!r})"

    @cached_property
    def header(self) -> Header:
        """The script's header: its keys and arguments."""
        return read_header(self.verb, lua_folder())

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys that are sent, as the header has them."""
        return self.header.keys

    @cached_property
    def also(self) -> tuple[str, ...]:
        """The names of the keys that the script spells itself."""
        return self.header.also

    @cached_property
    def text(self) -> str:
        """The text that is sent to the server."""
        return compose(self.header, lua_folder())

    @cached_property
    def sha(self) -> str:
        """The SHA-1 by which the server knows the text."""
        return hashlib.sha1(self.text.encode()).hexdigest()

    @property
    def is_made(self) -> bool:
        """True once the script has been put together."""
        return "text" in vars(self)

    def prepare(self) -> None:
        """Make everything about the script that is made once, so that no call makes it later.

        A process that forks prepares its scripts before its threads start: its children have the
        scripts too, and no thread is amid one at a fork.
        """
        for name, value in vars(Script).items():
            if isinstance(value, cached_property):
                getattr(self, name)
        self.header.prepare()

    @cached_property
    def arguments(self) -> Callable[..., list[Word]]:
        """`Header.arguments` of this script."""
        return self.header.arguments


def lua_folder() -> Path:
    """Return the folder of the scripts: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "lua"
    return inside if inside.is_dir() else package.parent / "lua"


def read_header(verb: str, folder: Path) -> Header:
    """Return the header of a script in a folder."""
    return Header(verb, _read(f"verbs/{verb}", folder))


def expand(name: str, folder: Path, included: list[str], including: tuple[str, ...] = ()) -> str:
    """Return a file's text with its included libraries in front, each once.

    included: the libraries that are in the text already; expand appends to it.
    including: the files whose includes are being read.

    Raises BrokenContract for a circle or a missing file.
    """
    if name in including:
        raise BrokenContract(f"lua: includes go in a circle: {' -> '.join((*including, name))}")
    text = _read(name, folder, including)
    parts = []
    for library in _INCLUDE.findall(text):
        name_in_lib = f"lib/{library}"
        if name_in_lib not in included or name_in_lib in including:
            parts.append(expand(name_in_lib, folder, included, (*including, name)))
            included.append(name_in_lib)
    return "\n".join([*parts, _INCLUDE.sub("", text)])


def _read(name: str, folder: Path, including: tuple[str, ...] = ()) -> str:
    path = folder / f"{name}.lua"
    if not path.is_file():
        raise BrokenContract(
            f"lua: no file {path.name}, wanted by {including[-1] if including else 'a binding'}"
        )
    return path.read_text(encoding="utf-8")


def compose(header: Header, folder: Path, inline: bool = True) -> str:
    """Return the text of a script as it is sent.

    inline: False leaves functions that are called once where they are.

    Lua makes each function and table anew in each run, which costs as much as half a command. So
    library functions that the script does not call are left out. Functions that the script calls as
    in_full().NAME are made when they are needed, with the tables that only they use. Such functions
    do not share the other functions, because each shared function would cost as much again in every
    run. Functions of accounts are called as counting().NAME, and made for themselves: a task that
    counts to accounts is no rare case. The script's own lines look up string.format and similar
    functions once.
    """
    verb = f"verbs/{header.verb}"
    own_text = _INCLUDE.sub("", _read(verb, folder))
    libraries = expand(verb, folder, [_ARGUMENTS]).removesuffix(own_text)
    arguments = expand(_ARGUMENTS, folder, [])
    before = header.before() + arguments
    text = "\n".join([before, libraries + _RARE_MARK + header.check(_words(own_text)), own_text])
    text = header.resolve(text)
    functions = {
        match[1]: match[0] for match in _FUNCTION.finditer(text) if match[1] != "refuse_call"
    }
    main = _FUNCTION.sub(lambda match: match[0] if match[1] not in functions else "", text)
    direct = {name: _without_groups(code) for name, code in functions.items()}
    hot = _reached([_without_groups(main)], direct)
    hot_text = "".join([main, *map(functions.__getitem__, hot)])
    rare: list[str] = []
    counting: list[str] = []
    for _ in range(3):  # each group may call the other one
        rare_names, rare = _group(_RARE, "".join([hot_text, *counting]), functions, direct)
        counting_names, counting = _group(_COUNTING, "".join([hot_text, *rare]), functions, direct)
    text = _FUNCTION.sub(lambda match: match[0] if match[1] in hot | {"refuse_call"} else "", text)
    text = inline_single_calls(text) if inline else text
    table = header.resolve(header.table("".join([main, *functions.values()])))
    lines = _STATE.sub("", text)
    if re.search(r"\bKEY\b", lines):
        text = table + text
        lines += table
        table = ""
    used = {*_CONSTANT_NAME.findall(lines)}
    later = [match[0] for match in _STATE.finditer(text) if not {*match[1].split(", ")} & used]
    for line in later:
        text = text.replace(line, "", 1)
    head, tail = text.split(_RARE_MARK)

    def keys_of(code: Sequence[str]) -> str:
        """Return Lua for KEY of the keys that only this group uses."""
        return header.resolve(header.table("".join(code))) if table else ""

    if counting_names:
        names = {*_CONSTANT_NAME.findall("".join(counting))}
        shared = [line for line in later if {*_CONSTANT_NAME.findall(line)} & names]
        rare_lines = [line for line in later if line not in shared]
        keys = keys_of(counting)
        all_keys = keys_of([*rare, *counting])
        for name in ("BASE", "KEY"):
            if f"local {name} =" in keys:
                all_keys = all_keys.replace(f"local {name} =", f"{name} =")
        rare_texts = [all_keys, *rare_lines, *rare]
        nested = (
            _made_when_called("in_full", rare_texts, rare_names, "in_full = function")
            if rare
            else ""
        )
        texts = [keys, *shared, *counting]
        code = _made_when_called("counting", texts, counting_names, "", nested, inline)
        if nested:
            code += "function in_full()\n  counting()\n  return in_full()\nend\n"
        declared = "local counting, in_full\n" if nested else "local counting\n"
    elif rare_names:
        code = _made_when_called("in_full", [keys_of(rare), *later, *rare], rare_names)
        declared = "local in_full\n"
    else:
        return head + _look_up_once(tail)
    return f"{declared}{head}{code}{_look_up_once(tail)}"


def _without_groups(code: str) -> str:
    return _COUNTING.sub("", _RARE.sub("", code))


def _group(
    called: re.Pattern[str], text: str, functions: Mapping[str, str], direct: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the functions that a text calls as GROUP().NAME, and the code of the group.

    called: matches such a call. direct: the code of each function without its calls of groups. A
    group calls its own functions directly or as GROUP().NAME.
    """
    names = {*called.findall(text)} & functions.keys()
    needed: set[str] = set()
    while True:
        reached = _reached([" ".join(names)], direct)
        further = {*called.findall("".join(map(functions.__getitem__, reached)))}
        if reached == needed and further & functions.keys() <= names:
            break
        needed = reached
        names |= further & functions.keys()
    return sorted(names), [code for name, code in functions.items() if name in needed]


def _look_up_once(text: str) -> str:
    """Return Lua in which each function of Lua and Redis is a local, as string_format."""
    used = sorted({match[0] for match in _LUA_FUNCTION.finditer(re.sub(r"--.*", "", text))})
    locals_line = (
        f"local {', '.join(name.replace('.', '_') for name in used)} = {', '.join(used)}\n"
        if used
        else ""
    )
    return locals_line + _LUA_FUNCTION.sub(lambda match: match[0].replace(".", "_"), text)


def _reached(texts: list[str], functions: Mapping[str, str]) -> set[str]:
    """Return the names of the functions that these texts call, directly or not."""
    called: set[str] = set()
    while texts:
        names = (_words(texts.pop()) & functions.keys()) - called
        called |= names
        texts += [functions[name] for name in names]
    return called


def _made_when_called(
    group: str,
    texts: Sequence[str],
    names: Sequence[str],
    begin: str = "",
    nested: str = "",
    inline: bool = False,
) -> str:
    """Return Lua for a function such as in_full(), whose first call makes these functions.

    Each call returns a table of the functions `names`. begin: how the function is defined. nested:
    Lua that sees what these functions see: in_full() shares the state of counting(), and whoever
    calls in_full() first makes both. inline: put functions that are called once where they are
    called.
    """
    functions = f"MADE_{group.upper()}"
    table = ", ".join(f"{name} = {name}" for name in names)
    body = f"{''.join(texts)}{functions} = {{{table}}}"
    body = inline_single_calls(body) if inline else body
    body = f"{body}\n{nested}".rstrip("\n").replace("\n", "\n  ")
    return (
        f"local {functions}\n{begin or f'function {group}'}()\n"
        f"  if {functions} then return {functions} end\n  {body}\n  return {functions}\nend\n"
    )


@cache
def _words(text: str) -> frozenset[str]:
    """Return the words of Lua code, without the words of comments and strings."""
    return frozenset(re.findall(r"[a-z_]\w*", re.sub(r"--.*|'[^'\n]*'", "", text)))

"""The header of a Lua script: the contract that the script, its Python binding and the reference
store share.

-- finish: accept the outcome of a run ...
-- KEYS: meta pending: inbox*            each name is a local of the script; its type is checked
-- ARGV: count channel (id attempt)*     args.channel; for i, row in rows() do ... row.id ... end
-- READS: meta                           may be missing
-- ALSO: outbox                          may be missing

READS names keys that the script reads before it writes: it finds a wrong type (WRONGTYPE) or a
wrong number by itself. ALSO names further keys of the same tag, which few calls touch: they are not
sent, the script spells them.

A trailing star means none or more: `(...)*` are rows, `count` is their number, MAX_ROWS at most;
the key `inbox*` gives inbox_at(n), its nth key. The name of an argument says how long it may be
(lengths.py): the loader writes the check. A key that ends in a colon is a prefix of keys: `extra:`
is the local `extra_prefix`, and KEY.extra in libraries, which name other keys as KEY.ended. "KEYS:
..., of any type" leaves the types to the script.

A row is an offset in ARGV. The loader writes what one would write by hand: numeric loops and
ARGV[row + 1].
"""

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final

from ...errors import BrokenContract
from ...wire.keys import NUMBERS, TYPES
from .lengths import MAX_ROWS, check_lengths, limit_of

Word = str | int | float | bytes
Once = Mapping[str, Word]
FIELDS: Final = ("KEYS", "ARGV", "RETURNS", "ERRORS", "INVARIANT", "ATOMICITY", "COMPLEXITY")
_ARGV: Final = re.compile(r"((?:\w+ )*)(?:(\w+)|\((\w+(?: \w+)*)\)\*|(\w+)\*)")
_NAMED: Final = re.compile(r"\b(args|row)\.(\w+)")
_LOOP: Final = re.compile(r"for (\w+), (\w+) in rows\(\) do\b")
_ANY_TYPE: Final = ", of any type"


def read_fields(verb: str, text: str) -> dict[str, str]:
    """Return the fields of a script's header; BrokenContract if one is missing or the first line
    lacks the verb.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith(f"-- {verb}: "):
        raise BrokenContract(f"lua: {verb}.lua must begin with '-- {verb}: '")
    fields = {
        name: line.partition(":")[2].strip()
        for name in FIELDS
        for line in lines
        if line.startswith(f"-- {name}:")
    }
    if missing := [name for name in FIELDS if name not in fields]:
        raise BrokenContract(f"lua: {verb}.lua says nothing of {', '.join(missing)}")
    return fields


def _optional(field: str, text: str) -> tuple[str, ...]:
    """Return the names in a line of a script's header that may be missing."""
    return tuple(
        name
        for line in text.splitlines()
        if line.startswith(f"-- {field}:")
        for name in line.split()[2:]
    )


class Header:
    """The names of a script's keys and arguments: `once` come once, `each` come in every row."""

    def __init__(self, verb: str, text: str) -> None:
        fields = read_fields(verb, text)
        self.verb = verb
        self.keys = tuple(fields["KEYS"].removesuffix(_ANY_TYPE).split())
        self._star = self.keys[-1].rstrip("*") if self.keys[-1].endswith("*") else ""
        self._fixed = len(self.keys) - bool(self._star)
        self._any_type = fields["KEYS"].endswith(_ANY_TYPE)
        self.also = _optional("ALSO", text)
        self.reads = reads = {*_optional("READS", text)}
        if unknown := sorted(reads - {key.rstrip("*") for key in (*self.keys, *self.also)}):
            raise BrokenContract(f"lua: {verb}.lua reads {' '.join(unknown)}, which its KEYS lack")
        checked = (
            []
            if self._any_type
            else [
                at
                for at, key in enumerate(self.keys, 1)
                if key.rstrip("*") not in reads and key[-1] != ":"
            ]
        )
        self._probed = [at for at in checked if at <= self._fixed]
        self._probed_from = self._fixed + 1 if len(self._probed) < len(checked) else 0
        match = _ARGV.fullmatch(fields["ARGV"])
        if not match:
            raise BrokenContract(
                f"lua: {verb}.lua has ARGV {fields['ARGV']!r}, which is not 'NAME ... (NAME ...)*'"
            )
        self.once = (
            () if fields["ARGV"] == "none" else (*match[1].split(), *(match[2] or "").split())
        )
        self._counted = "count" in self.once
        self.each = tuple((match[3] or match[4] or "").split())

    @cached_property
    def longest(self) -> dict[str, int]:
        """How many bytes each argument may have, by name."""
        return {name: limit_of(self.verb, name) for name in (*self.once, *self.each)}

    # -- for Python --------------------------------------------------------------------------------

    def arguments(
        self, once: Once, names: tuple[str, ...] = (), values: Sequence[Word] = ()
    ) -> list[Word]:
        """Return ARGV in the header's order: `once` by name, and `values` row after row, which
        `names` name.

        BrokenContract if the names differ from the header's, or the last row is not whole;
        InvalidInput for a value that is longer than the script allows.
        """
        count, rest = divmod(len(values), len(names)) if names else (0, len(values))
        try:
            words = [count if name == "count" else once[name] for name in self.once]
        except KeyError:
            raise self._mismatch(once, names) from None
        if len(words) != len(once) + self._counted or names != self.each:
            raise self._mismatch(once, names)
        if rest:
            raise BrokenContract(
                f"lua: {self.verb}.lua takes rows of {len(names)} values: {' '.join(names)}"
            )
        check_lengths(self.verb, self.longest, zip(self.once, zip(words, strict=True), strict=True))
        check_lengths(
            self.verb,
            self.longest,
            ((name, values[at :: len(names)]) for at, name in enumerate(names)),
        )
        words += values
        return words

    def _mismatch(self, once: Iterable[str], row: Sequence[str]) -> BrokenContract:
        wrong = []
        for where, names, given in (("", self.once, {"count", *once}), ("row.", self.each, {*row})):
            wrong += [f"its binding lacks {where}{name}" for name in names if name not in given]
            wrong += [
                f"its binding adds {where}{name}" for name in sorted(given - {*names, "count"})
            ]
        wrong = wrong or [f"its binding has rows of {' '.join(row)}, not of {' '.join(self.each)}"]
        return BrokenContract(f"lua: {self.verb}.lua and its binding differ: {', '.join(wrong)}")

    def named(self, args: Sequence[Any]) -> Any:
        """Return ARGV by name: each argument as an attribute, and `rows`, a list of
        named tuples.
        """
        width = max(1, len(self.each))
        head = len(self.once)
        rows = [self._row(*args[at : at + width]) for at in range(head, len(args), width)]
        return SimpleNamespace(**dict(zip(self.once, args, strict=False)), rows=rows)

    @cached_property
    def _row(self) -> Callable[..., Any]:
        return namedtuple("Row", self.each)  # its fields are the header's

    # -- for Lua -----------------------------------------------------------------------------------

    def before(self) -> str:
        """Return Lua for the beginning: the number of rows, and what lib/call/arguments.lua checks
        of the keys.

        That is the type of each key, and those of its fields that must be numbers.
        """

        def table(values: Iterable[str]) -> str:
            return "{" + ", ".join(values) + "}"

        names = [key.rstrip("*") for key in self.keys]
        types = [repr(TYPES.get(name, "")) for name in names]
        numbers = [
            f"[{at}] = {table(map(repr, NUMBERS[name]))}"
            for at, name in enumerate(names, 1)
            if name in NUMBERS
        ]
        lines = ["local KEYS, ARGV = KEYS, ARGV"]
        if self._any_type or self._probed or self._probed_from:
            lines.append(f"local TYPES, NUMBERS = {table(types)}, {table(numbers)}")
        if self._counted:
            lines.append(f"local count = tonumber(ARGV[{self.once.index('count') + 1}]) or 0")
        elif self.each:
            lines.append(
                f"local count = math.max(0, math.ceil((#ARGV - {len(self.once)}) / "
                f"{len(self.each)}))"
            )
        return "\n".join(lines) + "\n"

    def table(self, text: str) -> str:
        """Return Lua for the table KEY of the keys that libraries name: KEY.ended or, without the
        colon, KEY.extra.
        """
        every = {key.rstrip(":"): place for key, place in self._places().items()}
        used = {*every} if "KEY[" in text else set(re.findall(r"\bKEY\.(\w+)", text))
        found = [f"{name} = {place}" for name, place in every.items() if name in used]
        return f"{self._base(found)}local KEY = {{{', '.join(found)}}}\n" if found else ""

    def _places(self) -> dict[str, str]:
        """Return Lua for each key: where it is in KEYS, or how the script spells it."""
        sent = {key: f"KEYS[{at}]" for at, key in enumerate(self.keys[: self._fixed], 1)}
        return sent | {key: f"BASE .. '{key}'" for key in self.also}

    def _base(self, used: Iterable[str]) -> str:
        """Return Lua for what the keys of ALSO begin with, if one of them is used."""
        begin = f"local BASE = string.sub(KEYS[1] or '', 1, -{len(self.keys[0]) + 1})\n"
        return begin if any("BASE" in place for place in used) else ""

    def check(self, words: frozenset[str]) -> str:
        """Return Lua that makes locals of the keys that are among `words`, and refuses a malformed
        call.
        """
        lines = []
        head = len(self.once)
        width = len(self.each)
        names = {key.replace(":", "_prefix"): place for key, place in self._places().items()}
        if used := {name: place for name, place in names.items() if name in words}:
            lines.append(
                f"{self._base(used.values())}local {', '.join(used)} = {', '.join(used.values())}"
            )
        keys = "#KEYS" if self._star else str(self._fixed)
        argv = f"{head} + {width} * count" if width else str(head)
        lines.append(f"local refused = refuse_call('{self.verb}', {keys}, {argv})")
        if self._probed or self._probed_from:
            probed = ", ".join(map(str, self._probed))
            lines.append(
                f"refused = refused or bad_keys({{{probed}}}, {self._probed_from or '#KEYS + 1'})"
            )
        lines.append("if refused then return refused end")
        return "\n".join([*lines, *self._check_lengths()]) + "\n"

    def _check_lengths(self) -> list[str]:
        """Return Lua that refuses a text that is too long, and too many rows."""

        def table(names: Sequence[str]) -> str:
            return "{" + ", ".join(f"'{name}', {self.longest[name]}" for name in names) + "}"

        def too_long(names: Sequence[str], row: str) -> str:
            return " or ".join(
                f"#ARGV[{row}{at}] > {self.longest[name]}" for at, name in enumerate(names, 1)
            )

        lines = []
        head = len(self.once)
        width = len(self.each)
        if self.once:
            told = f"in_full().too_long('{self.verb}', 0, {table(self.once)})"
            lines.append(f"if {too_long(self.once, '')} then return {told} end")
        if self.each:
            lines.append(
                f"if count > {MAX_ROWS} then return in_full().too_many('{self.verb}', {MAX_ROWS}) "
                "end"
            )
            told = f"in_full().too_long('{self.verb}', row, {table(self.each)})"
            lines.append(f"for row = {head}, #ARGV - 1, {width} do")
            lines.append(f"  if {too_long(self.each, 'row + ')} then return {told} end")
            lines.append("end")
        return lines

    def resolve(self, text: str) -> str:
        """Return Lua in which names of the header are places in KEYS and ARGV, and loops over rows
        count.

        BrokenContract for a name that the header lacks.
        """
        head = len(self.once)
        width = len(self.each)
        fixed = self._fixed

        def place(match: re.Match[str]) -> str:
            names = self.once if match[1] == "args" else self.each
            if match[2] not in names:
                raise BrokenContract(
                    f"lua: {self.verb}.lua uses {match[0]}, its header has "
                    f"{', '.join(names) or 'none'}"
                )
            at = names.index(match[2]) + 1
            return f"ARGV[{at}]" if match[1] == "args" else f"ARGV[row + {at}]"

        def loop(match: re.Match[str]) -> str:
            i, row = match.groups()
            return f"for {i} = 1, count do local {row} = {width} * {i} + {head - width}"

        text = _NAMED.sub(place, _LOOP.sub(loop, text))
        return (
            re.sub(rf"\b{self._star}_at\(([^()]+)\)", rf"KEYS[{fixed} + \1]", text)
            if self._star
            else text
        )

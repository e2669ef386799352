"""The header of a Lua script: the contract of the script, its binding and the reference store.

    -- finish: accept the outcome of a run ...
    -- KEYS: meta pending: inbox*            each name is a local of the script; its type is checked
    -- ARGV: count channel (id attempt)*     args.channel; for i, row in rows() do ... row.id end
    -- READS: meta                           may be missing
    -- ALSO: outbox                          may be missing

READS names keys that the script reads before it writes: the read itself finds a wrong type
(WRONGTYPE) or a wrong number. ALSO names further keys of the same tag, which few calls touch. Such
keys are not sent: the script spells them.

A trailing star means none or more. `(...)*` are rows; `count` is the number of rows, MAX_ROWS at
most. The key `inbox*` gives inbox_at(n), the nth such key. A key that ends in a colon is a prefix
of keys: `extra:` is the local `extra_prefix`, and KEY.extra in libraries, which name other keys as
KEY.ended. "KEYS: ..., of any type" leaves the check of the types to the script.

The name of an argument says how long the argument may be (lengths.py), and the loader writes the
check. A row is an offset in ARGV: the loader turns rows() into a numeric loop, and row.id into
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
HEADER_FIELDS: Final = ("KEYS", "ARGV", "RETURNS", "ERRORS", "INVARIANT", "ATOMICITY", "COMPLEXITY")
_ARGV: Final = re.compile(r"((?:\w+ )*)(?:(\w+)|\((\w+(?: \w+)*)\)\*|(\w+)\*)")
_NAMED_ARGUMENT: Final = re.compile(r"\b(args|row)\.(\w+)")
_ROWS_LOOP: Final = re.compile(r"for (\w+), (\w+) in rows\(\) do\b")
_ANY_TYPE: Final = ", of any type"


def read_fields(verb: str, text: str) -> dict[str, str]:
    """Return the fields of a script's header.

    Raises BrokenContract if a field is missing, or if the first line lacks the verb.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith(f"-- {verb}: "):
        raise BrokenContract(f"lua: {verb}.lua must begin with '-- {verb}: '")
    fields = {
        name: line.partition(":")[2].strip()
        for name in HEADER_FIELDS
        for line in lines
        if line.startswith(f"-- {name}:")
    }
    if missing := [name for name in HEADER_FIELDS if name not in fields]:
        raise BrokenContract(f"lua: {verb}.lua says nothing of {', '.join(missing)}")
    return fields


def _optional(field: str, text: str) -> tuple[str, ...]:
    """Return the names in an optional line of a script's header, READS or ALSO."""
    return tuple(
        name
        for line in text.splitlines()
        if line.startswith(f"-- {field}:")
        for name in line.split()[2:]
    )


class Header:
    """The names of a script's keys and arguments.

    once: arguments that come once.
    each: arguments that come in every row.
    """

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
        checked = [
            position
            for position, key in enumerate(self.keys, 1)
            if key.rstrip("*") not in reads and key[-1] != ":" and not self._any_type
        ]
        self._probed = [position for position in checked if position <= self._fixed]
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

    def prepare(self) -> None:
        """Make what is made once, see `Script.prepare`."""
        self.longest  # noqa: B018
        self._row  # noqa: B018

    @cached_property
    def longest(self) -> dict[str, int]:
        """The most bytes that each argument may have, by name."""
        return {name: limit_of(self.verb, name) for name in (*self.once, *self.each)}

    # -- for Python --------------------------------------------------------------------------------

    def arguments(
        self, once: Once, names: tuple[str, ...] = (), values: Sequence[Word] = ()
    ) -> list[Word]:
        """Return ARGV in the header's order: the arguments of `once`, then the rows.

        once: the arguments by name.
        values: the rows, one after another; `names` are the names of a row's values.

        Raises BrokenContract if the names differ from the header's, or if the last row is not
        whole. Raises InvalidInput for a value that is longer than the script allows.
        """
        count, left_over = divmod(len(values), len(names)) if names else (0, len(values))
        try:
            words = [count if name == "count" else once[name] for name in self.once]
        except KeyError:
            raise self._mismatch(once, names) from None
        if len(words) != len(once) + self._counted or names != self.each:
            raise self._mismatch(once, names)
        if left_over:
            raise BrokenContract(
                f"lua: {self.verb}.lua takes rows of {len(names)} values: {' '.join(names)}"
            )
        check_lengths(self.verb, self.longest, zip(self.once, zip(words, strict=True), strict=True))
        check_lengths(
            self.verb,
            self.longest,
            ((name, values[column :: len(names)]) for column, name in enumerate(names)),
        )
        words += values
        return words

    def _mismatch(self, once: Iterable[str], row: Sequence[str]) -> BrokenContract:
        differences = []
        for where, names, bound_names in (
            ("", self.once, {"count", *once}),
            ("row.", self.each, {*row}),
        ):
            differences += [
                f"its binding lacks {where}{name}" for name in names if name not in bound_names
            ]
            differences += [
                f"its binding adds {where}{name}"
                for name in sorted(bound_names - {*names, "count"})
            ]
        differences = differences or [
            f"its binding has rows of {' '.join(row)}, not of {' '.join(self.each)}"
        ]
        return BrokenContract(
            f"lua: {self.verb}.lua and its binding differ: {', '.join(differences)}"
        )

    def named(self, args: Sequence[Any]) -> Any:
        """Return ARGV by name: each argument is an attribute, and `rows` is a list of tuples."""
        width = max(1, len(self.each))
        head = len(self.once)
        rows = [self._row(*args[start : start + width]) for start in range(head, len(args), width)]
        return SimpleNamespace(**dict(zip(self.once, args, strict=False)), rows=rows)

    @cached_property
    def _row(self) -> Callable[..., Any]:
        return namedtuple("Row", self.each)  # the fields of the object are those of the header

    # -- for Lua -----------------------------------------------------------------------------------

    def before(self) -> str:
        """Return Lua for the beginning of a script: the number of rows, and the tables of checks.

        lib/call/arguments.lua reads the tables: the type of each key, and the fields that must be
        numbers.
        """

        def table(values: Iterable[str]) -> str:
            return "{" + ", ".join(values) + "}"

        names = [key.rstrip("*") for key in self.keys]
        types = [repr(TYPES.get(name, "")) for name in names]
        numbers = [
            f"[{position}] = {table(map(repr, NUMBERS[name]))}"
            for position, name in enumerate(names, 1)
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
        """Return Lua for the table KEY of the keys that a text names.

        Libraries name a key as KEY.ended or, without the colon, as KEY.extra.
        """
        places = {key.rstrip(":"): place for key, place in self._places().items()}
        used = {*places} if "KEY[" in text else set(re.findall(r"\bKEY\.(\w+)", text))
        entries = [f"{name} = {place}" for name, place in places.items() if name in used]
        return f"{self._base(entries)}local KEY = {{{', '.join(entries)}}}\n" if entries else ""

    def _places(self) -> dict[str, str]:
        """Return Lua for each key: its place in KEYS, or how the script spells the key."""
        sent = {
            key: f"KEYS[{position}]" for position, key in enumerate(self.keys[: self._fixed], 1)
        }
        return sent | {key: f"BASE .. '{key}'" for key in self.also}

    def _base(self, used: Iterable[str]) -> str:
        """Return Lua for BASE, the beginning of the keys of ALSO, if such a key is used."""
        begin = f"local BASE = string.sub(KEYS[1] or '', 1, -{len(self.keys[0]) + 1})\n"
        return begin if any("BASE" in place for place in used) else ""

    def check(self, words: frozenset[str]) -> str:
        """Return Lua that makes locals of the used keys, and refuses a malformed call.

        words: the words of the script's own lines.
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
        """Return Lua that refuses texts that are too long, and too many rows."""

        def table(names: Sequence[str]) -> str:
            return "{" + ", ".join(f"'{name}', {self.longest[name]}" for name in names) + "}"

        def too_long(names: Sequence[str], row: str) -> str:
            return " or ".join(
                f"#ARGV[{row}{position}] > {self.longest[name]}"
                for position, name in enumerate(names, 1)
            )

        lines = []
        head = len(self.once)
        width = len(self.each)
        if self.once:
            refusal = f"in_full().too_long('{self.verb}', 0, {table(self.once)})"
            lines.append(f"if {too_long(self.once, '')} then return {refusal} end")
        if self.each:
            lines.append(
                f"if count > {MAX_ROWS} then return in_full().too_many('{self.verb}', {MAX_ROWS}) "
                "end"
            )
            refusal = f"in_full().too_long('{self.verb}', row, {table(self.each)})"
            lines.append(f"for row = {head}, #ARGV - 1, {width} do")
            lines.append(f"  if {too_long(self.each, 'row + ')} then return {refusal} end")
            lines.append("end")
        return lines

    def resolve(self, text: str) -> str:
        """Return Lua in which the header's names are places in KEYS and ARGV, and rows() is a loop.

        Raises BrokenContract for a name that the header lacks.
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
            position = names.index(match[2]) + 1
            return f"ARGV[{position}]" if match[1] == "args" else f"ARGV[row + {position}]"

        def loop(match: re.Match[str]) -> str:
            i, row = match.groups()
            return f"for {i} = 1, count do local {row} = {width} * {i} + {head - width}"

        text = _NAMED_ARGUMENT.sub(place, _ROWS_LOOP.sub(loop, text))
        return (
            re.sub(rf"\b{self._star}_at\(([^()]+)\)", rf"KEYS[{fixed} + \1]", text)
            if self._star
            else text
        )

"""Lay out a table for a terminal or for a pipe. Pure: columns, rows and a width in, lines out.

On a terminal no value is broken: columns that are empty are left out, then those that matter least,
then long names are cut. A sentence that does not fit beside its row stands below it. Without a
width (a pipe, `--wide`) each row is one line, and values are whole. A pipe has the same columns
whatever its rows are: all but the details, which `--wide` shows.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

GAP: Final = 2
INDENT: Final = "    "
BESIDE: Final = 40
"""A sentence stands beside its row if it has so much room there, else below it."""

DETAIL: Final = 3
"""Columns of this rank are left out before a name is cut, or a sentence moves below its row.

A pipe has none.
"""

SHORTEST: Final = 12
"""A name is not cut below so many characters."""

_UUID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


@dataclass(frozen=True, slots=True)
class Column:
    """A column. rank: 0 is always shown; where room is short, larger ranks are left out first.

    cut: the side at which a long value is cut, 'left' or 'right'; '' for never. prose: its values
    are sentences. text: they are no numbers, even if they look so.
    """

    name: str
    rank: int = 0
    cut: str = ""
    prose: bool = False
    text: bool = False


def lay_out(
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    wide: bool = False,
) -> list[str]:
    """Return the lines of a table of printable texts, the head first.

    width: of a line, None for any length. wide: without a width, details are shown too.
    """
    wanted = [column if isinstance(column, Column) else Column(column) for column in columns]
    every = range(len(wanted))
    if width is None:
        shown = [at for at in every if wide or wanted[at].rank < DETAIL]
        return _lines(wanted, rows, shown, [_width(wanted, rows, at) for at in every])
    # An empty column says nothing. The first has the names, and stays.
    kept = [at for at in every if at == 0 or any(row[at] not in ("", "-") for row in rows)]
    prose = next((at for at in reversed(kept) if wanted[at].prose), None)
    short = [at for at in kept if at != prose]
    room_wanted = (
        min(max(cell_len(row[prose]) for row in rows), BESIDE) + GAP if prose is not None else 0
    )
    short = _without(
        wanted, short, DETAIL, lambda kept: _total(wanted, rows, kept) + room_wanted > width
    )
    short = _without(wanted, short, 1, lambda kept: _total(wanted, rows, kept, SHORTEST) > width)
    widths = _cut(wanted, short, [_width(wanted, rows, at) for at in every], width)
    room = width - sum(widths[at] + GAP for at in short)
    if prose is None:
        return _lines(wanted, rows, short, widths)
    longest = max(cell_len(row[prose]) for row in rows)
    beside = room >= min(longest, BESIDE)
    head, *lines = _lines(wanted, rows, short, widths)
    before = sum(widths[at] + GAP for at in short)
    found = [f"{head:<{before}}{wanted[prose].name}" if beside else head]
    for line, row in zip(lines, rows, strict=True):
        found += _with_prose(line, row[prose], before if beside else None, width)
    return found


def _with_prose(line: str, text: str, before: int | None, width: int) -> list[str]:
    """Return a row and its sentence, beside it from column `before` on, or below it."""
    if text.strip() in ("", "-"):
        return [line]
    if before is None:
        return [
            line,
            *textwrap.wrap(text, max(20, width), initial_indent=INDENT, subsequent_indent=INDENT),
        ]
    first, *others = textwrap.wrap(text, width - before)
    pad = " " * (before - cell_len(line))
    return [f"{line}{pad}{first}", *(" " * before + other for other in others)]


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], at: int) -> int:
    return max([cell_len(columns[at].name), *(cell_len(row[at]) for row in rows)])


def _without(
    columns: Sequence[Column],
    kept: list[int],
    least: int,
    too_wide: Callable[[Sequence[int]], bool],
) -> list[int]:
    """Return the columns that are left when those of the largest ranks, at least `least`, are taken
    out one by one.
    """
    left = list(kept)
    while too_wide(left) and (some := [at for at in left if columns[at].rank >= least]):
        left.remove(max(some, key=lambda at: (columns[at].rank, at)))
    return left


def _total(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    kept: Sequence[int],
    cut: int | None = None,
) -> int:
    """Return the width of these columns; cut: of each that may be cut it is at most so large."""
    widths = [(columns[at], _width(columns, rows, at)) for at in kept]
    return sum(
        w if cut is None or not column.cut else min(w, cut) for column, w in widths
    ) + GAP * (len(widths) - 1)


def _cut(
    columns: Sequence[Column], kept: Sequence[int], widths: list[int], width: int
) -> list[int]:
    """Return the widths after the widest columns that may be cut have given what is too much."""
    widths = list(widths)
    over = sum(widths[at] for at in kept) + GAP * (len(kept) - 1) - width
    while over > 0 and (some := [at for at in kept if columns[at].cut and widths[at] > SHORTEST]):
        widest = max(some, key=lambda at: widths[at])
        widths[widest] -= 1
        over -= 1
    return widths


def _lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    kept: Sequence[int],
    widths: Sequence[int],
) -> list[str]:
    numeric = {
        at for at in kept if not columns[at].text and all(_is_number(row[at]) for row in rows)
    }
    heads = [column.name for column in columns]
    return [
        _line([(columns[at], row[at], widths[at], at in numeric) for at in kept])
        for row in (heads, *rows)
    ]


def _line(cells: Iterable[tuple[Column, str, int, bool]]) -> str:
    parts = []
    for column, text, width, numeric in cells:
        text = _shorten(text, width, column.cut)
        pad = " " * (width - cell_len(text))
        parts.append(pad + text if numeric else text + pad)
    return (" " * GAP).join(parts).rstrip()


def _shorten(text: str, width: int, side: str) -> str:
    if cell_len(text) <= width or not side:
        return text
    while cell_len(text) > width - 1:  # a character may take two cells
        text = text[1:] if side == "left" else text[:-1]
    return f"…{text}" if side == "left" else f"{text}…"


def _is_number(text: str) -> bool:
    return not text or text == "-" or text.replace(".", "", 1).replace("-", "", 1).isdigit()


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return for each id what a table shows: of a UUID its first 8 characters, or more if these are
    not its alone.
    """
    every = list(ids)
    for size in (8, 13, 18):
        found = {id: id[:size] if _UUID.fullmatch(id) else id for id in every}
        if len(set(found.values())) == len(found):
            return found
    return {id: id for id in every}


def shorten_ids(text: str) -> str:
    """Return a sentence with the first 8 characters of each UUID."""
    return _UUID.sub(r"\1", text)


def wrapped(text: str, width: int, indent: int) -> list[str]:
    """Return a sentence with short ids as lines of this width; the others begin `indent` after the
    first.
    """
    start = " " * (len(text) - len(text.lstrip()))
    wrapper = textwrap.TextWrapper(
        max(20, width), start, start + " " * indent, break_on_hyphens=False
    )
    wrapper.break_long_words = False
    return wrapper.wrap(shorten_ids(text.strip())) or [text]

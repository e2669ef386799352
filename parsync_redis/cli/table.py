"""Lay out a table for a terminal or for a pipe. Pure: columns, rows and a width in, lines out.

On a terminal no value is broken: empty columns are left out, then columns of large rank, then long
names are cut. A sentence that does not fit beside its row stands below the row. Without a width (a
pipe, `--wide`) each row is one line, and values are whole. A pipe has the same columns whatever its
rows are: all columns but the details, which `--wide` shows.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

GAP: Final = 2
INDENT: Final = "    "
MIN_PROSE_WIDTH: Final = 40
"""A longer sentence stands beside its row if it has this many characters there, else below it."""

DETAIL_RANK: Final = 3
"""Smallest rank of a detail.

On a terminal details are left out before a name is cut or a sentence moves below its row; a pipe
has no details.
"""

MIN_NAME_WIDTH: Final = 12
"""Minimum number of characters of a name that is cut."""

_UUID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


@dataclass(frozen=True, slots=True)
class Column:
    """A column. rank: 0 is always shown; where room is short, larger ranks are left out first.

    cut: the side at which a long value is cut, 'left' or 'right'; '' for never.
    prose: the values are sentences.
    text: the values are no numbers, even if they look like numbers.
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

    width: of a line, None for any length.
    wide: without a width, details are shown too.
    """
    all_columns = [column if isinstance(column, Column) else Column(column) for column in columns]
    indexes = range(len(all_columns))
    full_widths = [_width(all_columns, rows, index) for index in indexes]
    if width is None:
        visible = [index for index in indexes if wide or all_columns[index].rank < DETAIL_RANK]
        return _lines(all_columns, rows, visible, full_widths)
    # An empty column says nothing. The first has the names, and stays.
    filled = [
        index for index in indexes if index == 0 or any(row[index] not in ("", "-") for row in rows)
    ]
    prose = next((index for index in reversed(filled) if all_columns[index].prose), None)
    short = [index for index in filled if index != prose]
    prose_width = 0
    if prose is not None:
        prose_width = min(max(cell_len(row[prose]) for row in rows), MIN_PROSE_WIDTH) + GAP

    def is_too_wide_with_prose(indexes: Sequence[int]) -> bool:
        return _total(all_columns, rows, indexes) + prose_width > width

    def is_too_wide_when_cut(indexes: Sequence[int]) -> bool:
        return _total(all_columns, rows, indexes, MIN_NAME_WIDTH) > width

    short = _without(all_columns, short, DETAIL_RANK, is_too_wide_with_prose)
    short = _without(all_columns, short, 1, is_too_wide_when_cut)
    widths = _cut(all_columns, short, full_widths, width)
    if prose is None:
        return _lines(all_columns, rows, short, widths)
    return _with_prose(all_columns, rows, short, widths, prose, width)


def _with_prose(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    short: Sequence[int],
    widths: Sequence[int],
    prose: int,
    width: int,
) -> list[str]:
    """Return the lines of a table whose column `prose` stands beside the rows, or below them.

    short: the indexes of the other columns.
    """
    prose_column = sum(widths[index] + GAP for index in short)
    longest = max(cell_len(row[prose]) for row in rows)
    fits_beside = width - prose_column >= min(longest, MIN_PROSE_WIDTH)
    head, *lines = _lines(columns, rows, short, widths)
    if fits_beside:
        head = f"{head:<{prose_column}}{columns[prose].name}"
    table = [head]
    for line, row in zip(lines, rows, strict=True):
        table += _prose_lines(line, row[prose], prose_column if fits_beside else None, width)
    return table


def _prose_lines(line: str, text: str, prose_column: int | None, width: int) -> list[str]:
    """Return a row and its sentence: beside the row from `prose_column` on, or below it if None."""
    if text.strip() in ("", "-"):
        return [line]
    if prose_column is None:
        sentence = textwrap.wrap(
            text, max(20, width), initial_indent=INDENT, subsequent_indent=INDENT
        )
        return [line, *sentence]
    first, *further = textwrap.wrap(text, width - prose_column)
    pad = " " * (prose_column - cell_len(line))
    return [f"{line}{pad}{first}", *(" " * prose_column + part for part in further)]


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], index: int) -> int:
    return max([cell_len(columns[index].name), *(cell_len(row[index]) for row in rows)])


def _without(
    columns: Sequence[Column],
    indexes: Sequence[int],
    min_rank: int,
    is_too_wide: Callable[[Sequence[int]], bool],
) -> list[int]:
    """Return the columns that remain when columns are removed until the table fits.

    The largest rank goes first, and no column of a rank below `min_rank` goes.
    """
    remaining = list(indexes)
    while is_too_wide(remaining):
        removable = [index for index in remaining if columns[index].rank >= min_rank]
        if not removable:
            break
        remaining.remove(max(removable, key=lambda index: (columns[index].rank, index)))
    return remaining


def _total(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    indexes: Sequence[int],
    max_cut_width: int | None = None,
) -> int:
    """Return the width of a table of these columns.

    max_cut_width: the largest width of a column that may be cut; None for its full width.
    """
    total = GAP * (len(indexes) - 1)
    for index in indexes:
        width = _width(columns, rows, index)
        if max_cut_width is not None and columns[index].cut:
            width = min(width, max_cut_width)
        total += width
    return total


def _cut(
    columns: Sequence[Column], indexes: Sequence[int], full_widths: Sequence[int], width: int
) -> list[int]:
    """Return the width of each column; the widest that may be cut are cut until the table fits."""
    widths = list(full_widths)
    excess = sum(widths[index] for index in indexes) + GAP * (len(indexes) - 1) - width
    while excess > 0:
        cuttable = [
            index for index in indexes if columns[index].cut and widths[index] > MIN_NAME_WIDTH
        ]
        if not cuttable:
            break
        widest = max(cuttable, key=lambda index: widths[index])
        widths[widest] -= 1
        excess -= 1
    return widths


def _lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    indexes: Sequence[int],
    widths: Sequence[int],
) -> list[str]:
    """Return the head and the rows of these columns as lines; numbers are aligned to the right."""
    numeric = {
        index
        for index in indexes
        if not columns[index].text and all(_is_number(row[index]) for row in rows)
    }
    heads = [column.name for column in columns]
    return [
        _line([(columns[index], row[index], widths[index], index in numeric) for index in indexes])
        for row in (heads, *rows)
    ]


def _line(cells: Iterable[tuple[Column, str, int, bool]]) -> str:
    """Return a row as a line. cells: column, text, width, and whether the column is numeric."""
    parts = []
    for column, text, width, numeric in cells:
        shortened = _shorten(text, width, column.cut)
        pad = " " * (width - cell_len(shortened))
        parts.append(pad + shortened if numeric else shortened + pad)
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
    """Return the text of each id in a table.

    A UUID is shown by its first 8 characters, or by more if several ids begin alike.
    """
    whole_ids = list(ids)
    for size in (8, 13, 18):
        texts = {id: id[:size] if _UUID.fullmatch(id) else id for id in whole_ids}
        if len(set(texts.values())) == len(texts):
            return texts
    return {id: id for id in whole_ids}


def shorten_ids(text: str) -> str:
    """Return a sentence with the first 8 characters of each UUID."""
    return _UUID.sub(r"\1", text)


def wrapped(text: str, width: int, indent: int) -> list[str]:
    """Return a sentence with short ids as lines of at most `width` columns.

    indent: columns by which lines after the first are indented.
    """
    start = " " * (len(text) - len(text.lstrip()))
    wrapper = textwrap.TextWrapper(
        max(20, width), start, start + " " * indent, break_on_hyphens=False
    )
    wrapper.break_long_words = False
    return wrapper.wrap(shorten_ids(text.strip())) or [text]

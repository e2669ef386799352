"""The reader of traces in columns: a CSV file, also one that gzip packed, row by row."""

import csv
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import is_name, shown

from ..simulate.trace import open_text

DAY_S: Final = 86_400.0
MOST_TIME_S: Final = 10**12
WHOLE_NUMBER_RULE: Final = "a whole number, 0 or more"
TORN: Final = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, lzma.LZMAError)
"""What reading a file raises that is missing, packed wrongly or not text."""


class Named(Protocol):
    """A record with a name."""

    @property
    def name(self) -> str:
        """The name, different for each record of a file."""


T = TypeVar("T", bound=Named)


@dataclass(frozen=True, slots=True)
class CsvRow:
    """A line of a trace, by column."""

    path: Path
    number: int
    values: Mapping[str, str]

    def error(self, fault: str) -> InvalidInput:
        """Return the error that this line has a fault."""
        return InvalidInput(f"{self.path}, line {self.number}: {fault}")

    def text(self, column: str) -> str:
        """Return the text of a column; raises InvalidInput, as all methods do."""
        if column not in self.values:
            raise self.error(f"there is no {column}: a line must have a value for each column")
        return self.values[column].strip()

    def whole(self, column: str, most: int = 10**12, right: str = WHOLE_NUMBER_RULE) -> int:
        """Return a whole number from 0 to `most`. right: the rule, for the message."""
        text = self.text(column)
        if not (text.isascii() and text.isdecimal() and len(text) <= 13 and int(text) <= most):
            raise self.error(f"{column} {text[:40]!r} is not valid: it must be {right}")
        return int(text)

    def number_from(self, column: str, least: float, most: float, right: str) -> float:
        """Return a number from `least` to `most`. right: the rule, for the message."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise self.error(f"{column} {text[:40]!r} is not valid: it must be {right}")
        return value

    def seconds(self, column: str) -> float:
        """Return a time in seconds."""
        return self.number_from(column, 0, MOST_TIME_S, "a number of seconds, 0 or more")

    def named(self, column: str) -> str:
        """Return a name that the product takes."""
        text = self.text(column)
        if not is_name("node name", text):
            raise self.error(
                f"{column} {shown(text)} is not valid: it must be 1 to 128 letters, digits or _.@-"
            )
        return text

    def check(self, make: Callable[[], object]) -> None:
        """Let the product check names and amounts."""
        try:
            make()
        except InvalidInput as error:
            raise self.error(str(error)) from None


def read_records(path: Path, columns: Sequence[str], make: Callable[[CsvRow], T]) -> list[T]:
    """Read a file of records, each of which has a name of its own; raises InvalidInput."""
    records: dict[str, T] = {}
    for row in read_rows(path, columns):
        record = make(row)
        if record.name in records:
            raise row.error(f"{record.name} is there twice: each must have a name of its own")
        records[record.name] = record
    return list(records.values())


def read_rows(path: Path, columns: Sequence[str]) -> list[CsvRow]:
    """Return the rows of a file that has these columns, at least one; raises InvalidInput."""
    try:
        with open_text(path) as file:
            rows = list(rows_of(csv.reader(file), path, columns))
    except TORN as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    if not rows:
        raise InvalidInput(
            f"{path} is empty: below the names of its columns it must have a line for each of them"
        )
    return rows


def rows_of(lines: Iterable[list[str]], path: Path, columns: Sequence[str]) -> Iterator[CsvRow]:
    """Yield the rows below the line that names the columns; raises InvalidInput."""
    lines = iter(lines)
    head = [name.strip() for name in next(lines, [])]
    if missing := [name for name in columns if name not in head]:
        has = ", ".join(head[:12]) or "no columns"
        raise InvalidInput(
            f"{path} has no column {', '.join(missing)}: it has {has}, and needs "
            f"{', '.join(columns)}"
        )
    for number, line in enumerate(lines, 2):
        if line:
            yield CsvRow(path, number, dict(zip(head, line, strict=False)))

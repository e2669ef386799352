"""The reader of traces of batch tasks, as in Alibaba's trace of 2017."""

import csv
import gzip
import lzma
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from parsync_redis.errors import InvalidInput

TRACE_COLUMNS: Final = {
    "create": "task_create_time",
    "end": "task_end_time",
    "instances": "number_of_instances",
}
JOB_COLUMN: Final = "job_id"
MAX_INSTANCES: Final = 10**6


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A row: `instances` equal tasks of a job, which arrived at `at_s` and ran for `runs_s`."""

    at_s: float
    runs_s: float
    instances: int
    job: str = ""


def read_trace(path: Path, of_jobs: bool = False) -> list[TraceRow]:
    """Return the rows in order of time; raises InvalidInput for a missing or empty file.

    of_jobs: the rows must name their jobs.

    Rows without both times, or with an end before the beginning, are left out: their tasks never
    ran.
    """
    try:
        with open_text(path) as file:
            rows = sorted(_rows(csv.reader(file), path, of_jobs), key=lambda row: row.at_s)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, lzma.LZMAError) as error:
        raise InvalidInput(f"trace {path} cannot be read: {error}") from None
    if not rows:
        raise InvalidInput(
            f"trace {path} is empty: no row has a time of creation, a later end and instances"
        )
    return rows


def open_text(path: Path) -> TextIO:
    """Open a text file, also one that gzip packed."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _rows(lines: Iterable[list[str]], path: Path, of_jobs: bool) -> Iterable[TraceRow]:
    columns = [*TRACE_COLUMNS.values(), *([JOB_COLUMN] if of_jobs else [])]
    head = [" ".join(name.split()) for name in next(iter(lines), [])]
    if not any(head):
        raise InvalidInput(
            f"trace {path} is empty: its first line must name the columns {', '.join(columns)}"
        )
    if missing := [name for name in columns if name not in head]:
        raise InvalidInput(
            f"trace {path} has no column {', '.join(missing)}; it has {', '.join(head[:12])}; "
            "needed are "
            f"{', '.join(columns)}"
        )
    job = head.index(JOB_COLUMN) if of_jobs else None
    create, end, instances = (head.index(name) for name in TRACE_COLUMNS.values())
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        try:
            begin_s, end_s, count = (
                float(line[column] or 0) for column in (create, end, instances)
            )
            name = "" if job is None else line[job].strip()
        except (ValueError, IndexError):
            raise InvalidInput(
                f"trace {path}, line {number}: not a row of numbers: {','.join(line)[:80]!r}"
            ) from None
        if 0 < begin_s < end_s < float("inf") and 1 <= count <= MAX_INSTANCES:
            yield TraceRow(begin_s, end_s - begin_s, int(count), name)

"""The readers of traces of model serving: requests, times to load a model, CPUs of nodes over time.

The requests and the times to load are those of Alibaba's trace of 2026 (GenAI), the CPUs those of
harvest machines (Zhang et al., SOSP 2021).
"""

import csv
import io
import tarfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import shown
from parsync_redis.model.limits import MAX_SLOTS

from ..simulate.trace import open_text
from .records import TORN, CsvRow, read_rows, rows_of

TIME_COLUMN: Final = "gmt_create"
STATUS_COLUMN: Final = "predict_status"
SECONDS_COLUMN: Final = "exec_time_seconds"
MODEL_COLUMN: Final = "checkpoint_model_version_id"
REQUEST_COLUMNS: Final = (TIME_COLUMN, STATUS_COLUMN, SECONDS_COLUMN, MODEL_COLUMN)
SUCCEEDED: Final = "SUCCEED"
LOAD_COLUMN: Final = "value"
"""The time to load a base model, in milliseconds."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, made at `at_s` from the first request on, which ran for `runs_s`."""

    at_s: float
    model: str
    runs_s: float


def read_requests(path: Path, limit: int | None = None) -> list[ModelRequest]:
    """Return the first `limit` requests that succeeded, in order of time; raises InvalidInput."""
    rows = [
        row
        for row in read_rows(path, REQUEST_COLUMNS)
        if row.text(STATUS_COLUMN) == SUCCEEDED and row.text(MODEL_COLUMN)
    ]
    if not rows:
        raise InvalidInput(f"{path} has no request with {STATUS_COLUMN} {SUCCEEDED} and a model")
    begin = min(map(_time, rows))
    requests = [
        ModelRequest(
            (_time(row) - begin).total_seconds(),
            row.named(MODEL_COLUMN),
            row.seconds(SECONDS_COLUMN),
        )
        for row in rows
    ]
    return sorted(requests, key=lambda request: request.at_s)[:limit]


def _time(row: CsvRow) -> datetime:
    text = row.text(TIME_COLUMN)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise row.error(
            f"{TIME_COLUMN} {text[:40]!r} is not valid: it must be a time, 2024-11-15 16:57:50"
        ) from None


def read_loads(path: Path) -> list[float]:
    """Return the times to load a model, in seconds; raises InvalidInput.

    path: a CSV file, or a .tar.gz that has one.
    """
    if path.name.endswith((".tar.gz", ".tgz")):
        rows = rows_of(csv.reader(io.StringIO(_only_member(path))), path, (LOAD_COLUMN,))
    else:
        rows = iter(read_rows(path, (LOAD_COLUMN,)))
    loads_s = [row.seconds(LOAD_COLUMN) / 1000 for row in rows]
    if not loads_s:
        raise InvalidInput(f"{path} is empty: it must have a line for each time to load a model")
    return loads_s


def _only_member(path: Path) -> str:
    """Return the text of the only file of an archive."""
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            if len(members) != 1:
                raise InvalidInput(f"{path} has {len(members)} files: it must have one, a CSV file")
            file = archive.extractfile(members[0])
            return file.read().decode() if file else ""
    except (tarfile.TarError, *TORN) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class CpuTrace:
    """The CPUs of a machine over time, which begins again at its end.

    times_s: when the number changed, ascending, the first 0.
    """

    times_s: Sequence[float]
    cpus: Sequence[int]
    length_s: float

    def at(self, now_s: float) -> int:
        """Return the number of CPUs at a time."""
        return self.cpus[bisect_right(self.times_s, now_s % self.length_s) - 1]

    def next_s(self, now_s: float) -> float:
        """Return when the number changes next."""
        rounds, position_s = divmod(now_s, self.length_s)
        index = bisect_right(self.times_s, position_s)
        change_s = self.times_s[index] if index < len(self.times_s) else self.length_s
        return rounds * self.length_s + change_s

    def most(self, begin_s: float, end_s: float) -> int:
        """Return the largest number of CPUs between two times."""
        most = self.at(begin_s)
        while (begin_s := self.next_s(begin_s)) <= end_s:
            most = max(most, self.at(begin_s))
        return most


HARVEST_LENGTH_S: Final = 1200.0
"""The machines were watched for 20 minutes."""


def read_harvest(path: Path, regime: str) -> list[CpuTrace]:
    """Return the CPUs of each machine of a regime; raises InvalidInput.

    path: a file with a line `# REGIME/NUMBER` for each machine, and below it lines `SECONDS CPUS`.
    regime: a part of the names of one regime, `active` for `sim_active_traces_padded`.
    """
    try:
        with open_text(path) as file:
            lines = file.read().splitlines()
    except TORN as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    machines: dict[str, list[tuple[float, int]]] = {}
    name = ""
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            name = line[1:].strip()
            machines[name] = []
        elif line.strip():
            if not name:
                raise InvalidInput(f"{path}, line {number}: a line # REGIME/NUMBER must come first")
            machines[name].append(_step(path, number, line))
    return [_of_machine(path, name, machines[name]) for name in _named(path, regime, machines)]


def _named(path: Path, regime: str, machines: Mapping[str, object]) -> list[str]:
    """Return the names of the machines of a regime, in the order of their numbers."""
    regimes = sorted({name.rpartition("/")[0] for name in machines})
    chosen = [name for name in regimes if regime in name]
    if len(chosen) != 1:
        raise InvalidInput(
            f"--regime {shown(regime)} is not valid: it must be a part of one of the regimes of "
            f"{path}: {', '.join(regimes)}"
        )
    names = [name for name in machines if name.rpartition("/")[0] == chosen[0]]
    return sorted(names, key=lambda name: (len(name), name))


def _step(path: Path, number: int, line: str) -> tuple[float, int]:
    seconds, _, cpus = line.partition(" ")
    row = CsvRow(path, number, {"seconds": seconds, "cpus": cpus})
    return row.seconds("seconds"), row.whole("cpus", MAX_SLOTS)


def _of_machine(path: Path, name: str, steps: Sequence[tuple[float, int]]) -> CpuTrace:
    times_s = [at_s for at_s, _ in steps]
    if not steps or times_s[0] != 0 or times_s != sorted(set(times_s)):
        raise InvalidInput(
            f"{path}: machine {name} must have lines SECONDS CPUS, the seconds from 0 on, ascending"
        )
    return CpuTrace(times_s, [cpus for _, cpus in steps], max(HARVEST_LENGTH_S, times_s[-1] + 1))

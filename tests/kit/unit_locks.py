"""See from outside whether a limit holds: a run locks a file for each unit, and asks no server.

A limit of N units has N files. A run that finds no unlocked file is one run too many. The kernel
unlocks what a killed process had locked. Each unit is a line, with O_APPEND, in one file for all
processes:

    unit|overrun LIMIT AT_ONCE NUMBER TASK ATTEMPT NODE PID SECONDS
"""

import fcntl
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

NOTES: Final = "units.log"


@contextmanager
def locked_units(
    folder: Path, limits: Mapping[str, Sequence[int]], place: Mapping[str, Any]
) -> Iterator[None]:
    """Lock the units of a run for the length of the block; note them, and each that is not free.

    limits: by name, how many units the run has, and of how many. place: `request.parsync`.
    """
    with ExitStack() as locks:
        for name, (units, at_once) in limits.items():
            for _ in range(units):
                number = _lock_one(folder, name, at_once, locks)
                event = "overrun" if number is None else "unit"
                where = (place[word] for word in ("id", "attempt", "node"))
                words = (event, name, at_once, number, *where, os.getpid())
                line = f"{' '.join(map(str, words))} {time.monotonic():.4f}\n"
                with (folder / NOTES).open("ab", buffering=0) as notes:
                    notes.write(line.encode())
        yield


def _lock_one(folder: Path, name: str, at_once: int, locks: ExitStack) -> int | None:
    """Lock an unlocked file of a limit; return its number, None if there is none."""
    for number in range(at_once):
        file = locks.enter_context((folder / f"{name}.{number}.lock").open("a"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return number
    return None


class Units(NamedTuple):
    """What the runs under limits noted.

    locked: number of units by limit. last: of these, how many were the last free unit of their
    limit. overruns: a sentence for each unit beyond a limit.
    at_once: by limit, its units. of_runs: by (task, attempt, process), the units of a run by limit,
    locked or not.
    """

    locked: Counter[str]
    last: Counter[str]
    overruns: list[str]
    at_once: dict[str, int]
    of_runs: defaultdict[tuple[str, str, int], Counter[str]]


def read_units(folder: Path) -> Units:
    """Return what the runs of a folder noted."""
    units = Units(Counter(), Counter(), [], {}, defaultdict(Counter))
    for line in (folder / NOTES).read_text(encoding="utf-8").splitlines():
        event, name, at_once, number, task, attempt, node, pid, at_s = line.split()
        units.at_once[name] = int(at_once)
        units.of_runs[task, attempt, int(pid)][name] += 1
        if event == "overrun":
            units.overruns.append(
                f"limit {name} of {at_once} is exceeded: task {task} attempt {attempt} on {node}, "
                f"process {pid}, at {at_s}"
            )
            continue
        units.locked[name] += 1
        units.last[name] += int(number) == int(at_once) - 1
    return units

"""The table of runs: what this process has asked to start and has not yet brought home.

An entry is made before a start is asked for and goes when its slot was released, so that nothing is started or freed a
second time. All hands of the agent share it, under one lock.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..model.place import Place

Key = tuple[str, str, int]  # task, attempt, slot


@dataclass(slots=True)
class Run:
    """An attempt that this process has asked to start: at its place, and with Celery's request once there is one.

    unwanted: how it ends without beginning, if Celery has no request for it yet, cancelled or recalled: another thread
    says so, and who would hand it to Celery reads it. why: why it was lost or did not begin, if so. delay_ms: for how
    long a recalled task must not be taken again. told: the server knows its outcome. left_s: since when it is known
    that it has left something in its slots (monotonic seconds), and -1 once the operator was told.
    """

    place: Place
    request: Any = None
    outcome: str = ""
    ending: str = ""
    unwanted: str = ""
    flaw: str = ""
    more_slots: frozenset[int] = frozenset()
    why: str = "the process that ran it was lost"
    told: bool = False
    delay_ms: int | None = None
    left_s: float = 0.0

    @property
    def slots(self) -> frozenset[int]:
        """All slots that it runs in: its place names the first."""
        return self.more_slots | {self.place.slot}

    @property
    def why_recalled(self) -> str:
        """Why its start does not count: by order, or because it could not begin."""
        return "its node is drained" if self.ending == "recalled" else self.why

    @property
    def key(self) -> Key:
        """What the table knows it by."""
        return self.place.task, self.place.attempt, self.place.slot


class Runs:
    """The runs of one process by task, attempt and slot."""

    def __init__(self) -> None:
        self._runs: dict[Key, Run] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, run: Run) -> bool:
        """Enters a run, unless it is known or another one still runs on one of its slots."""
        with self._lock:
            busy = any(other.slots & run.slots and not other.outcome for other in self._runs.values())
            if busy or run.key in self._runs:
                return False
            self._runs[run.key] = run
            return True

    def end(self, run: Run, outcome: str) -> bool:
        """Writes down how a run ended; False if that was known: the first word counts."""
        with self._lock:
            if run.outcome:
                return False
            run.outcome = outcome
            return True

    def drop(self, runs: Iterable[Run]) -> None:
        """Forgets runs: they are home."""
        with self._lock:
            for run in runs:
                self._runs.pop(run.key, None)

    def get(self, key: Key) -> Run | None:
        """The run of that key."""
        with self._lock:
            return self._runs.get(key)

    def keys(self) -> set[Key]:
        """What is in the table now."""
        with self._lock:
            return set(self._runs)

    def open(self) -> list[Run]:
        """Runs that have not ended; those without a request have not begun."""
        with self._lock:
            return [run for run in self._runs.values() if not run.outcome]

    def going(self) -> list[Run]:
        """Runs that Celery has a request for and that have not ended."""
        with self._lock:
            return [run for run in self._runs.values() if run.request is not None and not run.outcome]

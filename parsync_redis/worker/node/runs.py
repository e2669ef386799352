"""The table of runs: what this process has asked to start, until its slots are free again.

A run enters before its start is asked for and leaves when its slots were freed, so that nothing is
started or freed twice. All threads of the agent share the table, under one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ...model.place import Place
from .worker_port import RunRequest

Key = tuple[str, str, int]  # task, attempt, slot

KEPT_PASSES: Final = 10
"""For so many passes of the reconciler the table keeps what the server was told: two leases, an
outage not counted.
"""


@dataclass(slots=True)
class Run:
    """An attempt that this process has asked to start.

    request: Celery's, once there is one. outcome: how it ended, '' while it has not. ending: the
    signal that the agent has ended it with, or recalled. unwanted: cancelled or recalled, if it
    must not be handed to Celery any more, which another thread may set. flaw: what is wrong with
    its message or its result. unstored: the result backend did not take its result, which the
    outbox tells later. why: why it was lost or did not begin. delay_ms: how long a recalled task
    must wait before it is taken again. unbegun: it was recalled before it began, and its task has
    been ready all the time. told: the server knows its outcome. left_s: since when a process of it
    is known to live on in its slots (monotonic seconds), -1 once that was logged. waits: it waits
    at the worker, and nobody has asked to start it; due_s: it is handed back then if it has not
    begun. given: the slots that it runs in, if its place names a waiting seat, or a slot in which
    another runs. name: of its task. handed_s: when it was handed to Celery. began_s: when the pool
    began it, 0 while it waits for a process or a thread. freeing: the release of its slots was
    asked for. failed: whether its function failed, None if its end says nothing of this node.
    redelivered: a run of its task's message had begun before. before: the same attempt as it ended
    here; its outcome is told again, as the server has lost it.
    """

    place: Place
    request: RunRequest | None = None
    outcome: str = ""
    ending: str = ""
    unwanted: str = ""
    flaw: str = ""
    unstored: bool = False
    why: str = "the process that ran it was lost"
    is_reported: bool = False
    delay_ms: int | None = None
    unbegun: bool = False
    left_s: float = 0.0
    waits: bool = False
    due_s: float = 0.0
    given_slots: tuple[int, ...] = ()
    name: str = ""
    handed_s: float = 0.0
    began_s: float = 0.0
    freeing: bool = False
    failed: bool | None = None
    redelivered: bool = False
    before: Run | None = None

    @property
    def slots(self) -> frozenset[int]:
        """All slots that it runs in."""
        return frozenset(self.given_slots or self.place.slots)

    @property
    def is_simple(self) -> bool:
        """True if it holds one slot and no amounts: its lease may stand a little longer than it
        runs.
        """
        return len(self.place.slots) == 1 and not self.place.asked

    @property
    def occupies(self) -> bool:
        """True if nothing else may run in its slots: until it ends; with amounts, until free."""
        return not self.waits and (not self.outcome or not self.is_simple)

    @property
    def why_recalled(self) -> str:
        """Why its start does not count: its node is drained, or it could not begin."""
        return "its node is drained" if self.ending == "recalled" else self.why

    @property
    def key(self) -> Key:
        """Its key in the table."""
        return self.place.task, self.place.attempt, self.place.slot


class Runs:
    """The runs of one process by task, attempt and slot."""

    def __init__(self) -> None:
        self._runs: dict[Key, Run] = {}
        # with the pass in which it was told, the oldest first
        self._told: dict[Key, tuple[int, Run]] = {}
        self._passes = 0
        self._reserved: set[int] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, run: Run) -> bool:
        """Enter a run; False if it is there already, or another run has not ended at one of its
        seats.
        """
        with self._lock:
            seats = set(run.place.slots)
            busy = any(
                not present.outcome and not seats.isdisjoint(present.place.slots)
                for present in self._runs.values()
            )
            if busy or run.key in self._runs:
                return False
            _, run.before = self._told.get(run.key, (0, None))
            self._runs[run.key] = run
            return True

    def behind(self, slots: int) -> frozenset[Key]:
        """Return the keys of the runs that hold a slot behind a node's first `slots` slots."""
        with self._lock:
            return frozenset(
                key for key, run in self._runs.items() if max(run.place.slots) >= slots
            )

    def waiting(self) -> list[Run]:
        """Return the runs that wait to be started, in the order in which they came."""
        with self._lock:
            return [run for run in self._runs.values() if run.waits and not run.outcome]

    def idle(self, slots: int, reserve: bool = False) -> list[int]:
        """Return those of a node's first `slots` slots in which nothing runs.

        A slot whose release was asked for is idle if what waits holds it anew. reserve: nobody may
        free them until `give` was called.
        """
        with self._lock:
            busy = {slot for run in self._runs.values() if run.occupies for slot in run.slots}
            freeing = {slot for run in self._runs.values() if run.freeing for slot in run.slots}
            if freeing:
                busy |= freeing - {
                    slot for run in self._runs.values() if run.waits for slot in run.place.slots
                }
            idle = [slot for slot in range(slots) if slot not in busy]
            self._reserved = set(idle) if reserve else self._reserved
        return idle

    def give(self, slots_of_runs: Iterable[tuple[Run, tuple[int, ...]]]) -> None:
        """Note in which of the reserved slots runs have started; the others are not reserved any
        more.
        """
        with self._lock:
            for run, slots in slots_of_runs:
                run.given_slots = slots
                run.waits = False
            self._reserved = set()

    def used_by_others(self, run: Run) -> bool:
        """Return True if another run goes on in the slots of one that has ended: its lease stands
        for theirs.
        """
        with self._lock:
            return self._used_by_others(run)

    def may_free(self, run: Run) -> bool:
        """Return False if another run goes on or starts in the slots of one that has ended; else
        none will start.
        """
        with self._lock:
            run.freeing = not self._reserved & run.slots and not self._used_by_others(run)
            return run.freeing

    def _used_by_others(self, run: Run) -> bool:
        candidates = (
            candidate
            for candidate in self._runs.values()
            if candidate is not run and not candidate.waits
        )
        return any(
            not candidate.outcome and candidate.slots & run.slots for candidate in candidates
        )

    def end(self, run: Run, outcome: str) -> bool:
        """Note how a run ended; False if that was known already: the first outcome counts."""
        with self._lock:
            if run.outcome:
                return False
            run.outcome = outcome
            return True

    def drop(self, runs: Iterable[Run]) -> None:
        """Take runs out of the table, as their slots are free; keep what the server was told of how
        they ended.

        A failover may lose what the server was told last. Then the doorbell of the same attempt
        rings again.
        """
        with self._lock:
            for run in runs:
                dropped = self._runs.pop(run.key, None)
                if dropped is not None and dropped.is_reported and dropped.outcome != "refused":
                    self._told.pop(dropped.key, None)
                    self._told[dropped.key] = (
                        self._passes,
                        replace(dropped, request=None, before=None),
                    )

    def passed(self) -> None:
        """Note that the reconciler has compared the leases with this table; forget what was told
        KEPT_PASSES ago.
        """
        with self._lock:
            self._passes += 1
            while self._told:
                key, (told_at, _) = next(iter(self._told.items()))
                if told_at > self._passes - KEPT_PASSES:
                    break
                del self._told[key]

    def get(self, key: Key) -> Run | None:
        """Return the run of that key."""
        with self._lock:
            return self._runs.get(key)

    def of_header(self, place: object) -> Run | None:
        """Return the run that a request's `parsync` header names, if it is one of this process."""
        if not isinstance(place, Mapping) or "attempt" not in place:
            return None
        return self.get((str(place["id"]), str(place["attempt"]), int(place["slot"])))

    def keys(self) -> set[Key]:
        """Return the keys that are in the table now."""
        with self._lock:
            return set(self._runs)

    def open(self) -> list[Run]:
        """Return the runs that have not ended; those without a request have not begun."""
        with self._lock:
            return [run for run in self._runs.values() if not run.outcome]

    def going(self) -> list[Run]:
        """Return the runs that have a request of Celery's and have not ended."""
        with self._lock:
            return [
                run for run in self._runs.values() if run.request is not None and not run.outcome
            ]

"""The table of runs: the attempts that this process has asked to start.

A run enters the table before its start is asked for, and leaves the table when its slots were
freed. So no run is started or freed twice. All threads of the agent share the table, under one
lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ...model.place import Place
from .worker_port import RunRequest

RunKey = tuple[str, str, int]  # task, attempt, slot

KEPT_PASSES: Final = 10
"""The passes of the reconciler for which the table keeps reported outcomes: two leases."""


@dataclass(slots=True)
class Run:
    """An attempt that this process has asked to start.

    request: the worker's request, None before.
    outcome: how the run ended, '' while it has not.
    ending: the signal by which the agent has ended the run, or "recalled".
    kill_s: when the run, which was recalled, is killed (monotonic seconds); 0 if it was not
        recalled, or was killed since.
    unwanted: "cancelled" or "recalled" if the run must not be handed to the worker any more; any
        thread may set this.
    flaw: what is wrong with the message or the result.
    unstored: the result backend did not take the result, which the results outbox tells later.
    why: why the run was lost or did not begin.
    is_reported: the server knows the outcome.
    delay_ms: how long a recalled task must wait before its next take.
    unbegun: the run was recalled before it began, and its task was ready all the time.
    left_s: since when a process of the ended run is known to live in its slots (monotonic seconds),
        -1 once that was logged.
    waits: the run waits at the worker, and nobody has asked to start it.
    due_s: when a waiting run is handed back.
    given_slots: the slots in which the task runs, if they are not the place's.
    name: the task's name.
    handed_s: when the run was handed to the worker.
    began_s: when the pool began the run, 0 while it waits for a process or a thread.
    freeing: the release of the slots was asked for.
    failed: whether the function failed, None if the end says nothing about this node.
    redelivered: an earlier run of the task's message had begun.
    before: the same attempt as it ended here, if the server has lost its outcome, which is then
        reported again.
    """

    place: Place
    request: RunRequest | None = None
    outcome: str = ""
    ending: str = ""
    kill_s: float = 0.0
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
        """The slots in which the task runs."""
        return frozenset(self.given_slots or self.place.slots)

    @property
    def is_simple(self) -> bool:
        """True if the run holds one slot and no amounts.

        The lease of such a run may stand a little longer than the run.
        """
        return len(self.place.slots) == 1 and not self.place.asked

    @property
    def occupies(self) -> bool:
        """True if no other run may start in the slots yet."""
        return not self.waits and (not self.outcome or not self.is_simple)

    @property
    def key(self) -> RunKey:
        """The run's key in the table."""
        return self.place.task, self.place.attempt, self.place.slot


class Runs:
    """The runs of one process by task, attempt and slot."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, Run] = {}
        # each outcome with the pass in which its run left the table, the oldest first
        self._told: dict[RunKey, tuple[int, Run]] = {}
        self._passes = 0
        self._reserved: set[int] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, run: Run) -> bool:
        """Enter a run; return False if the run is there, or another run holds one of its seats."""
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

    def behind(self, limit: int, counts_slots: bool) -> frozenset[RunKey]:
        """Return the keys of the runs that hold slots which are shut: their end may open slots.

        limit: how many slots the node gives. The slots that are open and what is held behind them
            are no more than that (lua/lib/node/capacity.lua).
        counts_slots: what is held is counted in slots, else in tasks.
        """
        with self._lock:
            runs = list(self._runs.values())
        counting = {
            slot
            for run in runs
            for slot in (run.place.slots if counts_slots else (run.place.slot,))
        }
        open_slots = limit
        held_behind = sum(slot >= limit for slot in counting)
        while open_slots > 0 and open_slots + held_behind > limit:
            open_slots -= 1
            held_behind += open_slots in counting
        return frozenset(run.key for run in runs if max(run.place.slots) >= open_slots)

    def waiting(self) -> list[Run]:
        """Return the runs that wait to be started, in the order in which they came."""
        with self._lock:
            return [run for run in self._runs.values() if run.waits and not run.outcome]

    def idle(self, slots: int, reserve: bool = False) -> list[int]:
        """Return those of a node's first `slots` slots in which nothing runs.

        A slot whose release was asked for is idle if a waiting run holds it anew. reserve: keep
        these slots from being freed until `give` is called.
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
        """Note the slots in which runs have started; reserve no slots any more."""
        with self._lock:
            for run, slots in slots_of_runs:
                run.given_slots = slots
                run.waits = False
            self._reserved = set()

    def used_by_others(self, run: Run) -> bool:
        """Return whether another run goes on in the slots of an ended run.

        The lease of the ended run stands for the other run.
        """
        with self._lock:
            return self._used_by_others(run)

    def may_free(self, run: Run) -> bool:
        """Return whether the slots of an ended run may be freed; then no run starts there."""
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

    def begin(self, run: Run, began_s: float) -> bool:
        """Note when the pool begins a run; return False if the run has ended and must not begin."""
        with self._lock:
            if run.outcome:
                return False
            run.began_s = began_s
            return True

    def end(self, run: Run, outcome: str, only_unbegun: bool = False) -> bool:
        """Note how a run ended; return False if it had ended: the first outcome counts.

        only_unbegun: return False also if the pool has begun the run.
        """
        with self._lock:
            if run.outcome or (only_unbegun and run.began_s):
                return False
            run.outcome = outcome
            return True

    def drop(self, runs: Iterable[Run]) -> None:
        """Remove runs from the table, because their slots are free.

        The reported outcomes are kept for a while: if a failover loses an outcome, the doorbell of
        the same attempt rings again.
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
        """Note a pass of the reconciler; forget outcomes that left KEPT_PASSES passes ago."""
        with self._lock:
            self._passes += 1
            while self._told:
                key, (told_at, _) = next(iter(self._told.items()))
                if told_at > self._passes - KEPT_PASSES:
                    break
                del self._told[key]

    def get(self, key: RunKey) -> Run | None:
        """Return the run of that key."""
        with self._lock:
            return self._runs.get(key)

    def of_header(self, place: object) -> Run | None:
        """Return the run that a request's `parsync` header names, None for no run of ours."""
        if not isinstance(place, Mapping) or "attempt" not in place:
            return None
        return self.get((str(place["id"]), str(place["attempt"]), int(place["slot"])))

    def keys(self) -> set[RunKey]:
        """Return the keys that are in the table now."""
        with self._lock:
            return set(self._runs)

    def open(self) -> list[Run]:
        """Return the runs that have not ended; those without a request have not begun."""
        with self._lock:
            return [run for run in self._runs.values() if not run.outcome]

    def going(self) -> list[Run]:
        """Return the runs that have a request and have not ended."""
        with self._lock:
            return [
                run for run in self._runs.values() if run.request is not None and not run.outcome
            ]

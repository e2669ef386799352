"""Reports how runs ended and frees their slots, in a thread: many at a time, again until the server has them.

An outcome is sent at once. A slot is freed when no process that was started in it lives any more on this machine.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..model.limits import MAX_BATCH
from ..model.place import Place
from ..store.calls import Call, Commands
from ..store.server_errors import Backoff
from ..store.store import Store
from .isolation.machine import Isolation
from .runs import Run, Runs

log = logging.getLogger("parsync.agent")

LOOK_S: Final = 0.2
"""How often an occupied slot is checked."""
LAST_TRIES: Final = 7
"""How often a worker that stops tries a server that does not answer: for some three seconds."""
PATIENCE_S: Final = 1.0
"""A killed process may take a moment to end; the log names processes that live longer."""


class Reporter(threading.Thread):
    """Reports outcomes to Redis, frees slots, and takes the runs out of the table."""

    def __init__(self, store: Store, runs: Runs, isolation: Isolation | None = None) -> None:
        super().__init__(name="parsync-report", daemon=True)
        self._store, self._runs, self._isolation = store, runs, isolation or Isolation()
        self._occupied: list[Run] = []
        self._ended: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._backoff = Backoff(log, "outcomes wait for the server")
        self._closing = False

    def ended(self, run: Run, outcome: str) -> None:
        """Report that a run has ended; only the first outcome counts. Any thread may call this.

        outcome: succeeded, failed, cancelled, again, lost (its process), refused or recalled. A run that was lost
        because the agent recalled it is *recalled*: its task goes back, and the start does not count.
        """
        if outcome == "lost" and run.ending == "recalled":
            outcome = "recalled"
        if self._runs.end(run, outcome):
            self._ended.put(run)

    def close(self) -> None:
        """Report what is left, for some seconds if the server does not answer, and end the thread."""
        self._closing = True
        self._ended.put(None)

    def run(self) -> None:
        """Report until closed."""
        store, last = self._store.again(), False
        while not last:
            some: list[Run | None] = []
            with suppress(queue.Empty):
                some.append(self._ended.get(timeout=LOOK_S if self._occupied else None))
            while len(some) < MAX_BATCH and not self._ended.empty():
                some.append(self._ended.get())
            last = None in some
            self._persist(store, self._occupied + [run for run in some if run is not None])

    def _persist(self, store: Store, runs: list[Run]) -> None:
        tries = 0
        while runs:
            try:
                self._report(store, runs)
                self._backoff.well()
                break
            except Exception as error:
                if not isinstance(error, ParsyncError | RedisError | OSError):
                    log.exception("outcomes could not be reported: unexpected")  # they wait all the same
                tries += 1
                pause_s = self._backoff.pause_s(error)
                if self._closing and tries >= LAST_TRIES:
                    return
                time.sleep(pause_s)
        for run in self._occupied:
            self._look(run)

    def _report(self, store: Store, runs: list[Run]) -> None:
        """Send outcomes, then free slots: a free slot has no running task.

        These are two round trips. If the server has lost its scripts, it may execute the second half of one and not the
        first.
        """
        free = [run for run in runs if self._isolation.free(run.slots)]
        new = [run for run in runs if not run.told]
        for words in store.run_all(_outcomes(store.commands, new)):
            if stale := words.count("stale"):
                log.warning("%d outcomes came too late: their tasks were given to others", stale)
        for run in new:
            run.told = True
        places = [run.place for run in free]
        store.run_all([store.commands.release(p, [x for x in places if x.partition == p]) for p in _partitions(places)])
        self._runs.drop(free)
        self._occupied = [run for run in runs if all(run is not other for other in free)]

    def _look(self, run: Run) -> None:
        """Log once that a run has ended and its slots are not free."""
        now_s = time.monotonic()
        if not run.left_s:
            run.left_s = now_s
        elif 0 < run.left_s < now_s - PATIENCE_S:
            run.left_s = -1
            log.warning(
                "task %s has ended, but slots %s of node %s stay held: what it started lives on (processes %s)",
                run.place.task,
                sorted(run.slots),
                run.place.node,
                self._isolation.living(run.slots),
            )


def _partitions(places: list[Place]) -> set[int]:
    return {place.partition for place in places}


def _outcomes(commands: Commands, runs: list[Run]) -> list[Call[list[str]]]:
    """Return the calls that report how these runs ended."""
    finished = [(r.place, r.outcome, r.flaw) for r in runs if r.outcome not in ("refused", "lost", "recalled")]
    lost = [(run.place, run.why) for run in runs if run.outcome == "lost"]
    recalled = [run for run in runs if run.outcome == "recalled"]
    calls = [commands.finish(finished)] if finished else []
    calls += [commands.requeue(lost)] if lost else []
    places, delays_ms = [(run.place, run.why_recalled) for run in recalled], [run.delay_ms for run in recalled]
    calls += [commands.requeue(places, "recalled", delays_ms)] if recalled else []
    return calls

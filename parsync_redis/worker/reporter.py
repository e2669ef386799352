"""Reporter: a thread that brings outcomes and releases home, many in one round trip, until the server has them.

An outcome goes at once. A slot is released when nothing that was started in it lives any more on this machine.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..model.limits import MAX_BATCH
from ..store.server_errors import Backoff
from ..store.store import Store
from .isolation.machine import Isolation
from .runs import Run, Runs

log = logging.getLogger("parsync.agent")

LOOK_S = 0.2
"""How often a slot that was left occupied is looked at."""
LAST_TRIES = 7
"""How often a worker that stops asks a server that does not answer: for some three seconds."""
PATIENCE_S = 1.0
"""Who was killed may take a moment to go: the operator is told of what lives for longer."""


class Reporter(threading.Thread):
    """Takes ended runs, tells Redis how they ended, releases their slots, and takes them out of the table."""

    def __init__(self, store: Store, runs: Runs, isolation: Isolation | None = None) -> None:
        super().__init__(name="parsync-home", daemon=True)
        self._store, self._runs, self._isolation = store, runs, isolation or Isolation()
        self._occupied: list[Run] = []
        self._ended: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._patience = Backoff(log, "outcomes wait for the server")
        self._closing = False

    def bring(self, run: Run) -> None:
        """A run has ended. Any thread may call this."""
        self._ended.put(run)

    def close(self) -> None:
        """Brings home what is there, for some seconds if the server does not answer, and ends the thread."""
        self._closing = True
        self._ended.put(None)

    def run(self) -> None:
        """Runs until closed."""
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
                self._bring_home(store, runs)
                self._patience.well()
                break
            except Exception as error:
                if not isinstance(error, ParsyncError | RedisError | OSError):
                    log.exception("outcomes could not be brought home: unexpected")  # they wait all the same
                tries += 1
                pause_s = self._patience.pause_s(error)
                if self._closing and tries >= LAST_TRIES:
                    return
                time.sleep(pause_s)
        for run in self._occupied:
            self._look(run)

    def _bring_home(self, store: Store, runs: list[Run]) -> None:
        """Outcomes first, slots second: a slot that is free has no running task.

        In two round trips: of one, the second half may be executed and the first not, if the server lost its scripts.
        """
        commands = store.commands
        free = [run for run in runs if self._isolation.free(run.slots)]
        new = [run for run in runs if not run.told]
        finished = [(r.place, r.outcome, r.flaw) for r in new if r.outcome not in ("refused", "lost", "recalled")]
        lost = [(run.place, run.why) for run in new if run.outcome == "lost"]
        calls: list[Any] = [commands.finish(finished)] if finished else []
        calls += [commands.requeue(lost)] if lost else []
        recalled = [run for run in new if run.outcome == "recalled"]
        places, delays_ms = [(run.place, run.why_recalled) for run in recalled], [run.delay_ms for run in recalled]
        calls += [commands.requeue(places, "recalled", delays_ms)] if recalled else []
        for words in store.run_all(calls):
            if stale := words.count("stale"):
                log.warning("%d outcomes came too late: their tasks were given to others", stale)
        for run in new:
            run.told = True
        parts = {run.place.partition for run in free}
        store.run_all([commands.release(p, [r.place for r in free if r.place.partition == p]) for p in parts])
        self._runs.drop(free)
        self._occupied = [run for run in runs if all(run is not other for other in free)]

    def _look(self, run: Run) -> None:
        """Tells the operator, once, that a run has ended and its slots are not free."""
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

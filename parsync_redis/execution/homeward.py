"""Homeward: a thread that brings outcomes and releases home, many in one round trip, until the server has them."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from typing import Any

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..store.commands import MAX_BATCH
from ..store.store import Store
from .runs import Run, Runs

log = logging.getLogger("parsync.agent")


class Homeward(threading.Thread):
    """Takes ended runs, tells Redis how they ended, releases their slots, and takes them out of the table."""

    def __init__(self, store: Store, runs: Runs) -> None:
        super().__init__(name="parsync-home", daemon=True)
        self._store, self._runs = store, runs
        self._ended: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
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
            some = [self._ended.get()]
            while len(some) < MAX_BATCH and not self._ended.empty():
                some.append(self._ended.get())
            last = None in some
            self._persist(store, [run for run in some if run is not None])

    def _persist(self, store: Store, runs: list[Run]) -> None:
        pause_s = 0.05
        while runs:
            try:
                self._bring_home(store, runs)
                return
            except (ParsyncError, RedisError, OSError) as error:
                log.warning("%d outcomes wait for the server: %s", len(runs), error)
                if self._closing and pause_s > 1:
                    return
                time.sleep(random.uniform(0.5, 1.0) * pause_s)
                pause_s = min(2 * pause_s, 5.0)

    def _bring_home(self, store: Store, runs: list[Run]) -> None:
        """Outcomes first, slots second, in one round trip: a slot that is free has no running task."""
        commands = store.commands
        finished = [(run.place, run.outcome, "") for run in runs if run.outcome not in ("refused", "lost", "recalled")]
        lost = [(run.place, "the process that ran it was lost") for run in runs if run.outcome == "lost"]
        calls: list[Any] = [commands.finish(finished)] if finished else []
        calls += [commands.requeue(lost)] if lost else []
        recalled = [(run.place, "its node is drained") for run in runs if run.outcome == "recalled"]
        calls += [commands.requeue(recalled, "recalled")] if recalled else []
        for p in {run.place.partition for run in runs}:
            calls.append(commands.release(p, [run.place for run in runs if run.place.partition == p]))
        for words in store.run_all(calls):
            if stale := words.count("stale"):
                log.warning("%d outcomes came too late: their tasks were given to others", stale)
        self._runs.drop(runs)

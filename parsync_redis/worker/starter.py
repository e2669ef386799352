"""Starts tasks whose doorbells rang, in the worker's event loop."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..model.ids import readable
from ..model.place import Place
from ..store.store import Store
from .reporter import Reporter
from .runs import Run
from .state import NodeState

log = logging.getLogger("parsync.agent")


class Starter:
    """Asks the server to start tasks."""

    def __init__(self, store: Store, node: NodeState, reporter: Reporter) -> None:
        self._store, self._node, self._reporter = store, node, reporter

    def answer(self, bells: Iterable[Place]) -> list[tuple[Run, bytes]]:
        """Ask to start the tasks of these doorbells; return the runs to hand to Celery, each with its message."""
        bells, node = list(bells), self._node
        entered = [self._entered(bell) for bell in bells]
        runs = [run for run in entered if run]
        if runs and node.hindrance(frozenset[int]().union(*(run.slots for run in runs))):
            hindered = [run for run in runs if node.hindrance(run.slots)]
            node.runs.drop(hindered)
            runs = [run for run in runs if run not in hindered]
        if not runs:
            return []
        try:
            answers = self._store.run(self._store.commands.start([run.place for run in runs]))
        except (ParsyncError, RedisError, OSError) as error:
            tasks = ", ".join(run.place.task for run in runs)
            log.warning("task %s could not ask to start: %s; its doorbell will ring again", tasks, error)
            node.runs.drop(runs)
            return []
        found, refused = [], False
        for run, (word, message) in zip(runs, answers, strict=True):
            if word == "refused":
                log.info("task %s attempt %s may not start (%s)", run.place.task, run.place.attempt, readable(message))
                self._reporter.ended(run, "refused")
                refused = True
            else:
                found.append((run, message))
        if refused:  # a refused run kept later doorbells from its slots
            found += self.answer([bell for bell, run in zip(bells, entered, strict=True) if not run])
        return found

    def _entered(self, bell: Place) -> Run | None:
        """Enter the run of a doorbell into the table; None if it is there already, or is of another incarnation."""
        node = self._node
        run, here = Run(bell), (bell.partition, bell.node, bell.inc) == (node.partition, node.name, node.inc)
        return run if here and not node.leaving and node.runs.enter(run) else None

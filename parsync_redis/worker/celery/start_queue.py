"""Hands started tasks to Celery, in the worker's event loop.

A solo pool runs a task while the task is handed over. With look-ahead, the outcome of each task
goes to the server with the start of the next task, and doorbells that rang meanwhile are answered
between the two.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from celery.concurrency.solo import TaskPool as SoloPool
from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...model.place import Place
from ...store.server.server_errors import Backoff, translate
from ...store.store import Store
from ..node.agent import Agent
from ..node.run_starter import Started
from ..node.runs import Run
from .celery_types import Consumer
from .delivery import Delivery

log = logging.getLogger("parsync.agent")

TURN_S: Final = 0.1
"""Seconds for which a solo pool runs tasks before the event loop turns."""


class StartQueue:
    """Hands over the runs that the starter has started.

    read_bells: returns the doorbells that have rung since its last call.
    """

    def __init__(
        self,
        consumer: Consumer,
        agent: Agent,
        delivery: Delivery,
        read_bells: Callable[[], list[Place]],
    ) -> None:
        self._consumer = consumer
        self._agent = agent
        self.delivery = delivery
        self._read_bells = read_bells
        self.looks_ahead = agent.node.ahead.room > 0
        self._inline = self.looks_ahead and isinstance(consumer.pool, SoloPool)
        if self.looks_ahead:
            self._backoff = Backoff(log, f"the event loop of node {agent.node.name}")
            agent.nudge = lambda: consumer.hub.call_soon(self._answer_nudge)
            if not self._inline:
                agent.reporter.start_next = self._start_next

    def answer(self, bells: Iterable[Place] = ()) -> int:
        """Start the tasks of doorbells and hand them to the pool; return how many started.

        A solo pool runs the tasks at once.
        """
        starter = self._agent.starter
        reporter = self._agent.reporter
        node = self._agent.node
        started = starter.answer(bells)
        count = len(started)
        if not self._inline:
            self._hand_over(started)
            return count
        until_s = time.monotonic() + TURN_S
        with reporter.collecting():
            while started:
                self._hand_over(started)
                if node.leaving:
                    break
                if time.monotonic() > until_s:
                    self._agent.nudge()
                    break
                started = self._next()
        return count

    def _answer_nudge(self) -> None:
        """Start the waiting runs; try later if parsync's server is away.

        Celery would take an error of the event loop for an error of its broker.
        """
        try:
            self.answer()
        except (ParsyncError, RedisError, OSError) as error:
            pause_s = self._backoff.pause_s(translate(self._agent.store.address, error))
            self._consumer.hub.call_later(pause_s, self._answer_nudge)
        else:
            self._backoff.well()

    def _next(self) -> Started:
        """Report the runs that have ended in this thread, and start the next runs."""
        agent = self._agent
        ended = self._agent.reporter.collected()
        try:
            return agent.starter.start_next(agent.store, self._read_bells(), ended)
        finally:
            agent.reporter.put(run for run in ended if not run.is_reported)

    def _start_next(self, store: Store, ended: list[Run]) -> None:
        """Report runs of a pool of threads, and have the event loop hand over the next runs."""
        if started := self._agent.starter.start_next(store, (), ended):
            self._consumer.hub.call_soon(lambda: self._hand_over(started))

    def _hand_over(self, started: Started) -> None:
        node = self._agent.node
        reporter = self._agent.reporter
        waiting = deque(started)
        try:
            while waiting and not node.leaving:
                run, message = waiting.popleft()
                if run.unwanted or run.place.inc != node.inc:
                    run.why = "it had not begun"
                    run.unbegun = True
                    reporter.ended(run, run.unwanted or "recalled")
                else:
                    self.delivery.deliver(run, message)
        finally:
            for run, _ in waiting:
                reporter.ended(run, "again")  # the worker stops, and the run has not begun

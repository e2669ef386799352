"""A step of every worker of an app with Parsync, which logs why placed tasks do not come.

A worker that is no node logs which tasks of its app run on nodes only. A node logs three causes,
and the end of each: the server takes no writes, there is no scheduler, the node is drained. With
--parsync-with-scheduler the worker also runs a scheduler beside itself, which ends after everything
else of the worker.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Final

from celery import Celery, bootsteps
from redis.exceptions import RedisError

from ...errors import InvalidInput, ParsyncError
from ...model.ids import readable
from ...model.printable import printable
from ...model.text import NODE_LINE
from ...settings import wants_scheduler
from ...store.reads.schedulers import Refusal, find_no_scheduler, read_refusals, read_schedulers
from ..node.agent import Agent
from ..scheduler_child import SchedulerBeside
from .bootsteps import NodeStep, call_when_stopped
from .celery_types import Worker

log = logging.getLogger("parsync.agent")

FIRST_LOOK_S: Final = 3.5
"""Seconds from the start of a node to its first look: by then other processes have joined."""

LOOK_IN_TROUBLE_S: Final = 2.0
"""Interval at which a node looks while there is no scheduler or the server refuses, in seconds."""

LOOK_WHEN_WELL_S: Final = 5.0
"""Interval at which a node looks while all is well, in seconds."""

REPEAT_S: Final = 300.0
"""Interval at which a node repeats a warning, in seconds."""

MAX_NAMES_SHOWN: Final = 5
"""Maximum number of task names that a warning lists."""


class WatchStep(bootsteps.StartStopStep):
    """Watches the cluster for the worker's log.

    The step also runs a scheduler beside the worker, if that was asked for.

    It starts after the pool: a process that the pool forks meanwhile would share its connections.
    """

    requires = ("celery.worker.components:Pool", NodeStep)

    def __init__(
        self, worker: Worker, parsync_with_scheduler: bool | None = None, **kwargs: object
    ) -> None:
        self.watcher: Watcher | None = None
        self.beside: SchedulerBeside | None = None
        super().__init__(worker, **kwargs)
        try:
            self._with_scheduler = wants_scheduler(parsync_with_scheduler)
        except InvalidInput as error:
            sys.stderr.write(f"error: {printable(error)}\n")
            raise SystemExit(2) from None

    def create(self, worker: Worker) -> None:
        """Make nothing here: threads must not start before the pool has forked."""

    def start(self, worker: Worker) -> None:
        """Log what is known at once, and start watching."""
        agent: Agent | None = getattr(worker, "parsync_agent", None)
        if self._with_scheduler:
            try:
                settings = worker.app.parsync.settings()
            except ParsyncError as error:
                sys.stderr.write(f"error: {printable(error)}\n")
                raise SystemExit(2) from None
            level = logging.getLevelName(log.getEffectiveLevel()).lower()
            self.beside = SchedulerBeside(
                settings, level if level in ("debug", "info", "warning", "error") else "info"
            )
            self.beside.start()
            # the scheduler stops after the agent, because it places elsewhere the tasks that the
            # agent gives back
            call_when_stopped(worker.blueprint, self.beside.stop)
        if agent is not None:
            self.watcher = Watcher(agent)
            self.watcher.start()
        elif names := self._placed_tasks(worker.app):
            omitted = (
                f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
            )
            log.warning(
                "this worker is no node: tasks of its app that parsync places (%s%s) run on nodes "
                "only; "
                "start it with --parsync, or PARSYNC_NODE=1 in its environment, to make it one",
                ", ".join(names[:MAX_NAMES_SHOWN]),
                omitted,
            )

    def stop(self, worker: Worker) -> None:
        """Stop watching. The scheduler ends when every step has stopped, and the agent has left."""
        if self.watcher is not None:
            self.watcher.stop()

    terminate = stop

    @staticmethod
    def _placed_tasks(app: Celery) -> list[str]:
        try:
            return placed_tasks(app)
        except InvalidInput as error:  # each call of such a task raises it as well
            log.warning("this worker is no node, and its app cannot use parsync: %s", error)
            return []


def placed_tasks(app: Celery) -> list[str]:
    """Return the names of the tasks that parsync places; raises InvalidInput.

    The options of the task or a rule place it.
    """
    return sorted(
        name for name in app.tasks if app.parsync.options_of(name, None, None) is not None
    )


class LastingWarning:
    """A warning that is logged when its cause begins, every five minutes, and at the end."""

    def __init__(self, over: str) -> None:
        self._over = over
        self._said_s = float("-inf")
        self.lasts = False

    def due(self, lasts: bool, now_s: float) -> bool:
        """Return True if the warning is due; log the end of a cause.

        lasts: whether the cause is there now.
        """
        if not lasts:
            if self.lasts:
                log.warning("%s", self._over)
            self.lasts = False
            self._said_s = float("-inf")
            return False
        self.lasts = True
        if now_s - self._said_s < REPEAT_S:
            return False
        self._said_s = now_s
        return True


class Watcher(threading.Thread):
    """Watches the cluster for a node, over a connection of its own."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(name="parsync-watch", daemon=True)
        self.agent = agent
        self.store = agent.store.with_own_connections()
        self.node = agent.node.name
        node = self.node
        self._done = threading.Event()
        self._writes = LastingWarning(f"node {node}: the server takes writes again")
        self._schedulers = LastingWarning(f"node {node}: a scheduler is there now")
        self._drained = LastingWarning(f"node {node} is not drained any more: it gets tasks again")

    def run(self) -> None:
        """Look until stopped. If the server does not answer, the agent logs that."""
        self._done.wait(FIRST_LOOK_S)
        while not self._done.is_set():
            try:
                self.look(time.monotonic())
            except (ParsyncError, RedisError, OSError) as error:
                log.debug("node %s could not look at its cluster: %s", self.node, error)
            except Exception:
                log.exception("node %s could not look at its cluster: unexpected", self.node)
            self._done.wait(
                LOOK_IN_TROUBLE_S
                if self._schedulers.lasts or self._writes.lasts
                else LOOK_WHEN_WELL_S
            )

    def look(self, now_s: float) -> None:
        """Look once."""
        refusal = self._refusal()
        silenced = refusal is not None and refusal.silences
        if self._writes.due(refusal is not None, now_s):
            log.warning("node %s gets no tasks: %s", self.node, refusal)
        missing = None if silenced else find_no_scheduler(self.store, read_schedulers(self.store))
        if not silenced and self._schedulers.due(missing is not None, now_s):
            log.warning("node %s gets no tasks: %s", self.node, missing)
        terms = self._drain_terms()
        if self._drained.due(bool(terms), now_s):
            log.warning(
                "node %s gets no tasks: it is drained (%s): parsync nodes undrain %s",
                self.node,
                terms,
                self.node,
            )

    def _refusal(self) -> Refusal | None:
        """Return a server that takes no writes, None if there is none.

        Only servers count that schedulers or this node need.
        """
        partition = self.agent.node.partition
        own_address = (
            self.store.place_of(self.store.keys.partition(partition, "meta"))
            if partition >= 0
            else ""
        )
        return next(
            (
                refusal
                for refusal in read_refusals(self.store)
                if refusal.silences or refusal.address == own_address
            ),
            None,
        )

    def _drain_terms(self) -> str:
        """Return the terms of this node's drain, '' if it is not drained."""
        partition = self.agent.node.partition
        if partition < 0:  # the node has not registered yet
            return ""
        keys = [self.store.keys.partition(partition, kind) for kind in ("nodes", "notes")]
        replies = self.store.pipe([("hget", key, self.node) for key in keys])
        record, terms = (readable(reply or b"") for reply in replies)
        return terms if (NODE_LINE.read(record) or {}).get("drain", "0") != "0" else ""

    def stop(self) -> None:
        """End the thread."""
        self._done.set()
        self.join(timeout=5)
        self.store.client.close()

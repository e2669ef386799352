"""A step of every worker of an app with Parsync: it says what would else be waited for in silence.

A worker that is no node says so if its app has tasks that only nodes run. A node says that there is no scheduler, or
that it is drained, and when that is over. With --parsync-with-scheduler the worker also runs a scheduler beside it,
which ends after everything else of the worker.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any, Final

from celery import bootsteps
from redis.exceptions import RedisError

from ..errors import InvalidInput, ParsyncError
from ..model.ids import readable
from ..model.text import NODE
from ..settings import wants_scheduler
from ..store.members import explain_no_scheduler, read_schedulers, start_one
from .agent import Agent
from .beside import SchedulerBeside
from .bootsteps import NodeStep, afterwards

log = logging.getLogger("parsync.agent")

FIRST_S: Final = 3.5
"""How long after its start a node looks first: what starts with it has joined by then."""

LOOK_S: Final = 2.0
"""How often it looks while there is no scheduler."""

WELL_S: Final = 5.0
"""How often it looks while there is one."""

REPEAT_S: Final = 300.0
"""How often it says the same again."""

SHOWN: Final = 5


class WatchStep(bootsteps.StartStopStep):
    """Watches the cluster for the worker's log, and looks after its scheduler if it has one.

    It starts after the pool: a process of the pool that is forked meanwhile would share what is open here.
    """

    requires = ("celery.worker.components:Pool", NodeStep)

    def __init__(self, worker: Any, parsync_with_scheduler: Any = None, **kwargs: Any) -> None:
        self.watcher: Watcher | None = None
        self.beside: SchedulerBeside | None = None
        super().__init__(worker, **kwargs)
        try:
            self._with_scheduler = wants_scheduler(parsync_with_scheduler)
        except InvalidInput as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None

    def create(self, worker: Any) -> None:
        """Nothing is made here: threads must not start before the pool has forked."""

    def start(self, worker: Any) -> None:
        """Says what is known at once, and starts what watches."""
        agent = getattr(worker, "parsync_agent", None)
        if self._with_scheduler:
            try:
                settings = worker.app.parsync.settings()
            except ParsyncError as error:
                sys.stderr.write(f"error: {error}\n")
                raise SystemExit(2) from None
            level = logging.getLevelName(log.getEffectiveLevel()).lower()
            self.beside = SchedulerBeside(settings, level if level in ("debug", "info", "warning", "error") else "info")
            self.beside.start()
            afterwards(worker.blueprint, self.beside.stop)  # after the agent: what it gives back is placed elsewhere
        if agent is not None:
            self.watcher = Watcher(agent)
            self.watcher.start()
        elif names := self._placed_tasks(worker.app):
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            log.warning(
                "this worker is no node: tasks of its app that parsync places (%s%s) run on nodes only; "
                "start it with --parsync, or PARSYNC_NODE=1 in its environment, to make it one",
                ", ".join(names[:SHOWN]),
                more,
            )

    def stop(self, worker: Any) -> None:
        """Ends the watching. The scheduler ends when every step has stopped, and the agent has left."""
        if self.watcher is not None:
            self.watcher.stop()

    terminate = stop

    @staticmethod
    def _placed_tasks(app: Any) -> list[str]:
        try:
            return placed_tasks(app)
        except InvalidInput as error:  # each call of such a task says so as well
            log.warning("this worker is no node, and its app cannot use parsync: %s", error)
            return []


def placed_tasks(app: Any) -> list[str]:
    """The names of the tasks that parsync places, by what they declare or by a rule; raises InvalidInput."""
    return sorted(name for name in app.tasks if app.parsync.wish(name, None, None) is not None)


class Said:
    """What is wrong, said when it begins, now and then while it lasts, and once when it is over."""

    def __init__(self, over: str) -> None:
        self._over, self._said_s = over, float("-inf")
        self.wrong = False

    def due(self, wrong: bool, now_s: float) -> bool:
        """Whether it is to be said now that something is wrong."""
        if not wrong:
            if self.wrong:
                log.warning("%s", self._over)
            self.wrong, self._said_s = False, float("-inf")
            return False
        self.wrong = True
        if now_s - self._said_s < REPEAT_S:
            return False
        self._said_s = now_s
        return True


class Watcher(threading.Thread):
    """Looks at the cluster for a node, over a connection of its own."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(name="parsync-watch", daemon=True)
        self.agent, self.store, self.node = agent, agent.store.again(), agent.spec.name
        node = self.node
        self._done = threading.Event()
        self._schedulers = Said(f"node {node}: a scheduler is there now")
        self._drained = Said(f"node {node} is not drained any more: it gets tasks again")

    def run(self) -> None:
        """Looks until stopped. A server that is away is the agent's to say."""
        self._done.wait(FIRST_S)
        while not self._done.is_set():
            try:
                self.look(time.monotonic())
            except (ParsyncError, RedisError, OSError) as error:
                log.debug("node %s could not look at its cluster: %s", self.node, error)
            self._done.wait(LOOK_S if self._schedulers.wrong else WELL_S)

    def look(self, now_s: float) -> None:
        """One look."""
        schedulers = read_schedulers(self.store)
        if self._schedulers.due(not any(scheduler.alive for scheduler in schedulers), now_s):
            missing = explain_no_scheduler(self.store, schedulers)
            log.warning("node %s gets no tasks: %s: %s", self.node, missing, start_one(self.store))
        note = self._drain_terms()
        if self._drained.due(bool(note), now_s):
            log.warning("node %s gets no tasks: it is drained (%s): parsync undrain %s", self.node, note, self.node)

    def _drain_terms(self) -> str:
        """Return the terms of this node's drain; '' if it is not drained."""
        partition = self.agent.partition
        if partition < 0:  # it has not registered yet
            return ""
        keys = [self.store.keys.partition(partition, kind) for kind in ("nodes", "notes")]
        replies = self.store.pipe([("hget", key, self.node) for key in keys])
        record, note = (readable(reply or b"") for reply in replies)
        return note if (NODE.read(record) or {}).get("drain", "0") != "0" else ""

    def stop(self) -> None:
        """Ends the thread."""
        self._done.set()
        self.join(timeout=5)
        self.store.client.close()

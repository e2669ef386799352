"""The step that a worker takes more when it is a node: it makes the agent, starts it after the pool, stops it last."""

from __future__ import annotations

import sys
from typing import Any

from celery import bootsteps, signals
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.worker import state

from ..errors import InvalidInput, ParsyncError
from ..settings import Settings
from ..store.cluster import join_cluster
from .agent import Agent, log
from .fences import Fences, MachineFences
from .inbox import Inbox, keep_handed_over
from .locks import FENCED_HERE, lock_file, locks_folder
from .node import FLAGS, check_broker, is_node, node_spec, place_of
from .request import watch

__all__ = ["Inbox", "NodeStep"]


class NodeStep(bootsteps.StartStopStep):
    """Makes the worker a node if it was started with a --parsync option."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        flags = {name: kwargs.get(name) for name in FLAGS}
        self.agent: Any = None
        worker.parsync_agent = None
        self.enabled = is_node(flags)
        super().__init__(worker, **kwargs)
        if not self.enabled:
            return
        try:
            self._make(worker, flags)
        except ParsyncError as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None

    def _make(self, worker: Any, flags: dict[str, Any]) -> None:
        app = worker.app
        if not worker.use_eventloop:
            raise InvalidInput(
                f"a node needs Celery's event loop, which pool {worker.pool_cls.__module__} or this broker lacks: "
                "use the pool prefork, threads or solo"
            )
        settings = app.parsync.settings()
        check_broker(app, settings.url)
        spec = node_spec(worker, flags)
        app.parsync.check_tasks()
        agent = Agent(app, settings, spec, make_fences(worker, settings, spec.name))
        join_cluster(agent.store, settings, create=False)
        worker.parsync_agent = self.agent = app.parsync.agent = agent
        agent.end_run = lambda request, signal: end_run(worker, request, signal)
        agent.drop_run = lambda request: drop_run(worker, request)
        agent.on_superseded = _exit
        signals.worker_shutting_down.connect(lambda **_: agent.leave(), weak=False)
        _afterwards(worker.blueprint, lambda: stop(worker.pool, agent))

    def include_if(self, worker: Any) -> bool:
        """Only for a node."""
        return bool(self.enabled)

    def create(self, worker: Any) -> None:
        """Nothing is made here: the agent's threads must not start before the pool has forked."""

    def start(self, worker: Any) -> None:
        """Every task that this worker may run tells the agent how it ends; then the agent starts."""
        names = sorted(worker.app.tasks)
        for name in names:
            watch(worker.app.tasks[name])
        keep_handed_over(worker.pool, self.agent.runs)
        self.agent.spec.task_names = [name for name in names if not name.startswith("celery.") or name in _MAPS]
        self.agent.start()

    def close(self, worker: Any) -> None:
        """Any shutdown, also one that no signal announced: no new claims."""
        self.agent.leave()


def make_fences(worker: Any, settings: Settings, node: str) -> Fences:
    """The fences of this machine, or none where its kernel has not what they need; raises InvalidInput."""
    if not FENCED_HERE:
        log.warning("runs are not fenced, which needs Linux: a paused worker may run a task beside its next attempt")
        return Fences()
    server = "_".join(str(part) for part in place_of(settings.url) if part is not None)
    file = lock_file(locks_folder(settings.lock_dir), server, settings.cluster, node)
    return MachineFences(file, one_at_a_time=not issubclass(worker.pool_cls, ThreadPool))


_MAPS = ("celery.map", "celery.starmap", "celery.chunks")
"""Celery's own tasks that run a user's: they can be asked to go through parsync."""


def _afterwards(blueprint: Any, stop: Any) -> None:
    """Has `stop` called when every step of the worker has stopped, its pool included, warm or cold."""
    before = blueprint.on_stopped

    def on_stopped() -> None:
        try:
            if before:
                before()
        finally:
            stop()

    blueprint.on_stopped = on_stopped


def stop(pool: Any, agent: Agent) -> None:
    """The worker's pool has ended, and with it what waited for a thread: it has not begun, and goes back."""
    if not pool.uses_semaphore:
        for run in agent.runs.going():
            if not run.request.time_start:
                agent.ended(run, "again")
    agent.stop()


def _exit() -> None:
    state.should_terminate = 1


def end_run(worker: Any, request: Any, signal: str) -> None:
    """Ends a run with a signal; pools without processes of their own cannot."""
    try:
        request.terminate(worker.pool, signal=signal)
    except NotImplementedError:
        _cannot(request)


def drop_run(worker: Any, request: Any) -> None:
    """Kills a run that does not count any more."""
    try:
        request.drop(worker.pool)
    except NotImplementedError:
        _cannot(request)


def _cannot(request: Any) -> None:
    log.warning("task %s runs in a pool that cannot end it: it is let run to its end", request.id)

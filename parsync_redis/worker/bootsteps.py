"""The step that a worker takes more when it is a node: it makes the agent, starts it after the pool, stops it last."""

from __future__ import annotations

import sys
from typing import Any

from celery import bootsteps, signals
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.utils.imports import symbol_by_name
from celery.worker import state
from kombu.utils.compat import detect_environment

from ..errors import InvalidInput, ParsyncError, ServerUnreachable
from ..settings import Settings, node_options
from ..store.cluster import join_cluster
from .agent import BEAT_S, Agent, log
from .consumer import node_consumer, register_once
from .inbox import Inbox, keep_handed_over
from .isolation.locks import CAN_ISOLATE, lock_file, locks_folder
from .isolation.machine import Isolation, MachineIsolation
from .node import FLAGS, node_spec, place_of
from .panel import extend_panel
from .request import watch
from .transport import connection_to_nothing

__all__ = ["Inbox", "NodeStep"]


class NodeStep(bootsteps.StartStopStep):
    """Makes the worker a node if it was started with a --parsync option."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.agent: Any = None
        worker.parsync_agent = None
        super().__init__(worker, **kwargs)
        try:
            flags, said = node_options({name: kwargs.get(name) for name in FLAGS})
            self.enabled = bool(flags)
            if self.enabled:
                self._make(worker, flags, said)
        except ParsyncError as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None

    def _make(self, worker: Any, flags: dict[str, Any], said: dict[str, str]) -> None:
        app = worker.app
        prepare_loop(worker, bool(flags.get("parsync_only")))
        settings = app.parsync.settings()
        spec = node_spec(worker, flags, said)
        app.parsync.check_tasks()
        agent = Agent(app, settings, spec, make_isolation(worker, settings, spec.name))
        try:
            join_cluster(agent.store, settings, create=False)
        except ServerUnreachable as error:
            log.warning("node %s: %s; it waits until that is over", spec.name, error)
        worker.parsync_agent = self.agent = app.parsync.agent = agent
        agent.end_run = lambda request, signal: end_run(worker, request, signal)
        agent.drop_run = lambda request: drop_run(worker, request)
        agent.on_superseded, agent.on_unfit = _exit, _exit_with_error
        if issubclass(worker.pool_cls, SoloPool):
            agent.at_work = lambda: bool(len(state.active_requests))
        signals.worker_shutting_down.connect(lambda **_: agent.leave(), weak=False)
        afterwards(worker.blueprint, lambda: stop(worker.pool, agent))

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
        self.agent.spec.know(worker.app.parsync.known_tasks(), worker.app.amqp.queues.consume_from)
        extend_panel()
        self.agent.start()
        worker.hub.call_soon(self.agent.turned)
        worker.hub.call_repeatedly(BEAT_S, self.agent.turned)

    def close(self, worker: Any) -> None:
        """Any shutdown, also one that no signal announced: no new claims."""
        self.agent.leave()


def prepare_loop(worker: Any, placed_only: bool) -> None:
    """Gives the worker the event loop of a node, before Celery makes its pool and its consumer; raises InvalidInput.

    A node of placed tasks only consumes from no broker. What needs one is off: gossip, mingle, heartbeats, events.
    """
    transport = worker._conninfo.transport
    if detect_environment() != "default" or not issubclass(worker.pool_cls, (PreforkPool, ThreadPool, SoloPool)):
        raise InvalidInput(f"a node cannot use the pool {worker.pool_cls.__module__}: use prefork, threads or solo")
    if placed_only:
        if worker.task_events:
            log.warning("--parsync-only: -E is ignored, this worker sends no events")
        worker.task_events, worker.use_eventloop, worker._conninfo = False, True, connection_to_nothing()
        worker.options.update(without_gossip=True, without_mingle=True, without_heartbeat=True)
    elif not worker.use_eventloop:
        raise InvalidInput(
            f"a node needs Celery's event loop, which the transport {transport.driver_type} of the app's broker lacks: "
            "add --parsync-only, and the worker consumes no queue and runs placed tasks only"
        )
    worker.consumer_cls = node_consumer(symbol_by_name(worker.consumer_cls), placed_only)
    register_once(worker)


def make_isolation(worker: Any, settings: Settings, node: str) -> Isolation:
    """Return the isolation of this machine, or one that does nothing if its kernel cannot. Raises InvalidInput."""
    if not CAN_ISOLATE:
        log.warning("runs are not isolated, which needs Linux: a paused worker may run a task beside its next attempt")
        return Isolation()
    server = "_".join(str(part) for part in place_of(settings.url) if part is not None)
    file = lock_file(locks_folder(settings.lock_dir), server, settings.cluster, node)
    return MachineIsolation(file, one_at_a_time=not issubclass(worker.pool_cls, ThreadPool))


def afterwards(blueprint: Any, stop: Any) -> None:
    """Has `stop` called when every step of the worker has stopped, its pool included, warm or cold.

    Of several, the one that was given first is called first.
    """
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


def _exit_with_error() -> None:
    state.should_stop = 2


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

"""The step that makes a worker a node.

The step makes the agent, starts it after the pool, and stops it last.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import bootsteps, signals
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.utils.imports import symbol_by_name
from kombu.utils.compat import detect_environment

from ...errors import InvalidInput, ParsyncError, ServerUnreachable
from ...logs import JSON_FORMAT
from ...model.printable import printable
from ...settings import Settings, node_options
from ...store.cluster import join_cluster
from ...store.store import Store
from ..isolation.guarding import Guarded
from ..isolation.locks import CAN_ISOLATE, lock_file, locks_folder
from ..isolation.machine import Isolation, MachineIsolation
from ..node.agent import Agent, log
from ..node.node import FLAGS, node_spec
from .celery_types import Blueprint, Pool, Worker
from .inbox import Inbox
from .inspect_answers import extend_panel
from .json_logs import log_as_json
from .port import CeleryWorker, read_facts, replace_used_processes
from .prefetched_runs import keep_handed_over
from .request import watch
from .storing import watch_results
from .transport import connection_to_nothing

__all__ = ["Inbox", "NodeStep"]


class NodeStep(bootsteps.StartStopStep):
    """Makes the worker a node if it was started with a --parsync option."""

    requires = ("celery.worker.components:Pool",)

    # Any: the worker's options, each of its own type
    def __init__(self, worker: Worker, **kwargs: Any) -> None:
        self.agent: Agent
        worker.parsync_agent = None
        super().__init__(worker, **kwargs)
        try:
            flags, flag_names = node_options({name: kwargs.get(name) for name in FLAGS})
            self.enabled = bool(flags)
            if self.enabled:
                # a node of testing/ runs tasks in the test's process
                isolate = kwargs.get("parsync_isolate", True)
                worker.parsync_agent = worker.app.parsync.agent = self.agent = make_agent(
                    worker, flags, flag_names, isolate
                )
        except ParsyncError as error:
            sys.stderr.write(f"error: {printable(error)}\n")
            raise SystemExit(2) from None
        if self.enabled:
            signals.worker_shutting_down.connect(lambda **_: self.agent.leave(), weak=False)
            leave_before_soft_shutdown(worker, self.agent)
            signals.worker_before_create_process.connect(share_memory)
            call_when_stopped(worker.blueprint, lambda: stop(worker.pool, self.agent))

    def include_if(self, worker: Worker) -> bool:
        """Include the step in a node only."""
        return bool(self.enabled)

    def create(self, worker: Worker) -> None:
        """Make nothing here: the agent's threads must not start before the pool has forked."""

    def start(self, worker: Worker) -> None:
        """Have every task of this worker report how its runs end; then start the agent."""
        names = sorted(worker.app.tasks)
        for name in names:
            watch(worker.app.tasks[name])
        agent = self.agent
        keep_handed_over(worker.pool, agent.node.runs)
        agent.node.spec.know(
            worker.app.parsync.options.known_tasks(), worker.app.amqp.queues.consume_from
        )
        extend_panel()
        agent.start()

    def close(self, worker: Worker) -> None:
        """Take no new claims, also in a shutdown that no signal announced."""
        self.agent.leave()


# Any: the values of click options, each of its own type
def make_agent(
    worker: Worker, flags: dict[str, Any], flag_names: dict[str, str], isolate: bool = True
) -> Agent:
    """Make the agent of a worker that is to be a node; raises InvalidInput or AccessDenied."""
    app = worker.app
    prepare_loop(worker, bool(flags.get("parsync_only")))
    watch_results(app)
    settings = app.parsync.settings()
    spec = node_spec(read_facts(worker), flags, flag_names)
    replace_used_processes(worker, spec)
    if settings.log_format == JSON_FORMAT:
        log_as_json(spec.name)
    app.parsync.check_tasks()
    store = Store.from_url(
        settings.url, settings.cluster, settings.retention_s, settings.max_starts
    )
    isolation = make_isolation(worker, settings, spec.name) if isolate else Isolation()
    agent = Agent(settings, store, spec, CeleryWorker(worker), isolation)
    try:
        join_cluster(store, settings, create=False)
    except ServerUnreachable as error:
        log.warning("node %s: %s; it waits until that is over", spec.name, error)
    return agent


def prepare_loop(worker: Worker, placed_only: bool) -> None:
    """Give the worker a node's event loop, before Celery makes its pool and consumer.

    A node of placed tasks only consumes from no broker. Gossip, mingle, heartbeats and events,
    which need a broker, are off. Raises InvalidInput.
    """
    # imports Celery's consumer, which a client does not need
    from .consumer import node_consumer, register_once

    transport = worker._conninfo.transport
    if not issubclass(worker.pool_cls, (PreforkPool, ThreadPool, SoloPool)):
        raise InvalidInput(
            f"a node cannot use the pool {worker.pool_cls.__module__}: use prefork, threads or solo"
        )
    if (patched_by := detect_environment()) != "default":
        raise InvalidInput(
            f"a node cannot run in a process that {patched_by} has patched: take the patch out of "
            "the app"
        )
    if placed_only:
        if worker.task_events:
            log.warning("--parsync-only: -E is ignored, this worker sends no events")
        worker.task_events = False
        worker.use_eventloop = True
        worker._conninfo = connection_to_nothing()
        worker.options.update(without_gossip=True, without_mingle=True, without_heartbeat=True)
    elif not worker.use_eventloop:
        raise InvalidInput(
            f"a node needs Celery's event loop, which the transport {transport.driver_type} of the "
            "app's broker lacks: "
            "add --parsync-only, and the worker consumes no queue and runs placed tasks only"
        )
    worker.consumer_cls = node_consumer(symbol_by_name(worker.consumer_cls), placed_only)
    register_once(worker)


def make_isolation(worker: Worker, settings: Settings, node: str) -> Isolation:
    """Return the isolation of this machine, or Isolation() if its kernel has none.

    Raises InvalidInput.
    """
    if not CAN_ISOLATE:
        log.warning(
            "runs are not isolated, which needs Linux: a paused worker may run a task beside its "
            "next attempt"
        )
        return Isolation()
    folder = locks_folder(settings.lock_dir)
    cluster_settings = (
        settings.url,
        settings.cluster,
        settings.retention_s,
        settings.max_starts,
        settings.standstill_s,
    )
    file_of = partial(lock_file, folder, cluster=settings.cluster, node=node)
    return MachineIsolation(
        file_of,
        not issubclass(worker.pool_cls, ThreadPool),
        Guarded(node, *cluster_settings, log_format=settings.log_format),
    )


def leave_before_soft_shutdown(worker: Worker, agent: Agent) -> None:
    """Have the node leave when a soft shutdown begins, and wait for all its runs.

    Celery sends its signal only after the wait. Celery does not wait for a run whose beginning the
    pool has not reported yet.
    """
    celery_wait = getattr(worker, "wait_for_soft_shutdown", None)  # since Celery 5.5
    if celery_wait is None:
        return

    def wait_for_soft_shutdown() -> None:
        agent.leave()
        if agent.node.runs:
            worker.app.conf.worker_enable_soft_shutdown_on_idle = True
        celery_wait()

    worker.wait_for_soft_shutdown = wait_for_soft_shutdown


def call_when_stopped(blueprint: Blueprint, stop: Callable[[], None]) -> None:
    """Call `stop` when every step of the worker has stopped, its pool included, warm or cold.

    After several calls of this function, the functions are called in the order of these calls.
    """
    before = blueprint.on_stopped

    def on_stopped() -> None:
        try:
            if before:
                before()
        finally:
            stop()

    blueprint.on_stopped = on_stopped


def stop(pool: Pool, agent: Agent) -> None:
    """Stop the agent of a worker whose pool has ended.

    Tasks that wait for a thread have not begun, and go back: no thread begins them any more. A pool
    of threads that was ended cold still has its threads.
    """
    if not pool.uses_semaphore:
        for run in agent.node.runs.going():
            agent.reporter.ended(run, "again", only_unbegun=True)
    agent.stop()


def share_memory(**_: object) -> None:
    """Exempt the objects that exist before the first fork from garbage collection.

    The first full collection in a pool process would write to all of it, and so copy 20 MB or more.
    This is done once: objects that are made between later forks may become garbage.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()

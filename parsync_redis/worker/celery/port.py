"""`CeleryWorker`: the port through which a node uses the Celery worker around it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence
from typing import cast

from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.worker import state

from ...store.store import Store
from ..node.node import NodeSpec
from ..node.worker_port import RunRequest, WorkerFacts
from .celery_types import Request, SendEvent, Worker
from .results_outbox import Owed, announce, put_back

log = logging.getLogger("parsync.agent")


def read_facts(worker: Worker) -> WorkerFacts:
    """Return the facts about a Celery worker from which its node's offer follows."""
    if issubclass(worker.pool_cls, SoloPool):
        return WorkerFacts(worker.hostname, "solo", 1)
    concurrency = worker.max_concurrency or worker.concurrency
    threads = issubclass(worker.pool_cls, ThreadPool)
    return WorkerFacts(worker.hostname, "threads" if threads else "prefork", concurrency)


def replace_used_processes(worker: Worker, spec: NodeSpec) -> None:
    """Have each process of a node with devices run one task, if the worker's user sets no number.

    A process that has used a device keeps that device, whatever its variables say later.
    """
    is_prefork = issubclass(worker.pool_cls, PreforkPool)
    if spec.devices.indexes and is_prefork and worker.max_tasks_per_child is None:
        worker.max_tasks_per_child = 1


class CeleryWorker:
    """The port of a Celery worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._owed: Owed = deque()
        self._solo = issubclass(worker.pool_cls, SoloPool)

    @property
    def send_event(self) -> SendEvent | None:
        """Return the function that sends events, None if this worker was started without -E."""
        consumer = getattr(self._worker, "consumer", None)
        events = None if consumer is None else consumer.event_dispatcher
        return events.send if events is not None and events.enabled else None

    @property
    def processes(self) -> int | None:
        """The number of processes of a prefork pool, None for the other pools.

        With an autoscaler it is the highest number. The size of the other pools never changes.
        """
        worker = self._worker
        if not issubclass(worker.pool_cls, PreforkPool):
            return None
        if worker.autoscaler is not None:
            return worker.autoscaler.max_concurrency
        return worker.pool._pool._processes if worker.pool._pool else None

    @property
    def ends_runs(self) -> bool:
        """Whether no run goes on once the pool has ended; False for a pool of threads.

        A solo pool runs a task in the thread that ends the worker, so that the task ends before.
        """
        return not issubclass(self._worker.pool_cls, ThreadPool)

    @property
    def queues(self) -> Collection[str] | None:
        """The queues that the worker consumes, None while there is no consumer of them.

        `add_consumer` and `cancel_consumer` change the queues.
        """
        consumer = getattr(getattr(self._worker, "consumer", None), "task_consumer", None)
        return None if consumer is None else {queue.name for queue in consumer.queues}

    def busy(self) -> bool:
        """Return True while a solo pool runs a task."""
        return self._solo and bool(state.active_requests)

    def listen(self) -> None:
        """Have the consumer's inbox listen, once the consumer has an inbox."""
        inbox = getattr(getattr(self._worker, "consumer", None), "parsync_inbox", None)
        if inbox is not None:
            inbox.registered()

    def stop(self, cold: bool) -> None:
        """Tell Celery's event loop to end the worker.

        A cold end has code 0 if nobody gives another one.
        """
        if cold:
            self._worker.exitcode = 1
            state.should_terminate = 1
        else:
            state.should_stop = 2

    def terminate(self, request: RunRequest, signal: str) -> None:
        """End a run with a signal, if the pool has processes."""
        try:
            cast(Request, request).terminate(self._worker.pool, signal=signal)
        except NotImplementedError:
            _cannot_end(request)

    def kill(self, request: RunRequest, signal: str = "SIGKILL") -> None:
        """End a run whose task goes back, if the pool has processes."""
        try:
            cast(Request, request).drop(self._worker.pool, signal)
        except NotImplementedError:
            _cannot_end(request)

    def tell_results(self, store: Store) -> None:
        """Tell the app's result backend of the tasks in the results outbox."""
        announce(store, self._worker.app, self._owed, self.send_event)

    def put_back_results(self, store: Store) -> None:
        """Put back into the results outbox the entries that could not be told."""
        put_back(store, self._owed)

    @property
    def owed_results(self) -> Sequence[object]:
        """The entries that were taken from the outbox, and neither told nor put back."""
        return [*self._owed]


def _cannot_end(request: RunRequest) -> None:
    log.warning("task %s runs in a pool that cannot end it: it is let run to its end", request.id)

"""`WorkerPort`: what the agent needs of the worker that it lives in; and `CeleryWorker`, which is a
Celery worker's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.worker import state

from .celery_types import Request, SendEvent, Worker

log = logging.getLogger("parsync.agent")


class WorkerPort(Protocol):
    """The services of the worker that the agent needs. The agent's threads call it."""

    @property
    def send_event(self) -> SendEvent | None:
        """Return the function that sends events, None if the worker sends none."""

    @property
    def processes(self) -> int | None:
        """How many processes the pool has, with an autoscaler at most; None for a pool that has
        none or has ended.
        """

    @property
    def queues(self) -> Collection[str] | None:
        """The Celery queues that the worker consumes, None if that is not known at the moment."""

    def busy(self) -> bool:
        """Return True while the event loop itself runs a task, as with the solo pool."""

    def listen(self) -> None:
        """Listen to the node's inbox: the node has registered, perhaps in another partition than
        before.
        """

    def stop(self, cold: bool) -> None:
        """End the worker by an error: cold kills what it runs, and exits with code 1; warm exits
        with code 2.
        """

    def terminate(self, request: Request, signal: str) -> None:
        """End a run with a signal."""

    def kill(self, request: Request) -> None:
        """Kill a run that does not count any more, without reporting its end."""


class CeleryWorker:
    """The port of a Celery worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._solo = issubclass(worker.pool_cls, SoloPool)

    @property
    def send_event(self) -> SendEvent | None:
        """Return the function that sends events, None if this worker was started without -E."""
        consumer = getattr(self._worker, "consumer", None)
        events = None if consumer is None else consumer.event_dispatcher
        return events.send if events is not None and events.enabled else None

    @property
    def processes(self) -> int | None:
        """How many processes the pool has, with an autoscaler at most; the size of other pools
        never changes.
        """
        worker = self._worker
        if not issubclass(worker.pool_cls, PreforkPool):
            return None
        if worker.autoscaler is not None:
            return worker.autoscaler.max_concurrency
        return worker.pool._pool._processes if worker.pool._pool else None

    @property
    def queues(self) -> Collection[str] | None:
        """The queues that `add_consumer` and `cancel_consumer` change; None while there is no
        consumer of them.
        """
        consumer = getattr(getattr(self._worker, "consumer", None), "task_consumer", None)
        return None if consumer is None else {queue.name for queue in consumer.queues}

    def busy(self) -> bool:
        """Return True while a solo pool runs a task."""
        return self._solo and bool(state.active_requests)

    def listen(self) -> None:
        """Have the consumer's inbox listen; there is none before the consumer is made."""
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

    def terminate(self, request: Request, signal: str) -> None:
        """End a run with a signal, if the pool has processes."""
        try:
            request.terminate(self._worker.pool, signal=signal)
        except NotImplementedError:
            _cannot_end(request)

    def kill(self, request: Request) -> None:
        """Kill a run, if the pool has processes."""
        try:
            request.drop(self._worker.pool)
        except NotImplementedError:
            _cannot_end(request)


def _cannot_end(request: Request) -> None:
    log.warning("task %s runs in a pool that cannot end it: it is let run to its end", request.id)

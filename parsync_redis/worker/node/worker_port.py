"""The port of a node: everything that the node needs of the worker around it.

The class that implements the port with Celery's worker is `CeleryWorker` (worker/celery/port.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ...store.store import Store


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The facts about a worker from which its node's offer follows.

    hostname: the worker's name, the node's default name.
    pool: the kind of its pool.
    concurrency: the number of tasks that the pool runs at the same time, with an autoscaler the
        highest number.
    """

    hostname: str
    pool: Literal["prefork", "threads", "solo"]
    concurrency: int


class RunRequest(Protocol):
    """The worker's request for a run: the task as the worker has received it."""

    id: str
    time_start: float | None
    """When the task's function began, None before."""


class WorkerPort(Protocol):
    """The services of the worker that the node's agent needs. The agent's threads call them."""

    @property
    def processes(self) -> int | None:
        """The number of processes of the pool, with an autoscaler the highest number.

        None for a pool that has no processes, or has ended.
        """

    @property
    def ends_runs(self) -> bool:
        """Whether no run goes on once the pool has ended.

        False for a pool of threads, because Python cannot end a thread.
        """

    @property
    def queues(self) -> Collection[str] | None:
        """The queues that the worker consumes, None while they are not known."""

    def busy(self) -> bool:
        """Return True while the event loop itself runs a task, as with the solo pool."""

    def listen(self) -> None:
        """Listen to the node's inbox: the node has registered, perhaps in another partition."""

    def stop(self, cold: bool) -> None:
        """End the worker because of an error.

        cold: kill the tasks that run, and exit with code 1; else exit with code 2.
        """

    def terminate(self, request: RunRequest, signal: str) -> None:
        """End a run with a signal."""

    def kill(self, request: RunRequest, signal: str = "SIGKILL") -> None:
        """End a run whose task goes back, by a signal; Celery hears of no end."""

    def tell_results(self, store: Store) -> None:
        """Tell the result backend of the tasks in the results outbox."""

    def put_back_results(self, store: Store) -> None:
        """Put back into the results outbox the entries that could not be told."""

    @property
    def owed_results(self) -> Sequence[object]:
        """The entries that were taken from the outbox, and neither told nor put back."""

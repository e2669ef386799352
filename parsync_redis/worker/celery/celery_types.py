"""The parts of Celery's objects that a node uses, as Protocols for mypy.

mypy sees no types in Celery. These protocols name what parsync reads, calls or replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, MutableMapping
from typing import Protocol

from celery import Celery
from kombu import Connection

Callback = Callable[..., object]
SendEvent = Callable[..., object]
"""Sends an event of Celery's: its type, then its fields."""


class TimerEntry(Protocol):
    """A call that the event loop makes later."""

    def cancel(self) -> None:
        """Do not make the call."""


class ScheduledEntry(Protocol):
    """A place in the timer's queue."""

    entry: TimerEntry


class Timer(Protocol):
    """The event loop's timer."""

    queue: Iterable[ScheduledEntry]

    def cancel(self, entry: TimerEntry) -> None:
        """Do not make that call."""


class Hub(Protocol):
    """The worker's event loop."""

    timer: Timer
    poller: object
    propagate_errors: tuple[type[BaseException], ...]

    def call_soon(self, callback: Callback) -> object:
        """Call at the loop's next turn. Any thread may call this."""

    def call_later(self, delay_s: float, callback: Callback) -> TimerEntry:
        """Call once, after a delay."""

    def call_repeatedly(self, delay_s: float, callback: Callback) -> TimerEntry:
        """Call again and again."""

    def add_reader(self, descriptor: int, callback: Callback) -> None:
        """Call whenever the descriptor has something to read."""

    def remove_reader(self, descriptor: int) -> None:
        """Forget the descriptor."""

    def create_loop(self) -> Iterable[object]:
        """Return the loop as a generator; each step is a turn."""


class PoolJob(Protocol):
    """A call in a pool of processes: billiard's ApplyResult."""

    _job: int
    _cache: MutableMapping[int, object]
    _write_to: PoolProcess | None
    discard: Callback


class PoolProcess(Protocol):
    """A process of a pool."""

    inqW_fd: int  # noqa: N815 # as billiard has it
    """The descriptor of the pipe that jobs are written to."""

    def _is_alive(self) -> bool: ...


class PoolOfProcesses(Protocol):
    """Celery's AsynPool."""

    _busy_workers: set[int]
    """The `inqW_fd` of the processes that are at work."""
    outbound_buffer: Container[PoolJob]
    """The jobs that wait for a process."""
    _processes: int
    """The number of processes that the pool is to have."""


class Pool(Protocol):
    """A worker's pool."""

    uses_semaphore: bool
    """True for a pool of processes."""
    flush: Callback
    _pool: PoolOfProcesses
    """Celery has None there once the pool has ended."""

    def apply_async(self, target: Callback, args: tuple[object, ...], **options: object) -> object:
        """Have the pool call `target(*args)`; return the pool's handle of that call."""

    def terminate_job(self, pid: int, signal: int) -> None:
        """Send a signal to a process of the pool; raises NotImplementedError without processes."""


class Request(Protocol):
    """A request that request.py has derived from Celery's: a task that the worker has received."""

    id: str
    time_start: float | None
    """When its function began, None before."""
    _apply_result: Callable[[], PoolJob | None] | None
    """A weak reference to the pool's job, None before the pool has it."""

    def terminate(self, pool: Pool, signal: str | None = None) -> None:
        """End the run with a signal."""

    def drop(self, pool: Pool, signal: str = "SIGKILL") -> None:
        """End the run by a signal without reporting its end."""


class Backend(Protocol):
    """A result backend."""

    store_result: Callback
    on_chord_part_return: Callback

    def as_uri(self) -> str:
        """Return its address without a password."""


class Bucket(Protocol):
    """A token bucket of kombu's, which Celery has for each task with a rate limit."""

    fill_rate: float

    def can_consume(self, tokens: int = 1) -> bool:
        """Take tokens if there are enough."""

    def expected_time(self, tokens: int = 1) -> float:
        """Return the seconds until there are enough tokens."""


class Dispatcher(Protocol):
    """The sender of a worker's events."""

    enabled: bool
    send: Callback


class Limited(Protocol):
    """A consumer, as far as its rate limits go."""

    disable_rate_limits: bool
    task_buckets: MutableMapping[str, Bucket | None]


class Consumer(Limited, Protocol):
    """A worker's consumer; `parsync_inbox` is ours."""

    app: Celery
    hub: Hub
    pool: Pool
    controller: Worker
    event_dispatcher: Dispatcher | None
    connection_errors: tuple[type[BaseException], ...]
    channel_errors: tuple[type[BaseException], ...]
    strategies: dict[str, Callback]
    hostname: str
    on_task_message: object
    on_unknown_task: Callback
    on_invalid_task: Callback
    parsync_inbox: object


class Blueprint(Protocol):
    """The steps of a worker."""

    on_stopped: Callable[[], object] | None


class Autoscaler(Protocol):
    """Celery's autoscaler."""

    max_concurrency: int


class Worker(Protocol):
    """A Celery worker (`WorkController`); `parsync_agent` is ours."""

    app: Celery
    hub: Hub
    pool: Pool
    pool_cls: type
    consumer: Consumer
    consumer_cls: str | type
    blueprint: Blueprint
    hostname: str
    exitcode: int | None
    concurrency: int
    max_concurrency: int | None
    max_tasks_per_child: int | None
    autoscaler: Autoscaler | None
    task_events: bool
    use_eventloop: bool
    options: dict[str, object]
    _conninfo: Connection
    parsync_agent: object
    register_with_event_loop: Callback
    wait_for_soft_shutdown: Callback

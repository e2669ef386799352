"""Isolation of a run: it stays in its slots and ends with its node's lease, whatever happens to the
worker.

The process that runs a task's function holds the locks of its slots (locks.py) and is tied to the
worker's guard (guard.py), from before the first instruction of the function until after the last.
This module has the tie, and the function that a pool runs in place of Celery's. That function also
turns an exit that the task asked for into a failure of the task, because no pool but prefork
survives one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from billiard import common
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.concurrency.solo import TaskPool as SoloPool
from celery.exceptions import WorkerShutdown, WorkerTerminate

from ..celery.storing import be_patient_anew, mark_unstored, patient
from .locks import SlotBusy, hold

Trace = Callable[..., object]
"""Celery's function that runs a task; it returns (failed, result or ExceptionInfo, seconds)."""


@dataclass(frozen=True, slots=True)
class RunIsolation:
    """The data with which a pool process isolates a run; it travels with the task to the pool."""

    lock_file: str
    slots: tuple[int, ...]
    guard: str
    one_at_a_time: bool
    """True if the process runs nothing else meanwhile, so that its standard input may become the
    run's.
    """


class NotBegun(Exception):
    """The run could not be isolated, so its function was not called."""


def open_tie(guard: str) -> int:
    """Open the writing end of the pipe whose one reader is the guard; raises OSError if there is no
    guard.
    """
    return os.open(guard, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def tied(guard: str) -> Iterator[None]:
    """Have the kernel kill this process if the guard dies before the end of the block; raises
    OSError.

    The guard is the one reader of a pipe. This process holds the writing end, with SIGKILL as that
    end's signal.
    """
    tie = open_tie(guard)
    try:
        fcntl.fcntl(tie, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(tie, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(tie, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        watched = select.poll()
        watched.register(tie, 0)
        if watched.poll(0):  # the guard died after the open and before the signal was set
            raise OSError(errno.EPIPE, "the guard is gone")
        yield
    finally:
        # children may have inherited it, and keep it open
        fcntl.fcntl(tie, fcntl.F_SETFL, os.O_NONBLOCK)
        os.close(tie)


@contextmanager
def seeing(environment: Mapping[str, str]) -> Iterator[None]:
    """Have these variables set until the end of the block: they name the devices of the run."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_isolated(
    isolation: RunIsolation | None, environment: Mapping[str, str], trace: Trace, *args: object
) -> object:
    """Run a task by Celery's `trace` with these variables, isolated if `isolation` is given.

    If the isolation cannot be set up, the run fails with NotBegun. If `trace` raises, the run fails
    with that error: sys.exit, asyncio.CancelledError, a result that cannot be stored. No pool but
    prefork would report those.
    """
    with ExitStack() as held:
        if isolation is not None:
            try:
                held.enter_context(
                    hold(isolation.lock_file, isolation.slots, isolation.one_at_a_time)
                )
                held.enter_context(tied(isolation.guard))
            except (SlotBusy, OSError) as error:
                return _failed(NotBegun(str(error)))
        if environment:
            held.enter_context(seeing(environment))
        try:
            with patient():
                return trace(*args)
        except BaseException as error:
            if _shuts_down(error):
                raise
            return _failed(
                exit_of_task(error) if isinstance(error, SystemExit | KeyboardInterrupt) else error
            )


def run_beside_loop(*run: object) -> object:
    """Run a task as `run_isolated` does, in a process or thread that is not the event loop's: each
    run may wait.
    """
    be_patient_anew()
    return run_isolated(*run)  # type: ignore[arg-type] # the same arguments


def exit_of_task(error: SystemExit | KeyboardInterrupt) -> WorkerLostError:
    """Return the error of a task that asked its process to exit, in Celery's words for such an
    exit.
    """
    code = error.code if isinstance(error, SystemExit) else None
    status = 0 if code is None else code & 0xFF if isinstance(code, int) else 1
    lost = WorkerLostError(
        "Worker exited prematurely: "
        f"{f'exitcode {status}' if isinstance(error, SystemExit) else 'KeyboardInterrupt'}."
    )
    lost.by_task = True  # travels with the error from the pool's process: see `ended_by_task`
    return lost


def _shuts_down(error: BaseException) -> bool:
    """Return True if this process shuts down: by a signal, or because Celery ends the worker from
    its main thread.
    """
    if common._should_have_exited[0]:
        return True
    return (
        isinstance(error, WorkerShutdown | WorkerTerminate)
        and threading.current_thread() is threading.main_thread()
    )


def _failed(error: BaseException) -> tuple[int, ExceptionInfo, float]:
    """Return what Celery's trace would for a run that failed with this error, which nobody has
    stored as its result.
    """
    mark_unstored(error)
    try:
        raise error
    except BaseException:
        return 1, ExceptionInfo(), 0.0


class Applies(Protocol):
    """A pool of Celery's, as far as a request uses it to run a task."""

    def apply_async(
        self, target: Callable[..., object], args: tuple[object, ...], **options: object
    ) -> object:
        """Have a process or thread of the pool call `target(*args)`; return the pool's handle of
        that call.
        """


class IsolatedPool:
    """A worker's pool for one run: the task goes through `run_isolated`."""

    def __init__(
        self, pool: Applies, isolation: RunIsolation | None, environment: Mapping[str, str]
    ) -> None:
        self._pool = pool
        self._isolation = isolation
        self._environment = environment

    def apply_async(self, target: Trace, args: tuple[object, ...], **options: object) -> object:
        """Run the task in the pool, isolated."""
        run = run_isolated if isinstance(self._pool, SoloPool) else run_beside_loop
        return self._pool.apply_async(
            run, args=(self._isolation, self._environment, target, *args), **options
        )

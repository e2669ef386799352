"""Fences: what keeps a run to its slots and to its node's lease, on the machine itself.

The process that runs a task's function holds the locks of its slots (locks.py) and is tied to the worker's guard
(guard.py), from before the first instruction of the function until after the last. What is here: the tie, and the
function that a pool runs in place of Celery's. That function also turns an exit that the task asked for into a failure
of the task, because no pool but prefork survives one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from billiard import common
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.exceptions import WorkerShutdown, WorkerTerminate

from .locks import SlotBusy, hold


@dataclass(frozen=True, slots=True)
class Fence:
    """What a pool process needs to know to fence a run; it travels with the task to the pool."""

    lock_file: str
    slots: tuple[int, ...]
    guard: str
    one_at_a_time: bool
    """Whether the process runs nothing else meanwhile, so that its standard input may become the run's."""


class NotBegun(Exception):
    """A run that could not be fenced: its function was not called."""


def open_tie(guard: str) -> int:
    """The writing end of the pipe whose one reader is the guard; raises OSError where there is none."""
    return os.open(guard, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def tied(guard: str) -> Iterator[None]:
    """Has the kernel kill this process when the guard is gone, until the end of the block; raises OSError.

    `guard` is the one reader of a pipe to which this process holds the writing end, with SIGKILL as that end's signal.
    """
    tie = open_tie(guard)
    try:
        fcntl.fcntl(tie, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(tie, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(tie, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        watched = select.poll()
        watched.register(tie, 0)
        if watched.poll(0):  # it went after the opening and before the signal was asked for
            raise OSError(errno.EPIPE, "the guard is gone")
        yield
    finally:
        fcntl.fcntl(tie, fcntl.F_SETFL, os.O_NONBLOCK)  # children may have it too, and keep it
        os.close(tie)


def run_fenced(fence: Fence | None, trace: Callable[..., Any], *args: Any) -> Any:
    """Runs a task by Celery's `trace`, inside its fence if there is one.

    If the fence cannot be set up, the run fails with NotBegun. If `trace` raises, the run fails with that error:
    sys.exit, asyncio.CancelledError, a result that cannot be stored. No pool but prefork would say so.
    """
    with ExitStack() as held:
        if fence is not None:
            try:
                held.enter_context(hold(fence.lock_file, fence.slots, fence.one_at_a_time))
                held.enter_context(tied(fence.guard))
            except (SlotBusy, OSError) as error:
                return _failed(NotBegun(str(error)))
        try:
            return trace(*args)
        except BaseException as error:
            if _shuts_down(error):
                raise
            return _failed(exit_of_task(error) if isinstance(error, SystemExit | KeyboardInterrupt) else error)


def exit_of_task(error: SystemExit | KeyboardInterrupt) -> WorkerLostError:
    """The error with which a task fails that has asked its process to exit; Celery's words for such an exit."""
    code = error.code if isinstance(error, SystemExit) else None
    status = 0 if code is None else code & 0xFF if isinstance(code, int) else 1
    lost = WorkerLostError(
        f"Worker exited prematurely: {f'exitcode {status}' if isinstance(error, SystemExit) else 'KeyboardInterrupt'}."
    )
    lost.by_task = True  # travels with the error from the pool's process: see `ended_by_task`
    return lost


def _shuts_down(error: BaseException) -> bool:
    """Whether this process shuts down: a signal has told it to, or Celery ends the worker from its main thread."""
    if common._should_have_exited[0]:
        return True
    return isinstance(error, WorkerShutdown | WorkerTerminate) and threading.current_thread() is threading.main_thread()


def _failed(error: BaseException) -> tuple[int, ExceptionInfo, float]:
    """What Celery's trace returns for a run that failed with this error; but no trace has stored it as the result."""
    error.unstored = True  # type: ignore[attr-defined] # travels with the error from the pool's process
    try:
        raise error
    except BaseException:
        return 1, ExceptionInfo(), 0.0


class FencedPool:
    """A worker's pool, for one run: what Celery has it run goes through `run_fenced`."""

    def __init__(self, pool: Any, fence: Fence | None) -> None:
        self._pool, self._fence = pool, fence

    def apply_async(self, target: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Any:
        """As the pool's own."""
        return self._pool.apply_async(run_fenced, args=(self._fence, target, *args), **options)

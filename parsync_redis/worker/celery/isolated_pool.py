"""The pool of a worker for one run, which is isolated: the function that runs in place of Celery's.

That function also turns an exit that the task asked for into a failure of the task, because no
pool but prefork survives an exit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Protocol

from billiard import common
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.concurrency.solo import TaskPool as SoloPool
from celery.exceptions import WorkerShutdown, WorkerTerminate

from ..isolation.locks import SlotBusy, hold
from ..isolation.tie import NotBegun, RunIsolation, seeing, tied
from .storing import be_patient_anew, mark_unstored, patient

Trace = Callable[..., object]
"""Celery's function that runs a task; it returns (failed, result or ExceptionInfo, seconds)."""


def run_isolated(
    isolation: RunIsolation | None, environment: Mapping[str, str], trace: Trace, *args: object
) -> object:
    """Run a task by Celery's `trace` with these variables, isolated if that is given.

    If the isolation cannot be set up, the run fails with NotBegun. If `trace` raises, the run fails
    with that error: sys.exit, asyncio.CancelledError, a result that cannot be stored. No pool but
    prefork would report those.
    """
    with ExitStack() as stack:
        if isolation is not None:
            try:
                stack.enter_context(
                    hold(isolation.lock_file, isolation.slots, isolation.one_at_a_time)
                )
                stack.enter_context(tied(isolation.guard))
            except (SlotBusy, OSError) as error:
                return _failed(NotBegun(str(error)))
        if environment:
            stack.enter_context(seeing(environment))
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
    """Run a task as `run_isolated` does, outside of the event loop.

    Each run may wait for its result backend.
    """
    be_patient_anew()
    return run_isolated(*run)  # type: ignore[arg-type] # the same arguments


def exit_of_task(error: SystemExit | KeyboardInterrupt) -> WorkerLostError:
    """Return the error of a task that asked its process to exit, in Celery's words."""
    reason = (
        f"exitcode {_exit_status(error)}" if isinstance(error, SystemExit) else "KeyboardInterrupt"
    )
    lost = WorkerLostError(f"Worker exited prematurely: {reason}.")
    lost.by_task = True  # travels with the error from the pool's process: see `ended_by_task`
    return lost


def _exit_status(error: SystemExit) -> int:
    """Return the exit code of a process that ends by this error, as Python computes it."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _shuts_down(error: BaseException) -> bool:
    """Return whether this process shuts down.

    A signal, or Celery in the worker's main thread, ends the process then.
    """
    if common._should_have_exited[0]:
        return True
    return (
        isinstance(error, WorkerShutdown | WorkerTerminate)
        and threading.current_thread() is threading.main_thread()
    )


def _failed(error: BaseException) -> tuple[int, ExceptionInfo, float]:
    """Return what Celery's trace returns for a run that failed with this error.

    The error is marked: nobody has stored it as the result.
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
        """Have the pool call `target(*args)`; return the pool's handle of that call."""


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

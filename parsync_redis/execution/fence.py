"""Fences: what keeps a run to its slots and to its node's lease, on the machine itself.

The process that runs a task's function holds the locks of its slots (locks.py) and is tied to the worker's guard
(guard.py), from before the first instruction of the function until after the last. What is here: the tie, and the
function that a pool process runs in place of Celery's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from billiard.einfo import ExceptionInfo

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


def run_fenced(fence: Fence, trace: Callable[..., Any], *args: Any) -> Any:
    """Runs a task by Celery's `trace`, fenced; if that cannot be, the run failed with NotBegun, as Celery has it."""
    with ExitStack() as held:
        try:
            held.enter_context(hold(fence.lock_file, fence.slots, fence.one_at_a_time))
            held.enter_context(tied(fence.guard))
        except (SlotBusy, OSError) as error:
            try:
                raise NotBegun(str(error)) from None
            except NotBegun:
                return 1, ExceptionInfo(), 0.0
        return trace(*args)


class FencedPool:
    """A worker's pool, for one run: what Celery has it run is fenced."""

    def __init__(self, pool: Any, fence: Fence) -> None:
        self._pool, self._fence = pool, fence

    def apply_async(self, target: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Any:
        """As the pool's own."""
        return self._pool.apply_async(run_fenced, args=(self._fence, target, *args), **options)

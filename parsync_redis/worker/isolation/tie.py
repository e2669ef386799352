"""The tie of a run to its node's lease.

A run stays in its slots, and ends with its node's lease, whatever happens to the worker.

The process that runs a task's function holds the locks of its slots (locks.py) and is tied to the
worker's guard (guard.py), from before the first instruction of the function until after the last.
This module has the tie. The function that a pool runs is in worker/celery/isolated_pool.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass


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
    """Open the writing end of the guard's pipe; raises OSError if there is no guard.

    The guard is the one reader of the pipe.
    """
    return os.open(guard, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def tied(guard: str) -> Iterator[None]:
    """Have the kernel kill this process if the guard dies within the block.

    The guard is the one reader of a pipe. This process holds the writing end, and has SIGKILL sent
    to itself when the reader is gone. Raises OSError.
    """
    tie = open_tie(guard)
    try:
        fcntl.fcntl(tie, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(tie, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(tie, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        watched = select.poll()
        watched.register(tie, 0)
        if watched.poll(0):  # the guard died between the open and the setting of the signal
            raise OSError(errno.EPIPE, "the guard is gone")
        yield
    finally:
        # children may have inherited the descriptor, and keep it open
        fcntl.fcntl(tie, fcntl.F_SETFL, os.O_NONBLOCK)
        os.close(tie)


@contextmanager
def seeing(environment: Mapping[str, str]) -> Iterator[None]:
    """Set these variables until the end of the block: they name the devices of the run."""
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

"""Child processes of a worker, started by a thread while the main thread forks pool processes.

`subprocess` waits until the new process has closed its copy of a pipe. A pool process that is
forked meanwhile keeps another copy for as long as it lives, so the wait would not end. Therefore
one lock stands around each start and each fork.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final
from weakref import WeakSet

_lock: Final = threading.RLock()
"""Held for each start and for each fork.

The thread that starts may fork, so it may take the lock twice.
"""
_pipes: Final[WeakSet[IO[bytes]]] = WeakSet()
"""This process's ends of the pipes to its children."""


@contextmanager
def no_fork() -> Iterator[None]:
    """Let no other thread fork until the end of the block."""
    with _lock:
        yield


# Any: the options of Popen, each of its own type
def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process as `subprocess.Popen` does, without buffers. Raises OSError.

    A process that is forked later does not keep the pipes to the child open.
    """
    with no_fork():
        child = subprocess.Popen(command, bufsize=0, **options)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                _pipes.add(pipe)
    return child


def _forked() -> None:
    """Free the lock, and close this process's copies of the pipes to the children of its parent.

    Whoever held the lock, it is free here: another thread of the parent does if a signal handler
    raised while the parent's fork waited for the lock. CPython forks all the same.
    """
    _lock._at_fork_reinit()  # type: ignore[attr-defined] # threading frees its own locks so
    for pipe in list(_pipes):
        with suppress(OSError):
            pipe.close()
    _pipes.clear()


# The lock's own methods: no signal handler can raise between their steps. A parent whose fork did
# not get the lock releases nothing, because an RLock refuses to be released by others than its
# owner.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)

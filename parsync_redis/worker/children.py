"""Child processes of a worker, started by a thread while the main thread forks pool processes.

`subprocess` waits until the new process has closed its copy of a pipe. A pool process that is
forked meanwhile keeps another copy for as long as it lives, so the wait would not end. Therefore
one lock stands around each start and each fork.

A lock that another thread holds during a fork stays locked in the pool process for ever, because
that thread does not live there. Celery's result backends and apps have such locks: kombu's
`cached_property` holds one, for all instances of a class, whenever its value is read, and
`functools.cached_property` (Python 3.11) while its value is made. The agent's threads read these
properties, and so do the runs. Therefore each fork frees these locks in the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import IO, Any, Final
from weakref import WeakSet

_lock: Final = threading.RLock()
"""Held for each start and for each fork.

The thread that starts may fork, so it may take the lock twice.
"""
_pipes: Final[WeakSet[IO[bytes]]] = WeakSet()
"""This process's ends of the pipes to its children."""
_property_locks: Final[dict[int, threading.RLock]] = {}
"""The locks of cached properties, by their ids."""
_modules_read = 0
"""The number of loaded modules when their cached properties were last looked for."""


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


def _note_property_locks() -> None:
    """Note the locks of the cached properties of all classes in loaded modules.

    The modules are read only if others were loaded since the last fork. The parent reads them,
    because a page of memory that the child reads is not shared any more.

    `issubclass` asks for true types only, because `isinstance` reads `__class__`, which an object
    that stands for another object computes.
    """
    global _modules_read
    modules = list(sys.modules.values())
    if len(modules) == _modules_read:
        return
    for module in modules:
        classes = [value for value in _values_of(module) if issubclass(type(value), type)]
        locks = [
            getattr(value, "lock", None)
            for defined in classes
            for value in _values_of(defined)
            if issubclass(type(value), cached_property)
        ]
        _property_locks.update((id(lock), lock) for lock in locks if lock is not None)
    _modules_read = len(modules)


def _values_of(namespace: object) -> list[object]:
    """Return the values in a module or a class, and load no module that waits to be loaded."""
    try:
        return list(object.__getattribute__(namespace, "__dict__").values())
    except AttributeError:  # any object may stand in sys.modules
        return []


def _forked() -> None:
    """Free the locks, and close this process's copies of the pipes to the children of its parent.

    Whoever held `_lock`, it is free here: another thread of the parent does if a signal handler
    raised while the parent's fork waited for the lock. CPython forks all the same. The thread that
    forked keeps the locks of cached properties that it holds.
    """
    _lock._at_fork_reinit()  # type: ignore[attr-defined] # threading frees its own locks so
    for lock in _property_locks.values():
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]
    for pipe in list(_pipes):
        with suppress(OSError):
            pipe.close()
    _pipes.clear()


# The lock's own methods: no signal handler can raise between their steps. A parent whose fork did
# not get the lock releases nothing, because an RLock refuses to be released by others than its
# owner.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)
os.register_at_fork(before=_note_property_locks)

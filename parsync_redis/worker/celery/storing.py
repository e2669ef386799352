"""Stores results of runs although the result backend refuses for a while.

The module notes which results could not be stored.

Celery's result backend for Redis tries again after a lost connection, but not after a refusal (the
disk is full, the server has become a replica). A run whose function has returned would fail. Here
the run waits for the backend.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, cast

from celery import Celery, Task, states
from kombu.exceptions import EncodeError
from redis.exceptions import RedisError

from ...store.server.server_errors import Backoff, refusal_to
from .celery_types import Backend

log = logging.getLogger("parsync.agent")

BACKEND_PATIENCE_S: Final = 20.0
"""Seconds for which a run waits for a backend that refuses.

Celery tries a backend whose connection is lost for the same time.
"""

_thread = threading.local()


@contextmanager
def patient() -> Iterator[None]:
    """Have this thread wait for a result backend that refuses, until the block ends.

    The waits are over after BACKEND_PATIENCE_S without a result taken.

    The threads that answer the pool do not wait. A solo pool runs its tasks in the event loop, so
    the event loop waits for them: once in an outage, not once a task.
    """
    _thread.waits = True
    try:
        yield
    finally:
        _thread.waits = False


def be_patient_anew() -> None:
    """Have this thread wait anew, although it has waited in vain.

    Each run has a wait of its own.
    """
    _thread.until_s = None


def watch_results(app: Celery) -> None:
    """Have the result backends of an app wait, in this process and in its children."""
    for task in app.tasks.values():
        watch_backend_of(task)
    celery_get_backend = app._get_backend
    if getattr(celery_get_backend, "of_parsync", False):
        return

    def get_backend() -> Backend:
        return _watch(celery_get_backend())

    get_backend.of_parsync = True  # type: ignore[attr-defined] # functions take any attribute
    app._get_backend = get_backend
    if app._backend is not None:
        _watch(app._backend)


def watch_backend_of(task: Task) -> None:
    """Have a task's own result backend wait; most tasks have their app's backend."""
    if task._backend is not None:
        _watch(task._backend)


def is_unstored(error: BaseException) -> bool:
    """Return True if nobody stored the error with which a run ended.

    The error may come from a pool's process.
    """
    return getattr(error, "unstored", False)


def mark_unstored(error: BaseException) -> None:
    """Note on the error of a run that nobody has stored it.

    The note travels with the error to the worker's process.
    """
    error.unstored = True  # type: ignore[attr-defined] # errors take any attribute


def is_of_backend(error: BaseException) -> bool:
    """Return True if a result backend raised this error; it may come from a pool's process."""
    return getattr(error, "of_backend", False)


def why_unstored(error: BaseException) -> str:
    """Return why a task has failed whose result could not be stored."""
    return f"its result could not be stored: {type(error).__name__} {ascii(str(error))[1:-1]:.300}"


def _watch(backend: Backend) -> Backend:
    """Have a backend wait where a run waits, and mark the errors that it raises.

    A mark says where an error comes from, not that it is the last word: Celery may store the
    failure afterwards.
    """
    if getattr(backend.store_result, "of_parsync", False):
        return backend
    celery_store = backend.store_result
    celery_part_return = backend.on_chord_part_return

    def store_result(
        task_id: str, result: object, state: str, *args: object, **options: object
    ) -> object:
        waits = state in states.ALL_STATES  # other states are a task's own, such as its progress
        return _store(
            partial(celery_store, task_id, result, state, *args, **options), backend, waits
        )

    def on_chord_part_return(*args: object, **options: object) -> object:
        return _store(partial(celery_part_return, *args, **options), backend)

    store_result.of_parsync = True  # type: ignore[attr-defined] # functions take any attribute
    backend.store_result = store_result
    backend.on_chord_part_return = on_chord_part_return
    return backend


def _store(store: Callable[[], object], backend: Backend, waits: bool = True) -> object:
    """Store a result; try again while the backend's server refuses.

    Only a patient thread tries again, and only if `waits`.
    """
    backoff = Backoff(log, "a result waits for its backend")
    while True:
        try:
            stored = store()
            backoff.well()
            be_patient_anew()
            return stored
        except EncodeError:  # the result cannot be encoded: another try would fail too
            raise
        except Exception as error:
            why = refusal_to(backend.as_uri(), error) if isinstance(error, RedisError) else None
            if why is None or not waits or not _may_wait():
                error.of_backend = True  # type: ignore[attr-defined] # errors take any attribute
                raise
            time.sleep(backoff.pause_s(why))


def _may_wait() -> bool:
    """Return True if this thread is patient and has not waited too long.

    The wait counts from when a backend last took a result.
    """
    if not getattr(_thread, "waits", False):
        return False
    now_s = time.monotonic()
    if getattr(_thread, "until_s", None) is None:
        _thread.until_s = now_s + BACKEND_PATIENCE_S
    return now_s < cast(float, _thread.until_s)

"""Store the results of runs although the result backend refuses for a while, and note what could not be stored.

Celery's result backend for Redis tries again after a lost connection, but not after a refusal (the disk is full, the
server has become a replica). A run whose function has returned would fail. Here the run waits for the backend.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from celery import Celery
from redis.exceptions import RedisError

from ..store.server_errors import Backoff, refusal_to
from .celery_types import Backend

log = logging.getLogger("parsync.agent")

PATIENCE_S: Final = 20.0
"""How long a run waits for a backend that refuses: as long as Celery tries a backend whose connection is lost."""

_thread = threading.local()


@contextmanager
def patient() -> Iterator[None]:
    """Have this thread wait for a result backend that refuses. The worker's event loop must not wait."""
    _thread.waits = True
    try:
        yield
    finally:
        _thread.waits = False


def watch_results(app: Celery) -> None:
    """Have the result backends of an app in this process, and in those that it forks, store as this module says."""
    celery_get_backend = app._get_backend
    if getattr(celery_get_backend, "of_parsync", False):
        return

    def get_backend() -> Backend:
        return _watch(celery_get_backend())

    get_backend.of_parsync = True  # type: ignore[attr-defined] # functions take any attribute
    app._get_backend = get_backend
    if app._backend is not None:
        _watch(app._backend)


def is_unstored(error: BaseException) -> bool:
    """Return True if an error says that a result could not be stored; it may come from a pool's process."""
    return getattr(error, "unstored", False)


def mark_unstored(error: BaseException) -> None:
    """Note on an error that a result could not be stored. The note travels with the error to the worker's process."""
    error.unstored = True  # type: ignore[attr-defined] # errors take any attribute


def why_unstored(error: BaseException) -> str:
    """Return why a task has failed whose result could not be stored."""
    return f"its result could not be stored: {type(error).__name__} {ascii(str(error))[1:-1]:.300}"


def _watch(backend: Backend) -> Backend:
    """Have a backend mark the errors of results that it could not store."""
    celery_store = backend.store_result

    def store_result(*args: object, **options: object) -> object:
        try:
            return _store(partial(celery_store, *args, **options), backend)
        except Exception as error:
            mark_unstored(error)
            raise

    backend.store_result = store_result
    return backend


def _store(store: Callable[[], object], backend: Backend) -> object:
    """Store a result; a thread that is patient tries again while the backend's server refuses."""
    backoff = Backoff(log, "a result waits for its backend")
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            stored = store()
            backoff.well()
            return stored
        except RedisError as error:
            why = refusal_to(backend.as_uri(), error)
            if why is None or not getattr(_thread, "waits", False) or time.monotonic() > until_s:
                raise
            time.sleep(backoff.pause_s(why))

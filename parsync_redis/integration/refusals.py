"""What a refused submit means where Celery publishes by itself: in a retry, and after a task that has run.

A refusal must reach the result backend, as it reaches the caller of `delay`. Otherwise `get` waits for ever.
"""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

from celery import Task
from celery._state import get_current_worker_task
from celery.exceptions import Reject
from kombu.exceptions import EncodeError

from .. import errors
from ..errors import ParsyncError


class InvalidInput(errors.InvalidInput, EncodeError):
    """InvalidInput inside a worker's task."""


class UnknownTask(errors.UnknownTask, EncodeError):
    """UnknownTask inside a worker's task."""


class Infeasible(errors.Infeasible, EncodeError):
    """Infeasible inside a worker's task."""


_CELERYS: Final = (
    (errors.UnknownTask, UnknownTask),
    (errors.Infeasible, Infeasible),
    (errors.InvalidInput, InvalidInput),
)


def refusal_here(error: errors.InvalidInput) -> errors.InvalidInput:
    """Return the error of a refused submit, inside a worker's task as one that is also kombu's EncodeError.

    When a task has run, Celery publishes its callbacks and the next step of its chain. Of the errors of that, every
    Celery stores EncodeError as the failure of the task, and of the rest of its chain and chord. After another error it
    stores nothing.
    """
    if get_current_worker_task() is None:
        return error
    return next(celerys(*error.args) for kind, celerys in _CELERYS if isinstance(error, kind))


def extend_retry() -> None:
    """Let a retry whose submit is refused fail its task. Celery rejects the message then, and stores nothing."""
    plain = Task.retry
    if getattr(plain, "of_parsync", False):
        return

    # Any: the arguments of Celery's retry, which go on as they are
    @wraps(plain)
    def retry(task: Task, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(task, *args, **kwargs)
        except Reject as rejected:
            if isinstance(rejected.reason, ParsyncError):
                raise rejected.reason from None
            raise

    retry.of_parsync = True  # type: ignore[attr-defined]
    Task.retry = retry

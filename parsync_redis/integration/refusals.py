"""The meaning of a refused submit where Celery publishes by itself.

Celery does so in a retry, and after a task that has run.

A refusal must reach the result backend, as it reaches the caller of `delay`. Otherwise `get` waits
for ever. A submit in doubt is no failure: the server may have it.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from celery import Task
from celery._state import get_current_worker_task
from celery.exceptions import Reject
from kombu.exceptions import EncodeError

from ..errors import (
    Infeasible,
    InvalidInput,
    ParsyncError,
    ServerFull,
    ServerReadOnly,
    ServerUnreachable,
    UnknownLimit,
    UnknownTask,
)
from .publish import KNOWS_CALLBACKS, from_callback


class Invalid(InvalidInput, EncodeError):
    """InvalidInput for Celery, which publishes a callback."""


class Unknown(UnknownTask, EncodeError):
    """UnknownTask for Celery."""


class UnknownUnder(UnknownLimit, EncodeError):
    """UnknownLimit for Celery."""


class Unfit(Infeasible, EncodeError):
    """Infeasible for Celery."""


def refusal_here(error: InvalidInput) -> InvalidInput:
    """Return the error of a refused submit, in the class that Celery needs here.

    If Celery publishes a callback, the class is also kombu's EncodeError.

    When a task has run, Celery publishes its callbacks and the next step of its chain. If that
    raises EncodeError, every Celery stores the error as the failure of the task and tells its
    chord; Celery 5.7 also tells its chain. After another error Celery stores nothing. Celery before
    5.7 does not distinguish callbacks from what the task itself publishes.
    """
    if not (from_callback() if KNOWS_CALLBACKS else get_current_worker_task()):
        return error
    for kind, celerys in (
        (UnknownTask, Unknown),
        (UnknownLimit, UnknownUnder),
        (Infeasible, Unfit),
    ):
        if isinstance(error, kind):
            return celerys(*error.args)
    return Invalid(*error.args)


def extend_retry() -> None:
    """Give a meaning to a retry or `replace` whose submit is refused or in doubt.

    Celery would reject such a task or let it fail. A refused retry fails its task. If the server
    does not take a retry now, the run ends as *again*: the task waits for the retry that the server
    has, or runs again if the server has no retry. A `replace` that the server may have ends the
    same way.
    """
    plain_retry = Task.retry
    plain_replace = Task.replace
    if getattr(plain_retry, "of_parsync", False):
        return

    # Any: the arguments of Celery's retry, which go on as they are
    @wraps(plain_retry)
    def retry(task: Task, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain_retry(task, *args, **kwargs)
        except Reject as rejected:
            if isinstance(rejected.reason, ServerUnreachable | ServerReadOnly | ServerFull):
                raise Reject(rejected.reason, requeue=True) from None
            if isinstance(rejected.reason, ParsyncError):
                raise rejected.reason from None
            raise

    # Any: the arguments of Celery's replace, which go on as they are
    @wraps(plain_replace)
    def replace(task: Task, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain_replace(task, *args, **kwargs)
        except ServerUnreachable as error:
            if task.request.is_eager or task.request.called_directly:
                raise
            raise Reject(error, requeue=True) from None

    retry.of_parsync = True  # type: ignore[attr-defined]
    Task.retry = retry
    Task.replace = replace

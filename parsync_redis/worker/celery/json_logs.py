"""JSON logs of a Celery worker (PARSYNC_LOG_FORMAT=json).

The lines of Celery, of the tasks and of parsync are JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from celery._state import get_current_task

from ...logs import JsonFormatter

CELERY_LOGGERS: Final = (None, "celery", "celery.task", "celery.redirected", "multiprocessing")
"""The loggers to which Celery gives handlers."""


def log_as_json(node: str) -> None:
    """Make this worker and its pool processes log JSON.

    The caller calls this when Celery has set its logs up.
    """

    def about() -> Mapping[str, object]:
        return {"node": node, **running()}

    for name in CELERY_LOGGERS:
        for handler in logging.getLogger(name).handlers:
            handler.setFormatter(JsonFormatter(about))


def running() -> Mapping[str, object]:
    """Return the id, name and attempt of the task that runs here; {} outside of a task."""
    task = get_current_task()
    if task is None or not task.request.id:
        return {}
    place = getattr(task.request, "parsync", None)
    attempt = (
        {"attempt": place["attempt"]} if isinstance(place, Mapping) and "attempt" in place else {}
    )
    return {"task": task.request.id, "name": task.name, **attempt}

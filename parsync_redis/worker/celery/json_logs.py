"""Let a Celery worker log JSON: its own lines, those of its tasks, and those of parsync
(PARSYNC_LOG_FORMAT=json).
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
    """Have everything that this worker and its pool processes log be JSON; call it when Celery has
    set its logs up.
    """

    def about() -> Mapping[str, object]:
        return {"node": node, **running()}

    for name in CELERY_LOGGERS:
        for handler in logging.getLogger(name).handlers:
            handler.setFormatter(JsonFormatter(about))


def running() -> Mapping[str, object]:
    """Return the task that runs here and now, with its name and attempt; {} outside of one."""
    task = get_current_task()
    if task is None or not task.request.id:
        return {}
    place = getattr(task.request, "parsync", None)
    attempt = (
        {"attempt": place["attempt"]} if isinstance(place, Mapping) and "attempt" in place else {}
    )
    return {"task": task.request.id, "name": task.name, **attempt}

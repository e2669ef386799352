"""The tenant that a task gives to what it submits, in a header of its message.

Messages to a broker have the header too, so a placed task inherits the tenant through tasks that
parsync does not place, such as `celery.chord_unlock`.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from celery._state import get_current_worker_task
from celery.app.task import Context

TENANT_HEADER: Final = "parsync_tenant"
"""The header of a message with the tenant of its task; a task without a tenant has none."""

_thread = threading.local()


def inherited_tenant() -> str:
    """Return the tenant of the task that submits here, '' for none."""
    tenant = getattr(_thread, "tenant", None)
    if tenant is None:
        task = get_current_worker_task()
        tenant = task.request.get(TENANT_HEADER) if task is not None else ""
    return tenant if isinstance(tenant, str) else ""


@contextmanager
def submitting_for(task: Mapping[str, object] | Context) -> Iterator[None]:
    """Let what this block submits inherit the tenant of a task that does not run here.

    Celery publishes errbacks of such a task, which has ended. task: its headers or its request.
    """
    before = getattr(_thread, "tenant", None)
    _thread.tenant = task.get(TENANT_HEADER) or ""
    try:
        yield
    finally:
        _thread.tenant = before

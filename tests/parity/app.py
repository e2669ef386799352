"""The app of the parity suite: plain, or with `Parsync(app)` and every task placed by parsync.

A worker reads from PARITY_KIND which of the two it is; the test process makes both.
"""

import os
from collections.abc import Mapping
from typing import Any

from celery import Celery, Task

from parsync_redis import Parsync

from . import option_tasks, tasks  # noqa: F401 - they add their tasks to TASKS
from .task_kit import TASKS

PLAIN = "plain"
PARSYNC = "parsync"


def route_by_argument(
    name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **more: Any
) -> Any:
    """Route a task by its arguments: without them the router cannot say where the task goes."""
    return {"queue": kwargs["queue"]} if name == "parity.by_argument" else None


def build(kind: str, url: str) -> Celery:
    """Return the app; `app.t` has its tasks by name."""
    app = Celery("parity", broker=url, backend=url, set_as_current=False)
    app.conf.update(
        accept_content=["json", "pickle", "yaml", "msgpack"],
        broker_connection_retry_on_startup=True,
        # when the server is stopped at the end
        result_backend_transport_options={"retry_policy": {"max_retries": 1}},
        result_extended=True,
        task_send_sent_event=True,
        task_annotations={"parity.annotated": {"ignore_result": True}},
        task_routes=(route_by_argument, {"parity.routed": {"queue": "elsewhere"}}),
        worker_hijack_root_logger=True,
        worker_cancel_long_running_tasks_on_connection_loss=True,
    )
    if kind == PARSYNC:
        Parsync(app)
    made: dict[str, Task] = {}
    for function, options in TASKS:
        placed: Mapping[str, Any] = {"parsync": True} if kind == PARSYNC else {}
        name = function.__name__
        made[name] = app.task(name=f"parity.{name}", shared=False, **{**placed, **options})(
            function
        )
    app.t = type("Tasks", (), made)  # as class attributes: a task is no descriptor
    app.finalize()
    return app


if kind := os.environ.get("PARITY_KIND"):
    app = build(kind, os.environ["PARITY_URL"])
    app.set_default()

"""The demo's Celery app: one task, which parsync places. Any server that PARSYNC_URL names will do:

parsync dev -A examples.demo.app
parsync submit demo.measure '"json/decoder.py"' --wait
"""

import os
from typing import Any, Final

from celery import Celery

from parsync_redis.integration.app import Parsync

from .measure import Measure, read_module

RUNS_KEY: Final = "parsync-demo:runs"
"""The list to which each run of a task adds 'ID ATTEMPT PID', to find tasks that ran twice."""

MEASURE_TASK: Final = "demo.measure"


def make_app(url: str, cluster: str | None = None) -> Celery:
    """Make the app on the server at `url`; without `cluster`, PARSYNC_CLUSTER names it."""
    app = Celery("parsync_demo", broker=url, backend=url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        result_expires=3600,
        broker_connection_retry_on_startup=True,
    )
    Parsync(app, url, cluster)

    @app.task(name=MEASURE_TASK, bind=True, shared=False, parsync={})
    def measure(self: Any, module: str) -> Measure:
        """Measures one module of the standard library ('json/decoder.py')."""
        request = self.request
        attempt = (getattr(request, "parsync", None) or {}).get("attempt", "?")
        self.backend.client.rpush(RUNS_KEY, f"{request.id} {attempt} {os.getpid()}")
        return read_module(module)

    return app


app = make_app(os.environ.get("PARSYNC_URL", "redis://127.0.0.1:6379/0"))

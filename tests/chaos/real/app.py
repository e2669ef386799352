"""The Celery app of the chaos: its task leaves a line at its start, every 20 ms, and at its end.

    EVENT TASK ATTEMPT NODE SLOT PID SECONDS

with O_APPEND, to one file for all processes; seconds are monotonic.
"""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

from parsync_redis import Parsync

from .recorder import FOLDER, watch_this_process

TICK_S = 0.02
TICKS = "ticks.log"

BROKER = os.environ.get("CHAOS_BROKER") or os.environ.get("PARSYNC_URL", "redis://127.0.0.1:1/0")
app = Celery("chaos", broker=BROKER, backend=BROKER)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    result_expires=60,
    task_ignore_result=True,
    worker_send_task_events=False,
)
Parsync(app)
watch_this_process("worker")

_fd = -1
if FOLDER in os.environ:
    _fd = os.open(Path(os.environ[FOLDER], TICKS), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _note(event: str, place: dict[str, Any]) -> None:
    if _fd < 0:
        return  # nobody wants to know
    words = (
        event,
        place["id"],
        place["attempt"],
        place["node"],
        place["slot"],
        os.getpid(),
        f"{time.monotonic():.4f}",
    )
    os.write(_fd, (" ".join(map(str, words)) + "\n").encode())


@app.task(bind=True, parsync=True)
def work(self: Any, seconds: float) -> None:
    """Work for so many steps of 20 ms, also if it was stopped meanwhile."""
    place = self.request.parsync
    _note("start", place)
    for _ in range(round(seconds / TICK_S)):
        time.sleep(TICK_S)
        _note("tick", place)
    _note("end", place)

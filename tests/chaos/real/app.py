"""The Celery app of the chaos: its task leaves a line at its start, every 20 ms, and at its end, and
locks the units of its limits meanwhile (tests/kit/unit_locks.py).

    EVENT TASK ATTEMPT NODE SLOT PID SECONDS

with O_APPEND, to one file for all processes; seconds are monotonic.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from celery import Celery

from parsync_redis import Parsync
from tests.kit.unit_locks import locked_units

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
def work(
    self: Any, seconds: float, limits: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> None:
    """Work for so many steps of 20 ms, also if it was stopped meanwhile.

    limits: see `locked_units`.
    """
    place = self.request.parsync
    with locked_units(Path(os.environ.get(FOLDER, "")), limits, place):
        _note("start", place)
        for _ in range(round(seconds / TICK_S)):
            time.sleep(TICK_S)
            _note("tick", place)
        _note("end", place)

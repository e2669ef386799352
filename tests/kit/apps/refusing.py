"""The app of the tests with a server that refuses writes, and of those with a broker that is
killed.
"""

import os
import time
from pathlib import Path

from celery import Celery

from parsync_redis import Parsync

URL = os.environ.get("TEST_REFUSING_URL", "redis://127.0.0.1:1/0")
BROKER = os.environ.get("TEST_REFUSING_BROKER", URL)
FOLDER = Path(os.environ.get("TEST_REFUSING_FOLDER", "."))

app = Celery("refusing", broker=BROKER, backend=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    worker_hijack_root_logger=True,
    worker_soft_shutdown_timeout=5.0,
)
Parsync(app, url=URL)


@app.task(parsync=True, shared=False)
def gated(gate: str) -> str:
    """Run until the test opens the gate. Gates are files: the server takes no writes meanwhile."""
    (FOLDER / f"{gate}.begun").touch()
    while not (FOLDER / f"{gate}.open").exists():
        time.sleep(0.02)
    (FOLDER / f"{gate}.over").touch()
    return gate


@app.task(parsync=True, shared=False)
def add(a: int, b: int) -> int:
    return a + b


@app.task(shared=False)
def plain_gated(gate: str) -> str:
    """Run until the test opens the gate; the task goes to the broker."""
    ended: str = gated.run(gate)
    return ended


@app.task(shared=False)
def plain(a: int) -> int:
    """Do nothing; the task goes to the broker."""
    return 2 * a

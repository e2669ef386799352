"""The bench's Celery app: two equal no-op tasks, of which parsync places the second.

No task stores a result. A run leaves two numbers in the memory of its worker, which must have the
solo pool; the remote control command `bench_stamps` returns the numbers.
"""

import os
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from celery import Celery
from celery.worker.control import inspect_command

from parsync_redis.integration.app import Parsync

BENCH_QUEUE: Final = "bench"
"""The Celery queue of the plain task; workers consume it only while the bench lets them."""

PLAIN_TASK = "bench.plain"
PLACED_TASK = "bench.placed"
PLAIN_STAMP = "bench.plain_stamp"
PLACED_STAMP = "bench.placed_stamp"

url = os.environ.get("PARSYNC_URL", "redis://127.0.0.1:6379/0")


def make_app(url: str, cluster: str | None = None) -> Celery:
    """Make the app on the server at `url`."""
    app = Celery("parsync_bench", broker=url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=BENCH_QUEUE,
        broker_connection_retry_on_startup=True,
    )
    parsync = Parsync(app, url, cluster)

    def noop(ms: float = 0) -> None:
        if ms:
            time.sleep(ms / 1e3)
        _stamps.run()

    def stamp(key: str) -> None:
        now_s = time.time()
        parsync.client.store.client.rpush(key, repr(now_s))

    app.task(name=PLAIN_TASK, shared=False)(noop)
    app.task(name=PLACED_TASK, shared=False, parsync={})(noop)
    app.task(name=PLAIN_STAMP, shared=False)(stamp)
    app.task(name=PLACED_STAMP, shared=False, parsync={})(stamp)
    return app


@dataclass(slots=True)
class Stamps:
    """The runs of this process since the last reset: number, first and last time (Unix seconds)."""

    runs: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    def run(self) -> None:
        """Count a run."""
        self.last_s = time.time()
        if not self.runs:
            self.first_s = self.last_s
        self.runs += 1


_stamps = Stamps()


@inspect_command(default_timeout=5.0)  # type: ignore[untyped-decorator]
def bench_stamps(state: Any, reset: bool = False) -> dict[str, Any]:
    """Return the stamps of this worker; `reset` clears them after the answer."""
    global _stamps
    stamps = asdict(_stamps)
    if reset:
        _stamps = Stamps()
    return stamps


app = make_app(url)

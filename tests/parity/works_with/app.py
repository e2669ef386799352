"""A Celery app with a placed task for each library that is installed here."""

import os
import time

import redis
from celery import Celery, Task

from parsync_redis import Parsync
from tests.parity.works_with import is_installed

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
SENTRY = "sentry:events"
"""A list in Redis of what sentry-sdk has sent, as JSON."""

app = Celery("works_with", broker=BROKER, backend=BROKER)
app.conf.redbeat_redis_url = BROKER
app.conf.redbeat_lock_timeout = 10
app.conf.ONCE = {
    "backend": "celery_once.backends.Redis",
    "settings": {"url": BROKER, "default_timeout": 600},
}
Parsync(app)


@app.task(parsync=True)
def add(a: int, b: int) -> int:
    return a + b


@app.task(parsync=True)
def boom() -> None:
    raise ValueError("boom")


@app.task(parsync=True)
def sends_boom() -> str:
    return str(boom.delay().id)


@app.task(bind=True, parsync=True)
def noted(self: Task, key: str) -> None:
    """Put its id on a list."""
    with redis.Redis.from_url(BROKER) as client:
        client.rpush(key, str(self.request.id))


@app.task(queue="green")
def sends_add(a: int, b: int) -> str:
    """Send a plain task, for workers that cannot be nodes; return its id."""
    return str(add.delay(a, b).id)


def pass_gate(gate: str) -> None:
    """Wait until the test opens a gate, which is a key in Redis; at most three minutes."""
    deadline = time.monotonic() + 180
    with redis.Redis.from_url(BROKER) as client:
        while not client.exists(gate):
            assert time.monotonic() < deadline, "nobody opened the gate"
            time.sleep(0.02)


if is_installed("celery_once"):
    from celery_once import QueueOnce

    @app.task(base=QueueOnce, parsync=True)
    def once(gate: str) -> str:
        pass_gate(gate)
        return gate


if is_installed("celery_singleton"):
    from celery_singleton import Singleton

    @app.task(base=Singleton, parsync=True)
    def single(gate: str) -> str:
        pass_gate(gate)
        return gate


if is_installed("celery_batches"):
    from celery_batches import Batches, SimpleRequest

    @app.task(base=Batches, flush_every=2, flush_interval=1)
    def batched(requests: list[SimpleRequest]) -> None:
        for request in requests:
            app.backend.mark_as_done(request.id, len(requests), request=request)


if os.environ.get("WORKS_WITH_SENTRY") and is_installed("sentry_sdk"):
    import json

    import sentry_sdk
    from sentry_sdk.envelope import Envelope
    from sentry_sdk.transport import Transport

    class Kept(Transport):
        """Puts what sentry-sdk would send on a list."""

        def capture_envelope(self, envelope: Envelope) -> None:
            events = [envelope.get_event(), envelope.get_transaction_event()]
            with redis.Redis.from_url(BROKER) as client:
                for event in filter(None, events):
                    client.rpush(SENTRY, json.dumps(event, default=str))

    sentry_sdk.init(dsn="http://key@127.0.0.1/1", transport=Kept, traces_sample_rate=1.0)

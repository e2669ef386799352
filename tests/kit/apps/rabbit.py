"""The app of the tests with RabbitMQ: its broker is there, parsync's state and the results are in
Redis.
"""

import os
import time
from typing import Any

import redis
from celery import Celery, bootsteps
from celery.worker.control import control_command

from parsync_redis import Parsync

STATE = os.environ.get("TEST_STATE_URL", "redis://127.0.0.1:1/0")

app = Celery(
    "rabbit", broker=os.environ.get("TEST_BROKER_URL", "amqp://127.0.0.1:1//"), backend=STATE
)
app.conf.task_send_sent_event = True
app.conf.broker_connection_retry_on_startup = True
app.conf.broker_connection_timeout = 1
app.conf.broker_heartbeat = 2
app.conf.worker_hijack_root_logger = True
app.conf.worker_cancel_long_running_tasks_on_connection_loss = False
Parsync(app, url=STATE)


@app.task(parsync=True)
def add(a: int, b: int) -> int:
    return a + b


@app.task(parsync=True, time_limit=60)
def gated(gate: str) -> str:
    """Run until the test opens the gate, which is a key in Redis."""
    client: Any = redis.Redis.from_url(STATE)
    client.set(f"test:held:{gate}", os.getpid(), ex=300)
    while not client.exists(f"test:gate:{gate}"):
        time.sleep(0.02)
    return gate


@app.task
def plain(a: int) -> int:
    """Do nothing; the task goes to the broker."""
    return 2 * a


@app.task(parsync=True)
def publishes(a: int) -> str:
    """Publish an ordinary task from a placed one."""
    return str(plain.delay(a).id)


def wait_for(gate: str) -> None:
    """Wait until the test opens the gate, and say so."""
    client: Any = redis.Redis.from_url(STATE)
    client.set(f"test:held:{gate}", os.getpid(), ex=300)
    while not client.exists(f"test:gate:{gate}"):
        time.sleep(0.02)


class Blocking(bootsteps.StartStopStep):
    """A step of an app's own that takes its time when the worker starts."""

    requires = ("celery.worker.consumer:Tasks",)

    def start(self, consumer: Any) -> None:
        wait_for("start")


if os.environ.get("TEST_BLOCKS"):
    app.steps["consumer"].add(Blocking)


@control_command()
def stand_still(state: Any, gate: str = "loop") -> str:
    """Keep the event loop of the worker busy until the test opens the gate: a remote control
    command.
    """
    wait_for(gate)
    return "done"

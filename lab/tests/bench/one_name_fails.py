"""Measure how other tasks fare while one name fails everywhere: `python -m
lab.tests.bench.one_name_fails`.

One call in eight needs a service that goes away for a while. It prints the delays of the other
tasks, from submit to start, before and during that time. The app and the measurement are this
module.
"""

import argparse
import importlib
import os
import time
from typing import Any

import redis
from celery import Celery

from parsync_redis import Parsync
from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.wire.keys import Keys
from tests.kit.waiting import until

NAME = "lab.tests.bench.one_name_fails"
CLUSTER = "one-name-fails"
AWAY = "test:away"
DELAYS = "test:delays"
FAILED = "test:failed"
BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")

app = Celery("one_name_fails", broker=BROKER, backend=BROKER)
app.conf.task_ignore_result = True
Parsync(app, cluster=CLUSTER)
client: Any = redis.Redis.from_url(BROKER)


@app.task(name=f"{NAME}.other", parsync=True, shared=False)
def other(submitted_s: float, phase: str, seconds: float) -> None:
    """Notes how long it has waited."""
    client.rpush(f"{DELAYS}:{phase}", time.time() - submitted_s)
    time.sleep(seconds)


@app.task(name=f"{NAME}.call", parsync=True, shared=False)
def call(seconds: float) -> None:
    """Calls the service."""
    if client.exists(AWAY):
        client.incr(FAILED)
        raise ConnectionError("the service is away")
    time.sleep(seconds)


@app.task(
    name=f"{NAME}.retried",
    parsync=True,
    shared=False,
    autoretry_for=(ConnectionError,),
    max_retries=4,
    default_retry_delay=1,
)
def retried(seconds: float) -> None:
    """Calls the service, and asks for a retry if that is away."""
    call.run(seconds)


def submit(task: Any, phase: str, for_s: float, rate: float, seconds: float) -> list[float]:
    """Submits tasks at a rate, every eighth a call; returns how long the others waited, in ms,
    sorted.
    """
    key = f"{DELAYS}:{phase}"
    began_s = time.monotonic()
    others = 0
    client.delete(key)
    for number in range(int(for_s * rate)):
        if number % 8 == 7:
            task.delay(seconds)
        else:
            other.delay(time.time(), phase, seconds)
            others += 1
        time.sleep(max(0.0, began_s + (number + 1) / rate - time.monotonic()))
    until(lambda: client.llen(key) == others, "all other tasks have started")
    return sorted(1000 * float(text) for text in client.lrange(key, 0, -1))


def measure(asked: argparse.Namespace) -> None:
    """Measures with failures, and with failures that ask for a retry."""
    with LocalStack(CLUSTER, BROKER, env={"CELERY_BROKER_URL": BROKER}) as stack:
        stack.scheduler(1, lease_s=10.0)
        for number in range(asked.nodes):
            stack.worker(f"{NAME}:app", f"n{number + 1}", slots=4, pool="threads")
        until(
            lambda: client.hlen(Keys(CLUSTER).queue("shapes")) == asked.nodes, "the nodes are known"
        )
        for task in (call, retried):
            client.delete(AWAY, FAILED)
            for phase in ("well", "away"):
                if phase == "away":
                    client.set(AWAY, "1")
                delays_ms = submit(task, phase, asked.seconds, asked.rate, 0.25)
                p50_ms, p95_ms = (delays_ms[int(len(delays_ms) * part)] for part in (0.5, 0.95))
                failed = int(client.get(FAILED) or 0)
                print(
                    f"{task.name.rpartition('.')[2]:7} {phase}: {len(delays_ms)} other tasks "
                    f"waited {p50_ms:.0f} ms "
                    f"(p50) and {p95_ms:.0f} ms (p95); {failed} calls failed",
                    flush=True,
                )


def main() -> None:
    """Starts a server, and measures in the module as workers import it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=12.0, help="how long each phase takes")
    options.add_argument("--rate", type=float, default=24.0, help="tasks a second")
    options.add_argument("--nodes", type=int, default=3, help="nodes of four slots")
    asked = options.parse_args()
    with EmbeddedServer() as server:
        os.environ["CELERY_BROKER_URL"] = server.url
        importlib.import_module(NAME).measure(asked)


if __name__ == "__main__":
    main()

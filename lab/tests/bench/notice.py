"""Measure which tasks run twice when a node leaves with a notice: `python -m
lab.tests.bench.notice`.

Short and long tasks come at a steady rate to two nodes. One node gets a notice of 30 s, and is
killed at that time, as a spot machine is. It prints how many tasks ran twice, and how many of them
could have ended in time. The app and the measurement are this module.
"""

import argparse
import importlib
import os
import time
from typing import Any

from celery import Celery

from parsync_redis import Parsync, ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.node import Notice
from parsync_redis.model.status import TaskStatus
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.waiting import until

NAME = "lab.tests.bench.notice"
CLUSTER = "notice"
LEASE_S = 10.0
SHORT_S = 3.0
LONG_S = 40.0
NOTICE_S = 30
BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")

app = Celery("notice", broker=BROKER, backend=BROKER)
app.conf.task_ignore_result = True
Parsync(app, cluster=CLUSTER)


@app.task(name=f"{NAME}.short", parsync=True, shared=False)
def short() -> None:
    """Runs for a few seconds."""
    time.sleep(SHORT_S)


@app.task(name=f"{NAME}.long", parsync=True, shared=False)
def long() -> None:
    """Runs longer than the notice is."""
    time.sleep(LONG_S)


def could_end(task: TaskStatus, leaves_ms: int) -> bool:
    """Return whether the first run of a task would have ended before its node left."""
    length_s = LONG_S if task.name == long.name else SHORT_S
    begin_ms = task.history[0].since_ms
    return begin_ms + 1000 * length_s <= Notice(leaves_ms).end_ms(LEASE_S)


def submit(for_s: float, rate: float) -> list[str]:
    """Submit tasks at a rate, every eighth a long task; return their ids."""
    began_s = time.monotonic()
    ids = []
    for number in range(int(for_s * rate)):
        task: Any = long if number % 8 == 7 else short
        ids.append(task.delay().id)
        time.sleep(max(0.0, began_s + (number + 1) / rate - time.monotonic()))
    return ids


def measure(asked: argparse.Namespace) -> None:
    """Measure one notice, after the run times are learnt."""
    with (
        LocalStack(CLUSTER, BROKER, env={"CELERY_BROKER_URL": BROKER}) as stack,
        ParsyncClient.from_url(BROKER, CLUSTER) as client,
    ):
        stack.scheduler(1, lease_s=LEASE_S)
        for node in ("n1", "n2"):
            stack.worker(f"{NAME}:app", node, slots=asked.slots)
        until(lambda: len(client.nodes()) == 2, "both are up")
        known = [task.delay().id for task in (short, long) for _ in range(4)]
        until(lambda: all(client.status(id).state.final for id in known), "run times are learnt")
        ids = submit(NOTICE_S / 2, asked.rate)
        leaves_ms = client.drain("n1", leaves_at=f"{NOTICE_S}s").leaves_ms
        assert leaves_ms is not None
        noticed_s = time.monotonic()
        ids += submit(NOTICE_S - 1, asked.rate)
        time.sleep(max(0.0, noticed_s + NOTICE_S - time.monotonic()))
        stack.kill("n1")
        until(lambda: all(client.status(id).state.final for id in ids), "all tasks have ended")
        tasks = client.statuses(ids)
    repeated = [task for task in tasks if task.history]
    in_vain = [task for task in repeated if could_end(task, leaves_ms)]
    placed_since = [
        task
        for task in tasks
        if task.node == "n1" and (task.times["started"] or 0) > leaves_ms - 1000 * NOTICE_S
    ]
    print(
        f"{NOTICE_S} s notice: {len(tasks)} tasks, {len(repeated)} ran twice; {len(in_vain)} of "
        f"them could have ended; {sum(task.starts > 1 for task in tasks)} lost starts counted; "
        f"{len(placed_since)} began on the node after the notice and ended there; "
        f"{sum(task.state != 'succeeded' for task in tasks)} did not succeed",
        flush=True,
    )


def main() -> None:
    """Start a server, and measure in the module as workers import it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rate", type=float, default=1.0, help="tasks a second")
    options.add_argument("--slots", type=int, default=8, help="slots of each of the two nodes")
    asked = options.parse_args()
    with EmbeddedServer() as server:
        os.environ["CELERY_BROKER_URL"] = server.url
        importlib.import_module(NAME).measure(asked)


if __name__ == "__main__":
    main()

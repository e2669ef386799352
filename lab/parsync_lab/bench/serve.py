"""The bench of `parsync serve`: its cores, and how soon a page shows a change.

Nodes and waiting tasks are only records.
"""

import os
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from parsync_redis.cli.stack import Process
from parsync_redis.client import ParsyncClient
from parsync_redis.model.needs import Resources
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer

from .load import BENCH_TASK
from .onlookers import EVENTS_PATH, PATHS, Changes, Onlooker
from .placement import Say, facts_of
from .processes import cpu_of
from .standins import NodePlan, StandIn

SERVE_BENCH_CLUSTER: Final = "serve"
SERVE_BENCH_PARTITIONS: Final = 8
SERVE_START_S: Final = 60.0
CHANGING: Final = 3
"""The factor by which the phase of changes is longer than the other phases."""


def run_serve(
    nodes: int, tasks: int, viewers: int, seconds: float, stop: threading.Event, say: Say
) -> dict[str, Any]:
    """Measure the cores of `parsync serve` and its server, without and with viewers.

    With viewers the state stands still first. Then it changes, and each change is timed until all
    viewers show it.
    """
    with EmbeddedServer() as server:
        settings = Settings.load(
            url=server.url, cluster=SERVE_BENCH_CLUSTER, partitions=SERVE_BENCH_PARTITIONS
        )
        with ParsyncClient(settings) as client:
            join_cluster(client.store, settings, create=True)
            StandIn(
                client.store, [NodePlan(f"n{n}", _offer(n), 1.0) for n in range(nodes)], 1.0, 10.0
            ).register(SERVE_BENCH_PARTITIONS, BENCH_TASK)
            say(f"submits {tasks:,} tasks")
            client.submit_many(_tasks(tasks))
            kinds = len(client.demand())
        command = [
            sys.executable,
            "-m",
            "parsync_redis.cli",
            "serve",
            "--port",
            "0",
            "--url",
            server.url,
        ]
        process = Process(
            "serve", [*command, "--cluster", SERVE_BENCH_CLUSTER], os.environ, None, None
        )
        try:
            url = _url(process)

            def cores(during: Callable[[], object]) -> dict[str, float]:
                began_s = time.monotonic()
                pids = (process.popen.pid, server.process.pid)
                before = [*map(cpu_of, pids)]
                messages_before = sum(onlooker.messages for onlooker in onlookers)
                during()
                took_s = time.monotonic() - began_s
                after = [*map(cpu_of, pids)]
                used = [
                    round((after_s - before_s) / took_s, 4)
                    for after_s, before_s in zip(after, before, strict=True)
                ]
                messages = round(
                    (sum(onlooker.messages for onlooker in onlookers) - messages_before) / took_s, 1
                )
                return {"serve": used[0], "server": used[1], "messages_per_s": messages}

            onlookers: list[Onlooker] = []
            say(f"measures for {seconds:g} s without viewers")
            stop.wait(2)
            idle = cores(lambda: stop.wait(seconds))
            onlookers += [Onlooker(url, PATHS[number % len(PATHS)]) for number in range(viewers)]
            say(f"measures for {seconds:g} s with {viewers} viewers")
            stop.wait(2)
            viewed = cores(lambda: stop.wait(seconds))
            say(f"changes the state for {CHANGING * seconds:g} s")
            fresh: dict[str, Any] = {}
            events = Onlooker(url, EVENTS_PATH)
            with ParsyncClient(settings) as client:
                changes = Changes(client, [*onlookers, events], stop)
                changing = cores(lambda: fresh.update(changes.timed(CHANGING * seconds)))
            took_s = re.findall(
                r"^parsync_survey_read_seconds (\S+)", _get(f"{url}/metrics").decode(), re.MULTILINE
            )
        finally:
            process.send(15)
            process.end(time.monotonic() + 10)
        facts = facts_of(server)
    parameters = {
        "nodes": nodes,
        "tasks": tasks,
        "kinds": kinds,
        "viewers": viewers,
        "seconds": seconds,
    }
    phases = {"idle": idle, "viewed": viewed, "changing": changing, "fresh": fresh}
    return {**parameters, **phases, "read_s": float(took_s[0]), "facts": facts}


def _offer(number: int) -> Resources:
    labels = {"zone": "abc"[number % 3], "gpu_model": ("a100", "t4")[number % 2]}
    return Resources.of(4, {"gpu": 1 + number % 4, "mem": "64GiB"}, labels)


def _tasks(count: int) -> Iterator[Mapping[str, Any]]:
    """Yield tasks of 100 kinds, with three priorities in each."""
    for number in range(count):
        resources = {"gpu": 1 + number % 4, "mem": f"{1 + number % 25}GiB"}
        yield {"name": BENCH_TASK, "priority": number % 3, "resources": resources}


def _url(process: Process) -> str:
    deadline = time.monotonic() + SERVE_START_S
    while time.monotonic() < deadline:
        urls = [
            match[1]
            for line in list(process.lines)
            if (match := re.search(r"is shown at (http://\S+)", line))
        ]
        if urls and _get(f"{urls[0]}/healthz", b"not yet") != b"not yet":
            return urls[0]
        time.sleep(0.2)
    raise TimeoutError(
        f"parsync serve has not begun after {SERVE_START_S:g} s: {' / '.join(process.lines)}"
    )


def _get(url: str, instead: bytes = b"") -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  our own server
            return bytes(answer.read())
    except OSError:
        if not instead:
            raise
        return instead

"""Measure the CPU time of `parsync serve` and of the server. Nodes and waiting tasks are only records."""

import os
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...cli.stack import Process
from ...client import ParsyncClient
from ...model.needs import Resources
from ...settings import Settings
from ...store.cluster import join_cluster
from ...store.embedded import EmbeddedServer
from .load import TASK
from .placement import Say, facts_of
from .processes import cpu_of
from .standins import NodePlan, StandIn

CLUSTER: Final = "serve"
PARTITIONS: Final = 8
START_S: Final = 60.0
PATHS: Final = ("/", "/view/nodes", "/view/schedulers")
"""Pages that viewers ask for, one after the other; each asks once a second, as the script of the pages does."""


def run_serve(nodes: int, tasks: int, viewers: int, seconds: float, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Fill a cluster, serve it without and with viewers, and return the cores that both processes take."""
    with EmbeddedServer() as server:
        settings = Settings.load(url=server.url, cluster=CLUSTER, partitions=PARTITIONS)
        with ParsyncClient(settings) as client:
            join_cluster(client.store, settings, create=True)
            StandIn(client.store, [NodePlan(f"n{n}", _offer(n), 1.0) for n in range(nodes)], 1.0, 10.0).register(
                PARTITIONS, TASK
            )
            say(f"submits {tasks:,} tasks")
            client.submit_many(_tasks(tasks))
            kinds = len(client.demand())
        command = [sys.executable, "-m", "parsync_redis.cli", "serve", "--port", "0", "--url", server.url]
        process = Process("serve", [*command, "--cluster", CLUSTER], os.environ, None, None)
        try:
            url = _url(process)
            cores = {}
            for count in (0, viewers):
                say(f"measures for {seconds:g} s with {count} viewers")
                cores[count] = _measure(url, process.popen.pid, server.process.pid, count, seconds, stop)
            took_s = re.findall(r"^parsync_survey_read_seconds (\S+)", _get(f"{url}/metrics").decode(), re.MULTILINE)
        finally:
            process.send(15)
            process.end(time.monotonic() + 10)
        facts = facts_of(server)
    asked = {"nodes": nodes, "tasks": tasks, "kinds": kinds, "viewers": viewers, "seconds": seconds}
    return {**asked, "idle": cores[0], "viewed": cores[viewers], "read_s": float(took_s[0]), "facts": facts}


def _offer(number: int) -> Resources:
    labels = {"zone": "abc"[number % 3], "gpu_model": ("a100", "t4")[number % 2]}
    return Resources.of(4, {"gpu": 1 + number % 4, "mem": "64GiB"}, labels)


def _tasks(count: int) -> Iterator[Mapping[str, Any]]:
    """Yield tasks of 100 kinds, three priorities in each."""
    for number in range(count):
        resources = {"gpu": 1 + number % 4, "mem": f"{1 + number % 25}GiB"}
        yield {"name": TASK, "priority": number % 3, "resources": resources}


def _url(process: Process) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        urls = [match[1] for line in list(process.lines) if (match := re.search(r"is shown at (http://\S+)", line))]
        if urls and _get(f"{urls[0]}/healthz", b"not yet") != b"not yet":
            return urls[0]
        time.sleep(0.2)
    raise TimeoutError(f"parsync serve has not begun after {START_S:g} s: {' / '.join(process.lines)}")


def _get(url: str, instead: bytes = b"") -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  our own server
            return bytes(answer.read())
    except OSError:
        if not instead:
            raise
        return instead


def _measure(
    url: str, serve: int, server: int, viewers: int, seconds: float, stop: threading.Event
) -> dict[str, float]:
    """Return the cores of both processes, and the requests a second."""
    over, counts = threading.Event(), [0] * viewers

    def view(number: int) -> None:
        while not over.is_set():
            _get(f"{url}{PATHS[(number + counts[number]) % len(PATHS)]}")
            counts[number] += 1
            over.wait(1.0)

    threads = [threading.Thread(target=view, args=(number,), daemon=True) for number in range(viewers)]
    for thread in threads:
        thread.start()
    stop.wait(2)
    began_s, before, asked = time.monotonic(), (cpu_of(serve), cpu_of(server)), sum(counts)
    stop.wait(seconds)
    took_s, after, answered = time.monotonic() - began_s, (cpu_of(serve), cpu_of(server)), sum(counts)
    over.set()
    for thread in threads:
        thread.join(timeout=30)
    cores = [round((now - then) / took_s, 4) for now, then in zip(after, before, strict=True)]
    return {"serve": cores[0], "server": cores[1], "requests_per_s": round((answered - asked) / took_s, 1)}

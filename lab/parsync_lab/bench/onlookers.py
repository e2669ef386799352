"""Viewers of `parsync serve` who follow pages or events, and the time until they show a change."""

import random
import threading
import time
import urllib.request
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from parsync_redis.client import ParsyncClient

from .figures import quantiles
from .load import BENCH_TASK

OVERVIEW_PATH = "/"
NODES_PATH = "/view/nodes"
EVENTS_PATH = "/events"
PATHS: Final = (OVERVIEW_PATH, NODES_PATH, "/view/schedulers")
"""The pages that viewers follow: viewer k follows page k modulo their number."""

DRAINED_NODE: Final = "n0"
"""The node to drain and undrain; it is on the first page of nodes."""

CHANGE_LIMIT_S: Final = 60.0
"""The time within which viewers must show a change."""


class Onlooker(threading.Thread):
    """A viewer who follows a path, as a browser does.

    messages: the number of received messages.
    """

    def __init__(self, url: str, path: str) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.messages = 0
        accept = {"Accept": "text/event-stream"}
        self._request = urllib.request.Request(f"{url}{path}", headers=accept)  # noqa: S310 # our own
        self._wanted = b""
        self._found = threading.Event()
        self.found_s = 0.0
        self.start()

    def run(self) -> None:
        """Read messages until the service ends."""
        with urllib.request.urlopen(self._request, timeout=CHANGE_LIMIT_S) as answer:  # noqa: S310  our own server
            for line in answer:
                self.messages += line == b"\n"
                if self._wanted and self._wanted in line:
                    self._wanted = b""
                    self.found_s = time.monotonic()
                    self._found.set()

    def want(self, text: str) -> None:
        """Begin to look for a text in new messages."""
        self._found.clear()
        self._wanted = text.encode()

    def wait(self) -> float:
        """Wait for the text; return when it came, in monotonic seconds."""
        if not self._found.wait(CHANGE_LIMIT_S):
            raise TimeoutError(f"{self.path} has not shown a change after {CHANGE_LIMIT_S:g} s")
        return self.found_s


class Changes:
    """Changes the state (submits a task, drains a node, ...) and times when viewers show it."""

    def __init__(
        self, client: ParsyncClient, onlookers: Sequence[Onlooker], stop: threading.Event
    ) -> None:
        self._client = client
        self._onlookers = onlookers
        self._stop = stop
        self._waiting = sum(kind.waiting for kind in client.demand())

    def timed(self, seconds: float) -> dict[str, Any]:
        """Change the state for `seconds`; return how late viewers of pages and events were (ms)."""
        late: dict[str, list[float]] = {"pages": [], "events": []}
        dice = random.Random(1)
        until_s = time.monotonic() + seconds
        count = 0
        while time.monotonic() < until_s and not self._stop.wait(dice.uniform(0.1, 1.1)):
            self._change(count, late)
            count += 1
        return {"changes": count, **{name: spread(times) for name, times in late.items()}}

    def _change(self, number: int, late: dict[str, list[float]]) -> None:
        submits = number % 2 == 0
        reason = f"change {number};"
        text = f">{self._waiting + 1:,}<" if submits else reason
        paths = (OVERVIEW_PATH,) if submits else (NODES_PATH, EVENTS_PATH)
        onlookers = [onlooker for onlooker in self._onlookers if onlooker.path in paths]
        for onlooker in onlookers:
            onlooker.want(text)
        if not submits and number > 1:
            self._client.undrain(DRAINED_NODE)
        began_s = time.monotonic()
        if submits:
            self._client.submit(BENCH_TASK)
            self._waiting += 1
        else:
            self._client.drain(DRAINED_NODE, reason=reason)
        for onlooker in onlookers:
            late["events" if onlooker.path == EVENTS_PATH else "pages"].append(
                (onlooker.wait() - began_s) * 1000
            )


def spread(times: Sequence[float]) -> dict[str, float]:
    """Return the median, 99th percentile and maximum of times."""
    percentiles = quantiles(np.array(times))
    return {
        "p50_ms": percentiles["p50"],
        "p99_ms": percentiles["p99"],
        "max_ms": round(max(times, default=0.0), 2),
    }

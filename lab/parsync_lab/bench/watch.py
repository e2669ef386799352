"""The watcher of a bench run: usage, the schedulers' own figures, and the end of all tasks."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer

from .load import SubmitNumbers
from .ours import TaskTimes
from .processes import Processes, cpu_of

DRAIN_STALL_S: Final = 60.0
"""The time without a final task after which the drain is given up."""

Say = Callable[[str], None]


class Contender(Protocol):
    """A contender of the bench: a system that places tasks."""

    def start(self, say: Say) -> None:
        """Start all processes; return when they are ready."""

    def connect(self) -> Callable[[], SubmitNumbers]:
        """Return a function that a generator calls to get its submit function."""

    def stats(self) -> list[dict[str, str]]:
        """Return the schedulers' own figures; [] without schedulers."""

    def open(self) -> int:
        """Count the submitted tasks that are not final."""

    def end(self, numbers: Any) -> tuple[TaskTimes, dict[str, Any]]:
        """Stop everything; return the tasks' times and counts."""


class RunWatch:
    """Watches a run from outside: schedulers' figures once a second, usage at two moments."""

    def __init__(
        self, servers: Sequence[EmbeddedServer], processes: Processes, contender: Contender
    ) -> None:
        self.servers = servers
        self.processes = processes
        self.contender = contender
        self._clients: list[Any] = [connect(server.url, timeout_s=30) for server in servers]
        self._ages: list[tuple[float, float]] = []

    def server_ms(self, at_s: float) -> float:
        """Return a monotonic time as server time (ms), by the shortest of some round trips."""
        best = float("inf")
        server_ms = 0.0
        for _ in range(20):
            began_s = time.monotonic()
            seconds, micros = self._clients[0].time()
            ended_s = time.monotonic()
            if ended_s - began_s < best:
                best = ended_s - began_s
                server_ms = seconds * 1e3 + micros / 1e3 + (at_s - (began_s + ended_s) / 2) * 1e3
        return server_ms

    def until(self, at_s: float, say: Say) -> None:
        """Wait until `at_s`; report the progress."""
        while (rest_s := at_s - time.monotonic()) > 0:
            self.processes.pause(min(1.0, rest_s))
            rows = [row for row in self.contender.stats() if row]
            self._ages += [
                (float(row["view_age_ms"]), float(row["view_age_max_ms"]))
                for row in rows
                if "view_age_ms" in row
            ]
            say(
                f"{max(0.0, at_s - time.monotonic()):.0f} s to go, "
                f"{self.contender.open():,} tasks open"
            )

    def drain(self, say: Say) -> None:
        """Wait until every submitted task is final."""
        open_tasks = self.contender.open()
        moved_s = time.monotonic()
        while open_tasks:
            say(f"draining, {open_tasks:,} tasks open")
            self.processes.pause(0.25)
            still_open = self.contender.open()
            if still_open < open_tasks:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > DRAIN_STALL_S:
                raise TimeoutError(
                    f"{still_open} tasks did not end within {DRAIN_STALL_S:g} s after the load"
                )
            open_tasks = still_open

    def look(self) -> dict[str, Any]:
        """Return the usage of servers and processes so far."""
        infos = [client.info("everything") for client in self._clients]
        rows = self.contender.stats()
        calls = [
            info[name]
            for info in infos
            for name in ("cmdstat_evalsha", "cmdstat_eval")
            if name in info
        ]
        used_s = [cpu_of(server.process.pid) for server in self.servers]
        return {
            "at_s": time.monotonic(),
            "redis_s": sum(used_s),
            "servers_s": used_s,
            "commands": sum(info["total_commands_processed"] for info in infos),
            "scripts": sum(row["calls"] for row in calls),
            "script_us": sum(row["usec"] for row in calls),
            "bytes": sum(
                info["total_net_input_bytes"] + info["total_net_output_bytes"] for info in infos
            ),
            "memory": sum(info["used_memory"] for info in infos),
            "cpu": self.processes.cpu_s(),
            **{
                name: sum(int(row.get(name, 0)) for row in rows) for name in ("claims", "conflicts")
            },
        }

    def staleness(self) -> dict[str, float]:
        """Return the ages of views (ms): mean over partitions, schedulers and time, and maximum."""
        means = [mean for mean, _ in self._ages]
        oldest = [most for _, most in self._ages]
        if not means:
            return {}
        return {
            "mean": round(float(np.mean(means)), 1),
            "least": min(means),
            "most": max(means),
            "oldest": max(oldest),
        }

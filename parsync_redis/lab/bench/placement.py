"""The placement bench: real schedulers, open-loop load, stand-ins for agents, one server; measured, then audited."""

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final, Protocol

import numpy as np

from ...demo.driver import Stopped
from ...placement.strategy import Floats
from ...store.connection import connect
from ...store.embedded import EmbeddedServer
from .baseline import measure_baseline
from .central import Central
from .figures import Pace, grows, quantiles, rate_within, ratio
from .load import Sent, Submit, generator
from .ours import Ours, TaskTimes
from .parameters import BenchParameters, System
from .processes import Processes, cpu_of
from .queues import Queues

STALL_S: Final = 60.0
"""How long no task may become final after the load before the bench is given up."""

Say = Callable[[str], None]


class Contender(Protocol):
    """A system in the bench."""

    def start(self, say: Say) -> None:
        """Start all processes; return when they are ready."""

    def connect(self) -> Callable[[], Submit]:
        """Return a function that a generator calls to get its submit function."""

    def stats(self) -> list[dict[str, str]]:
        """Return the schedulers' own figures; [] without schedulers."""

    def open(self) -> int:
        """Count the submitted tasks that are not final."""

    def end(self, numbers: Any) -> tuple[TaskTimes, dict[str, Any]]:
        """Stop everything; return the tasks' times and counts."""


def contender(url: str, asked: BenchParameters, processes: Processes) -> Contender:
    """Make the system that `asked` names."""
    rivals: dict[str, Callable[[str, BenchParameters, Processes], Contender]]
    rivals = {System.CENTRAL: Central, System.QUEUES: Queues}
    return rivals.get(asked.system, Ours)(url, asked, processes)


def run_placement(asked: BenchParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Run one load; return the figures of docs/performance.md. Raise InvalidInput, Stopped or TimeoutError."""
    asked.check()
    load = round(os.getloadavg()[0], 1)
    with EmbeddedServer(aof=asked.aof) as server, Processes(stop) as processes:
        say("baseline")
        baseline = measure_baseline(server.url, server.process.pid)
        one = contender(server.url, asked, processes)
        one.start(say)
        watch = _Watch(server, processes, one)
        begin_s = time.monotonic() + 1.0
        paces = [Pace(asked.rate, asked.seconds, which, asked.generators) for which in range(asked.generators)]
        for pace in paces:
            processes.start("generators", generator(one.connect(), pace, begin_s))
        begin_ms = watch.server_ms(begin_s)
        warm_s = min(asked.duration_s, max(asked.seconds / 2, asked.seconds - 15))
        watch.until(begin_s + warm_s, say)
        before = watch.look()
        watch.until(begin_s + asked.seconds, say)
        after = watch.look()
        sent: list[Sent] = processes.finish("generators")
        watch.drain(say)
        say("audit")
        numbers = sorted(
            pace.number(own) for pace, made in zip(paces, sent, strict=True) for own in range(made.submitted)
        )
        times, counts = one.end(numbers)
        due_ms = begin_ms + np.array(numbers, dtype=float) / asked.rate * 1e3
        window = (begin_ms + warm_s * 1e3, begin_ms + asked.seconds * 1e3)
        return {
            **asdict(asked),
            "load": round(asked.load, 4),
            **_rates(times, due_ms, window, asked),
            "late_s": round(max(one.late_s for one in sent), 3),
            "conflicts_per_claim": ratio(after["conflicts"] - before["conflicts"], after["claims"] - before["claims"]),
            "baseline_claims_per_s": baseline[0],
            "baseline_claims_per_cpu_s": baseline[1],
            **_costs(before, after, times, window),
            "staleness_ms": watch.staleness(),
            "counts": counts,
            "audit": times.audit,
            "facts": {**facts_of(server), "load_average": load},
        }


def _rates(times: TaskTimes, due_ms: Floats, window: tuple[float, float], asked: BenchParameters) -> dict[str, Any]:
    inside = (due_ms >= window[0]) & (due_ms < window[1])
    delays = (times.placed_ms - due_ms)[inside]
    delays = np.maximum(delays[~np.isnan(delays)], 0.0)
    placed = rate_within(times.placed_ms, *window)
    all_delays = (times.placed_ms - due_ms)[due_ms < window[1]]
    growing = grows(
        all_delays[~np.isnan(all_delays)]
    )  # of the whole run: what piled up before the window is growth too
    return {
        "offered_per_s": asked.rate,
        "submitted_per_s": None if np.isnan(times.submitted_ms).all() else rate_within(times.submitted_ms, *window),
        "placed_per_s": placed,
        "started_per_s": rate_within(times.started_ms, *window),
        "finished_per_s": rate_within(times.finished_ms, *window),
        "tasks": len(due_ms),
        "delay_ms": quantiles(delays),
        "delay_grows": growing,
        "sustained": placed >= 0.98 * asked.rate and not growing,
    }


def _costs(
    before: dict[str, Any], after: dict[str, Any], times: TaskTimes, window: tuple[float, float]
) -> dict[str, Any]:
    seconds = after["at_s"] - before["at_s"]
    placed = rate_within(times.placed_ms, *window) * seconds

    def used(name: str) -> float:
        return float(after[name] - before[name])

    kinds = {kind: round((after["cpu"][kind] - before["cpu"].get(kind, 0.0)) / seconds, 3) for kind in after["cpu"]}
    return {
        "redis_cpu_share": round(used("redis_s") / seconds, 3),
        "redis_us_per_placement": ratio(used("redis_s") * 1e6, placed, 1),
        "commands_per_placement": ratio(used("commands"), placed, 1),
        "scripts_per_placement": ratio(used("scripts"), placed, 2),
        "script_us_per_placement": ratio(used("script_us"), placed, 1),
        "bytes_per_placement": ratio(used("bytes"), placed, 0),
        "memory_mb": round(after["memory"] / 2**20, 1),
        "cpu_share": {**kinds, "redis": round(used("redis_s") / seconds, 3)},
        "us_per_placement": {kind: ratio(share * seconds * 1e6, placed, 1) for kind, share in kinds.items()},
    }


def facts_of(server: EmbeddedServer) -> dict[str, Any]:
    """Describe the machine and the versions."""
    with connect(server.url) as client:
        info: Any = {**client.info("server"), **client.info("memory")}
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "server": f"{name} {info.get('valkey_version' if name == 'Valkey' else 'redis_version')}",
        "allocator": "jemalloc, preloaded" if server.preloaded else info["mem_allocator"],
        **{package: version(package) for package in ("redis", "hiredis", "numpy", "celery")},
    }


class _Watch:
    """Looks at a run from outside: once a second what schedulers say of themselves, at two moments what was used."""

    def __init__(self, server: EmbeddedServer, processes: Processes, one: Contender) -> None:
        self.server, self.processes, self.one = server, processes, one
        self.client: Any = connect(server.url, timeout_s=30)
        self._ages: list[tuple[float, float]] = []

    def server_ms(self, at_s: float) -> float:
        """Convert a monotonic time to the server's time, by the shortest of some round trips."""
        best, found = float("inf"), 0.0
        for _ in range(20):
            began_s = time.monotonic()
            seconds, micros = self.client.time()
            ended_s = time.monotonic()
            if ended_s - began_s < best:
                best = ended_s - began_s
                found = seconds * 1e3 + micros / 1e3 + (at_s - (began_s + ended_s) / 2) * 1e3
        return found

    def until(self, at_s: float, say: Say) -> None:
        """Wait until `at_s`; report the progress."""
        while (rest_s := at_s - time.monotonic()) > 0:
            self.processes.pause(min(1.0, rest_s))
            rows = [row for row in self.one.stats() if row]
            self._ages += [
                (float(row["view_age_ms"]), float(row["view_age_max_ms"])) for row in rows if "view_age_ms" in row
            ]
            say(f"{max(0.0, at_s - time.monotonic()):.0f} s to go, {self.one.open():,} tasks open")

    def drain(self, say: Say) -> None:
        """Wait until every submitted task is final."""
        left, moved_s = self.one.open(), time.monotonic()
        while left:
            say(f"draining, {left:,} tasks open")
            self.processes.pause(0.25)
            now = self.one.open()
            if now < left:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > STALL_S:
                raise TimeoutError(f"{now} tasks did not end within {STALL_S:g} s after the load")
            left = now

    def look(self) -> dict[str, Any]:
        """Return the usage so far."""
        info = self.client.info("everything")
        rows = self.one.stats()
        calls = [info[name] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in info]
        return {
            "at_s": time.monotonic(),
            "redis_s": cpu_of(self.server.process.pid),
            "commands": info["total_commands_processed"],
            "scripts": sum(row["calls"] for row in calls),
            "script_us": sum(row["usec"] for row in calls),
            "bytes": info["total_net_input_bytes"] + info["total_net_output_bytes"],
            "memory": info["used_memory"],
            "cpu": self.processes.cpu_s(),
            **{name: sum(int(row.get(name, 0)) for row in rows) for name in ("claims", "conflicts")},
        }

    def staleness(self) -> dict[str, float]:
        """Return the age of views in ms: the mean over partitions, schedulers and time, and the maximum."""
        means, oldest = [mean for mean, _ in self._ages], [most for _, most in self._ages]
        if not means:
            return {}
        return {"mean": round(float(np.mean(means)), 1), "least": min(means), "most": max(means), "oldest": max(oldest)}


__all__ = ["BenchParameters", "Stopped", "run_placement"]

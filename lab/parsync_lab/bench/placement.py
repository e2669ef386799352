"""The placement bench: real schedulers, an open-loop load, stand-ins for agents, and an audit."""

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from parsync_lab import Stopped
from parsync_redis.placement.strategy import Floats
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer

from .baseline import measure_baseline
from .central import Central
from .figures import Pace, grows, quantiles, rate_within, ratio
from .load import Sent, generator
from .ours import ParsyncContender, TaskTimes
from .parameters import BenchParameters, System
from .processes import Processes
from .queues import Queues
from .servers import start_servers
from .watch import Contender, RunWatch, Say


def contender(url: str, parameters: BenchParameters, processes: Processes) -> Contender:
    """Return the contender that `parameters` name."""
    rivals: dict[str, Callable[[str, BenchParameters, Processes], Contender]]
    rivals = {System.CENTRAL: Central, System.QUEUES: Queues}
    return rivals.get(parameters.system, ParsyncContender)(url, parameters, processes)


def run_placement(parameters: BenchParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Run one load; return the figures of docs/performance.md.

    Raise InvalidInput, Stopped or TimeoutError.
    """
    parameters.check()
    load = round(os.getloadavg()[0], 1)
    with (
        start_servers(parameters.primaries, aof=parameters.aof) as servers,
        Processes(stop) as processes,
    ):
        say("baseline")
        server = servers.all[0]
        baseline = measure_baseline(server.url, server.process.pid)
        system = contender(servers.url, parameters, processes)
        system.start(say)
        watch = RunWatch(servers.all, processes, system)
        begin_s = time.monotonic() + 1.0
        paces = [
            Pace(parameters.rate, parameters.seconds, generator_number, parameters.generators)
            for generator_number in range(parameters.generators)
        ]
        for pace in paces:
            processes.start("generators", generator(system.connect(), pace, begin_s))
        begin_ms = watch.server_ms(begin_s)
        warm_s = min(parameters.duration_s, max(parameters.seconds / 2, parameters.seconds - 15))
        watch.until(begin_s + warm_s, say)
        before = watch.look()
        watch.until(begin_s + parameters.seconds, say)
        after = watch.look()
        sent: list[Sent] = processes.finish("generators")
        watch.drain(say)
        say("audit")
        numbers = sorted(
            pace.number(position)
            for pace, sent_by_one in zip(paces, sent, strict=True)
            for position in range(sent_by_one.submitted)
        )
        times, counts = system.end(numbers)
        due_ms = begin_ms + np.array(numbers, dtype=float) / parameters.rate * 1e3
        window = (begin_ms + warm_s * 1e3, begin_ms + parameters.seconds * 1e3)
        return {
            **asdict(parameters),
            "load": round(parameters.load, 4),
            **_rates(times, due_ms, window, parameters),
            "late_s": round(max(generator.late_s for generator in sent), 3),
            "conflicts_per_claim": ratio(
                after["conflicts"] - before["conflicts"], after["claims"] - before["claims"]
            ),
            "baseline_claims_per_s": baseline[0],
            "baseline_claims_per_cpu_s": baseline[1],
            **_costs(before, after, times, window),
            "staleness_ms": watch.staleness(),
            "counts": counts,
            "audit": times.audit,
            "facts": {**facts_of(server), "load_average": load},
        }


def _rates(
    times: TaskTimes, due_ms: Floats, window: tuple[float, float], parameters: BenchParameters
) -> dict[str, Any]:
    inside = (due_ms >= window[0]) & (due_ms < window[1])
    delays = (times.placed_ms - due_ms)[inside]
    delays = np.maximum(delays[~np.isnan(delays)], 0.0)
    placed = rate_within(times.placed_ms, *window)
    all_delays = (times.placed_ms - due_ms)[due_ms < window[1]]
    # of the whole run: delays that grew before the window count as well
    growing = grows(all_delays[~np.isnan(all_delays)])
    return {
        "offered_per_s": parameters.rate,
        "submitted_per_s": None
        if np.isnan(times.submitted_ms).all()
        else rate_within(times.submitted_ms, *window),
        "placed_per_s": placed,
        "started_per_s": rate_within(times.started_ms, *window),
        "finished_per_s": rate_within(times.finished_ms, *window),
        "tasks": len(due_ms),
        "delay_ms": quantiles(delays),
        "delay_grows": growing,
        "sustained": placed >= 0.98 * parameters.rate and not growing,
    }


def _costs(
    before: dict[str, Any], after: dict[str, Any], times: TaskTimes, window: tuple[float, float]
) -> dict[str, Any]:
    seconds = after["at_s"] - before["at_s"]
    placed = rate_within(times.placed_ms, *window) * seconds

    def used(name: str) -> float:
        return float(after[name] - before[name])

    each_s = [
        end_s - begin_s
        for begin_s, end_s in zip(before["servers_s"], after["servers_s"], strict=True)
    ]
    kinds = {
        kind: round((after["cpu"][kind] - before["cpu"].get(kind, 0.0)) / seconds, 3)
        for kind in after["cpu"]
    }
    return {
        "redis_cpu_share": round(used("redis_s") / seconds, 3),
        "redis_us_per_placement": ratio(used("redis_s") * 1e6, placed, 1),
        "primaries_us_per_placement": [ratio(used_s * 1e6, placed, 1) for used_s in each_s],
        "commands_per_placement": ratio(used("commands"), placed, 1),
        "scripts_per_placement": ratio(used("scripts"), placed, 2),
        "script_us_per_placement": ratio(used("script_us"), placed, 1),
        "bytes_per_placement": ratio(used("bytes"), placed, 0),
        "memory_mb": round(after["memory"] / 2**20, 1),
        "cpu_share": {**kinds, "redis": round(used("redis_s") / seconds, 3)},
        "us_per_placement": {
            kind: ratio(share * seconds * 1e6, placed, 1) for kind, share in kinds.items()
        },
    }


def facts_of(server: EmbeddedServer) -> dict[str, Any]:
    """Describe the machine and the versions."""
    with connect(server.url) as client:
        info: Any = {**client.info("server"), **client.info("memory")}
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    return {
        "machine": (
            f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
            f"{platform.release()}"
        ),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "server": f"{name} {info.get('valkey_version' if name == 'Valkey' else 'redis_version')}",
        "allocator": "jemalloc, preloaded" if server.preloaded else info["mem_allocator"],
        **{package: version(package) for package in ("redis", "hiredis", "numpy", "celery")},
    }


__all__ = ["BenchParameters", "Say", "Stopped", "run_placement"]

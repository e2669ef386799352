"""Plain Celery and parsync on the same workers: rates of submits and runs, and latency."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from threading import Event
from typing import Any, Final

import numpy as np

from parsync_lab import Stopped
from parsync_redis.client import ParsyncClient
from parsync_redis.placement.strategy import Floats

from . import app as bench

ROUND_POLL_S: Final = 0.02
ROUND_LIMIT_S: Final = 120.0
"""The time without a run after which a round is given up."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round of one system: tasks per second that were submitted, and that were run."""

    system: str
    slots: int
    tasks: int
    submit_s: float
    drain_s: float
    ms: float = 0.0

    @property
    def submit_rate(self) -> float:
        """Return the rate of submits, in tasks/s."""
        return self.tasks / self.submit_s

    @property
    def drain_rate(self) -> float:
        """Return the rate of runs, in tasks/s."""
        return (self.tasks - 1) / self.drain_s


class Bench:
    """Drives rounds on workers that are up, drained as nodes, and not consuming the plain queue."""

    def __init__(
        self, client: ParsyncClient, workers: Sequence[str], slots: int, stop: Event
    ) -> None:
        self.client = client
        self.workers = workers
        self.slots = slots
        self.stop = stop
        self.app = bench.make_app(client.settings.url, client.settings.cluster)

    def until_heard(self) -> None:
        """Wait until every worker answers to remote control, which begins after its node is up."""
        deadline = time.monotonic() + ROUND_LIMIT_S
        count = len(self.workers)
        while (heard := len(self.app.control.ping(timeout=1, limit=count))) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{heard} of {count} workers answer after {ROUND_LIMIT_S:g} s")
            self.pause(ROUND_POLL_S)

    def open(self, system: str) -> None:
        """Let the workers run the waiting tasks of a system."""
        if system == "plain":
            self._tell("add_consumer", queue=bench.BENCH_QUEUE)
        else:
            self._set_nodes("undrain")

    def close(self, system: str) -> None:
        """Let the workers run no more tasks of a system."""
        if system == "plain":
            self._tell("cancel_consumer", queue=bench.BENCH_QUEUE)
        else:
            self._set_nodes("drain")

    def round(self, system: str, tasks: int, ms: float = 0.0) -> Round:
        """Submit all tasks while no worker takes any, then open the gate.

        ms: how long each task sleeps.
        """
        args = (ms,) if ms else ()
        self._stamps(reset=True)
        began_s = time.perf_counter()
        if system == "plain":
            task = self.app.tasks[bench.PLAIN_TASK]
            for _ in range(tasks):
                task.apply_async(args)
        else:
            self.client.submit_many(
                {"name": bench.PLACED_TASK, "args": args, "ignore_result": True}
                for _ in range(tasks)
            )
        submit_s = time.perf_counter() - began_s
        self.open(system)
        self._wait_until_run(system, tasks)
        first_s, last_s, runs = self._stamps()
        self.close(system)
        if runs != tasks:
            raise RuntimeError(f"{system}: {runs} runs of {tasks} tasks")
        return Round(system, self.slots, tasks, submit_s, last_s - first_s, ms)

    def latency_ms(self, system: str) -> float:
        """Return the latency from a submit to the first line of the task, in ms.

        The system's gate must be open.
        """
        task = self.app.tasks[bench.PLAIN_STAMP if system == "plain" else bench.PLACED_STAMP]
        key = f"bench:stamp:{time.time_ns()}"
        began_s = time.time()
        task.apply_async((key,))
        answer: Any = self.client.store.client.blpop([key], timeout=5)
        if answer is None:
            raise RuntimeError(f"{system}: a task did not run within 5 s")
        return (float(answer[1]) - began_s) * 1e3

    def pause(self, seconds: float) -> None:
        """Sleep, or raise Stopped."""
        if self.stop.wait(seconds):
            raise Stopped

    def _wait_until_run(self, system: str, tasks: int) -> None:
        client = self.client.store.client
        keys = self.client.store.keys
        deadline = time.monotonic() + ROUND_LIMIT_S

        def waiting() -> int:
            if system == "plain":
                counts: list[Any] = [client.llen(bench.BENCH_QUEUE)]
            else:
                counts = [client.hlen(keys.queue("kinds")), client.hlen(keys.queue("taken"))]
                counts.append(client.hlen(keys.queue("running")))
            return sum(counts)

        # Ask only Redis while tasks wait, so that workers are not disturbed; then ask the workers.
        while waiting() or self._stamps()[2] < tasks:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{system}: {self._stamps()[2]} of {tasks} tasks ran within {ROUND_LIMIT_S:g} s"
                )
            self.pause(ROUND_POLL_S)

    def _stamps(self, reset: bool = False) -> tuple[float, float, int]:
        """Return (first, last, runs) over all workers; times in Unix seconds."""
        stamps = [row for row in self._tell("bench_stamps", reset=reset) if row["runs"]]
        if not stamps:
            return 0.0, 0.0, 0
        return (
            min(r["first_s"] for r in stamps),
            max(r["last_s"] for r in stamps),
            sum(r["runs"] for r in stamps),
        )

    def _tell(self, command: str, **arguments: Any) -> list[dict[str, Any]]:
        """Send a remote control command to all workers; each must answer."""
        count = len(self.workers)
        replies = self.app.control.broadcast(
            command, arguments=arguments, reply=True, timeout=10, limit=count
        )
        if len(replies) != count:
            raise RuntimeError(f"{len(replies)} of {count} workers answered {command}")
        return [answer for reply in replies for answer in reply.values()]

    def _set_nodes(self, word: str) -> None:
        for name in self.workers:
            self.client.drain(name) if word == "drain" else self.client.undrain(name)


def run_rounds(
    bench: Bench, tasks: int, rounds: int, say: Callable[[Round], None], ms: float = 0.0
) -> list[Round]:
    """Run rounds by turns, plain and parsync, after a short uncounted warm-up round of each."""
    results = []
    for system in ("plain", "parsync"):
        bench.round(system, min(tasks, 200), ms)
    for _ in range(rounds):
        for system in ("plain", "parsync"):
            results.append(bench.round(system, tasks, ms))
            say(results[-1])
    return results


def run_latencies(bench: Bench, samples: int) -> dict[str, Floats]:
    """Return the latencies of single tasks, in ms, measured by turns.

    Tasks come 20 ms apart, so that each finds the cluster idle.
    """
    latencies_ms: dict[str, list[float]] = {"plain": [], "parsync": []}
    for system in latencies_ms:
        bench.open(system)
    for sample in range(samples + 5):
        for system, values in latencies_ms.items():
            ms = bench.latency_ms(system)
            if sample >= 5:
                values.append(ms)
            bench.pause(0.02)
    for system in latencies_ms:
        bench.close(system)
    return {system: np.array(values) for system, values in latencies_ms.items()}


def rate(rounds: Iterable[Round], system: str, measure: str) -> float:
    """Return the median of a system's drain_rate or submit_rate (the measure), in tasks/s."""
    return float(median(getattr(round, measure) for round in rounds if round.system == system))


def ratio(rounds: Sequence[Round], measure: str) -> float:
    """Return parsync's rate divided by plain Celery's: the median over pairs of rounds.

    The rounds of a pair ran one after the other, so that other load on the machine affects both.
    """
    plain, parsync = (
        [getattr(r, measure) for r in rounds if r.system == system]
        for system in ("plain", "parsync")
    )
    return float(
        median(
            parsync_rate / plain_rate
            for parsync_rate, plain_rate in zip(parsync, plain, strict=True)
        )
    )

"""The driver of the demo: it submits the tasks, a few at a time, and collects their results.

Some slots stay free, so that the scheduling delay contains no wait for a slot.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, cast

from parsync_redis.client import ParsyncClient
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import FINAL, TaskState
from parsync_redis.store.reads.schedulers import SchedulerView, read_schedulers

from .app import MEASURE_TASK, RUNS_KEY, make_app
from .measure import Measure
from .nodes import options_of

RESULT_POLL_S = 0.01
DEMO_STALL_S = 60.0
"""The time without a final task after which the run is given up; over two leases."""


class Stopped(Exception):
    """Ctrl-C or SIGTERM came."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of tasks: acknowledged, placed but not started, running, final."""

    submitted: int
    placed: int
    running: int
    done: int


@dataclass(slots=True)
class Gathered:
    """The facts of a run.

    results: by task id. view_ages_ms: samples of the schedulers' own figures.
    """

    modules: dict[str, str]
    wall_s: float = 0.0
    statuses: list[TaskStatus] = field(default_factory=list)
    results: dict[str, Measure] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    schedulers: list[SchedulerView] = field(default_factory=list)
    view_ages_ms: list[float] = field(default_factory=list)
    view_age_max_ms: float = 0.0


class Driver:
    """Runs the tasks of one demo.

    `stop` ends any wait with `Stopped`; `show` hears of progress some times a second.
    """

    def __init__(
        self, client: ParsyncClient, stop: Event, show: Callable[[Progress], None]
    ) -> None:
        self.client = client
        self.stop = stop
        self.show = show
        self._app = make_app(client.settings.url, client.settings.cluster)
        self._pending: dict[str, Any] = {}
        self._done = 0
        self._next_look_s = 0.0

    def wait_until(self, fact: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `fact` is true; return False on timeout."""
        deadline = time.monotonic() + timeout_s
        while not fact():
            if time.monotonic() > deadline:
                return False
            self.pause(0.05)
        return True

    def pause(self, seconds: float) -> None:
        """Sleeps, or raises Stopped."""
        if self.stop.wait(seconds):
            raise Stopped

    def run(self, modules: Sequence[str], window: int) -> Gathered:
        """Submit a task per module, at most `window` at a time; return the facts.

        Returns when all tasks are final, or none has become final for a minute.
        """
        gathered = Gathered({})
        try:
            self._drive(gathered, modules, window)
        finally:
            # a deleted AsyncResult unsubscribes, so the server must still run
            self._pending.clear()
        self._conclude(gathered)
        return gathered

    def _drive(self, gathered: Gathered, modules: Sequence[str], window: int) -> None:
        began_s = moved_s = time.monotonic()
        remaining = iter(modules)
        has_more = True
        while has_more or self._pending:
            while has_more and len(self._pending) < window:
                if (module := next(remaining, None)) is None:
                    has_more = False
                    break
                self._submit(module, gathered)
            if self._collect(gathered):
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > DEMO_STALL_S:
                break
            self.pause(RESULT_POLL_S)
        gathered.wall_s = time.monotonic() - began_s

    def _submit(self, module: str, gathered: Gathered) -> None:
        result = self._app.tasks[MEASURE_TASK].apply_async((module,), parsync=options_of(module))
        gathered.modules[result.id] = module
        self._pending[result.id] = result

    def _collect(self, gathered: Gathered) -> int:
        """Collect the results of tasks that became final; return their number."""
        ids = list(self._pending)
        states = Counter[str]()
        ended = 0
        for id, state in zip(ids, self.client.store.states(ids), strict=True):
            states[state] += 1
            if state in FINAL:
                self._take_result(id, self._pending.pop(id), gathered)
                ended += 1
        self._done += ended
        self.show(Progress(len(gathered.modules), states["placed"], states["running"], self._done))
        if time.monotonic() >= self._next_look_s:
            self._next_look_s = time.monotonic() + 0.5
            self._look_at_schedulers(gathered)
        return ended

    @staticmethod
    def _take_result(id: str, result: Any, gathered: Gathered) -> None:
        value = result.get(timeout=5, propagate=False) if result.ready() else None
        if isinstance(value, dict):
            gathered.results[id] = cast(Measure, value)

    def _look_at_schedulers(self, gathered: Gathered) -> None:
        gathered.schedulers = read_schedulers(self.client.store)
        for scheduler in gathered.schedulers:
            if "view_age_ms" in scheduler.stats:
                gathered.view_ages_ms.append(float(scheduler.stats["view_age_ms"]))
                gathered.view_age_max_ms = max(
                    gathered.view_age_max_ms, float(scheduler.stats["view_age_max_ms"])
                )

    def _conclude(self, gathered: Gathered) -> None:
        """Read records and runs; wait a little for the last figures of the schedulers."""
        gathered.statuses = self.client.statuses(gathered.modules)
        placed = sum(status.attempt for status in gathered.statuses)

        def counted() -> bool:
            self._look_at_schedulers(gathered)
            return sum_of(gathered.schedulers, "placed") >= placed

        self.wait_until(counted, 3.0)
        lines: Any = self.client.store.client.lrange(RUNS_KEY, 0, -1)
        gathered.runs.update(line.decode().split()[0] for line in lines)


def sum_of(schedulers: Sequence[SchedulerView], name: str) -> int:
    """Return the sum of one figure over the schedulers."""
    return sum(int(_number(scheduler.stats, name)) for scheduler in schedulers)


def _number(stats: Mapping[str, str], name: str) -> float:
    return float(stats.get(name, 0) or 0)


def is_lost(status: TaskStatus) -> bool:
    """Return True if an acknowledged task did not end."""
    return status.state is TaskState.GONE or not status.state.final

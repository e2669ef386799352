"""The cluster as `parsync top` shows it, and the reads for one look.

A look costs a few requests. The longest runs are read more rarely, because that costs more.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import KindView, NodeView
from ..placement.reasons import reason_class
from ..store.reads.cancel import server_ms
from ..store.reads.demand import Counts, count_tasks, demand_of, read_lines, read_oldest
from ..store.reads.find_tasks import TaskQuery, find_tasks
from ..store.reads.schedulers import Refusal, SchedulerView, read_refusals, read_schedulers
from ..store.reads.views import read_node_views
from ..store.store import Store

MOST_RUNS: Final = 20
RUNS_TIME_SHARE: Final = 20
"""The search for the longest runs takes at most 1 part in so many of the time."""

_RATED_STATS: Final = ("placed", "claims", "conflicts")
_RUNS: Final = TaskQuery(frozenset((TaskState.RUNNING,)), sort="run", limit=MOST_RUNS)


@dataclass(frozen=True, slots=True)
class Glance:
    """The cluster at one moment.

    oldest_ms: since when the oldest waiting task can be taken; None if no task waits.
    reasons: reason class -> number of waiting tasks.
    placed_s: tasks placed per second since the last look; None at the first look.
    conflicts: the share of claims that lost since the last look, 0 to 1; None without claims.
    runs: the longest runs.
    runs_part: why `runs` may lack longer runs; '' if complete.
    refusals: the servers that take no writes.
    """

    now_ms: int
    nodes: Sequence[NodeView]
    schedulers: Sequence[SchedulerView]
    kinds: Sequence[KindView]
    counts: Counts
    oldest_ms: int | None
    reasons: Mapping[str, int]
    placed_s: float | None
    conflicts: float | None
    runs: Sequence[TaskStatus]
    runs_part: str
    refusals: Sequence[Refusal] = ()


class Glancer:
    """Reads a cluster once a look, and keeps the counts of the last look for rates."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: dict[tuple[str, str], dict[str, int]] = {}
        self._before_ms = 0
        self._runs: tuple[Sequence[TaskStatus], str] = ((), "")
        self._next_runs_s = 0.0

    def look(self) -> Glance:
        """Return the cluster as it is now. Raises ParsyncError."""
        store = self._store
        damaged = list[str]()
        store.config()
        now_ms = server_ms(store)
        nodes = read_node_views(store)
        schedulers = read_schedulers(store)
        lines = list(read_lines(store, damaged))
        kinds = demand_of(lines, damaged)
        reasons = Counter[str]()
        for kind in kinds:
            reasons[reason_class(kind.why)] += kind.waiting
        placed_s, conflicts = self._rates(schedulers, now_ms)
        self._look_at_runs()
        oldest = read_oldest(store, lines, lambda name: "")
        return Glance(
            now_ms,
            nodes,
            schedulers,
            kinds,
            count_tasks(store),
            oldest.get(""),
            reasons,
            placed_s,
            conflicts,
            *self._runs,
            read_refusals(store),
        )

    def _look_at_runs(self) -> None:
        begun_s = time.monotonic()
        if begun_s >= self._next_runs_s:
            runs = find_tasks(self._store, _RUNS)
            self._runs = (runs.tasks, runs.part)
            took_s = time.monotonic() - begun_s
            self._next_runs_s = begun_s + RUNS_TIME_SHARE * took_s

    def _rates(
        self, schedulers: Sequence[SchedulerView], now_ms: int
    ) -> tuple[float | None, float | None]:
        """Return tasks placed per second, and the share of lost claims, since the last look."""
        now = {}
        for scheduler in schedulers:
            who = (scheduler.name, scheduler.stats.get("pid", ""))
            now[who] = {name: _number(scheduler.stats.get(name, "")) for name in _RATED_STATS}
        before = self._before
        since_ms = self._before_ms
        self._before = now
        self._before_ms = now_ms
        if not since_ms or now_ms <= since_ms:
            return None, None
        grown = Counter[str]()
        for who in now.keys() & before.keys():
            for name in _RATED_STATS:
                grown[name] += now[who][name] - before[who][name]
        share = grown["conflicts"] / grown["claims"] if grown["claims"] > 0 else None
        return grown["placed"] * 1000 / (now_ms - since_ms), share


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0

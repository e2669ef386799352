"""Read the learnt run times of tasks, by name."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ...errors import AccessDenied, DamagedState, ServerUnreachable
from ...model.ids import readable
from ...model.octaves import TimeHistogram
from ...model.times import LearntTimes, RunTimes
from ...model.views import NameView
from ..runner import Runner

MEANS_KEPT_S: Final = 60.0
"""For so long a process that submits goes by the mean run time that it has read."""

MAX_MEANS: Final = 10_000
"""Maximum number of names whose means a process keeps."""


def read_times(store: Runner) -> LearntTimes:
    """Return all run times; unreadable lines are left out. Raises ServerUnreachable."""
    return _learnt(store.hash(store.keys.shared("times")))


def read_times_of(store: Runner, fields: Sequence[str]) -> LearntTimes:
    """Return the run times of some names and classes, as `read_times` does."""
    texts = store.read("hmget", store.keys.shared("times"), fields) if fields else []
    return _learnt(
        {field: readable(text) for field, text in zip(fields, texts, strict=True) if text}
    )


class LearntMeans:
    """The mean run times of names, as they were at most MEANS_KEPT_S ago.

    A name is read once in that time, so submitting costs a round trip for a name now and then. A
    server that does not answer leaves the earlier mean as it is.
    """

    def __init__(self, store: Runner, time_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._time_s = time_s
        # name -> when it was read, and its mean
        self._means: dict[str, tuple[float, float | None]] = {}

    def of(self, names: Iterable[str]) -> dict[str, float | None]:
        """Return the mean run time (ms) of each name; None if it is not known."""
        unique_names = dict.fromkeys(names)
        now_s = self._time_s()
        due = [
            name
            for name in unique_names
            if name not in self._means or now_s - self._means[name][0] >= MEANS_KEPT_S
        ]
        if len(self._means) + len(due) > MAX_MEANS:
            self._means = {name: self._means[name] for name in unique_names if name in self._means}
        if due:
            self._read(due, now_s)
        return {name: self._means[name][1] for name in unique_names}

    def _read(self, names: Sequence[str], now_s: float) -> None:
        try:
            learnt = read_times_of(self._store, names)
        except (AccessDenied, DamagedState, ServerUnreachable):
            means = {name: self._means.get(name, (0.0, None))[1] for name in names}
        else:
            means = {name: learnt[name].mean_ms if name in learnt else None for name in names}
        self._means |= {name: (now_s, mean_ms) for name, mean_ms in means.items()}


def _learnt(lines: Mapping[str, str]) -> LearntTimes:
    learnt = LearntTimes()
    for field, text in lines.items():
        try:
            learnt[field] = RunTimes.of(text)
        except ValueError:
            continue  # The next run of that name replaces the damaged line.
    return learnt


def read_names(store: Runner) -> list[NameView]:
    """Return the names that have run times, as `names_of` does. Raises ServerUnreachable."""
    return names_of(read_times(store))


def names_of(learnt: LearntTimes) -> list[NameView]:
    """Return the names that have run times, sorted.

    A name that ran on several node classes is followed by its classes.
    """
    views = list[NameView]()
    for field, times in sorted(learnt.items(), key=lambda item: item[0].partition(" ")):
        name, _, node_class = field.partition(" ")
        if not node_class or name not in learnt or times.count < learnt[name].count:
            mean_ms = round(times.mean_ms, 3)
            p95_ms = round(times.p95_ms, 3)
            views.append(NameView(name, times.count, mean_ms, p95_ms, node_class))
    return views


def runs_of(learnt: LearntTimes) -> dict[str, TimeHistogram]:
    """Return the durations of all runs by name."""
    return {
        name: TimeHistogram(times.total_ms, times.octaves)
        for name, times in learnt.items()
        if " " not in name
    }

"""Read the learnt run times of tasks, by name."""

from collections.abc import Mapping, Sequence

from ...model.ids import readable
from ...model.octaves import TimeHistogram
from ...model.times import LearntTimes, RunTimes
from ...model.views import NameView
from ..runner import Runner


def read_times(store: Runner) -> LearntTimes:
    """Return all run times; unreadable lines are left out. Raises ServerUnreachable."""
    return _learnt(store.hash(store.keys.shared("times")))


def read_times_of(store: Runner, fields: Sequence[str]) -> LearntTimes:
    """Return the run times of some names and classes, as `read_times` does."""
    texts = store.read("hmget", store.keys.shared("times"), fields) if fields else []
    return _learnt(
        {field: readable(text) for field, text in zip(fields, texts, strict=True) if text}
    )


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

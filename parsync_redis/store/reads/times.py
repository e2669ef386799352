"""Read the learnt run times of tasks, by name."""

from collections.abc import Mapping, Sequence

from ...model.ids import readable
from ...model.octaves import TimeHistogram
from ...model.times import LearntTimes, RunTimes
from ...model.views import NameView
from ..runner import Runner


def read_times(store: Runner) -> LearntTimes:
    """Return all run times; lines that cannot be read are left out. Raises ServerUnreachable."""
    return _learnt(store.hash(store.keys.shared("times")))


def read_times_of(store: Runner, fields: Sequence[str]) -> LearntTimes:
    """Return the run times of some names and classes, as `read_times` does."""
    texts = store.read("hmget", store.keys.shared("times"), fields) if fields else []
    return _learnt(
        {field: readable(text) for field, text in zip(fields, texts, strict=True) if text}
    )


def _learnt(lines: Mapping[str, str]) -> LearntTimes:
    found = LearntTimes()
    for field, text in lines.items():
        try:
            found[field] = RunTimes.of(text)
        except ValueError:
            continue  # the next run of that name replaces it
    return found


def read_names(store: Runner) -> list[NameView]:
    """Return the names that have run times, as `names_of` does. Raises ServerUnreachable."""
    return names_of(read_times(store))


def names_of(learnt: LearntTimes) -> list[NameView]:
    """Return the names that have run times, by name; the classes behind each that ran
    on several.
    """
    found = list[NameView]()
    for field, times in sorted(learnt.items(), key=lambda item: item[0].partition(" ")):
        name, _, node_class = field.partition(" ")
        if not node_class or name not in learnt or times.count < learnt[name].count:
            mean_ms = round(times.mean_ms, 3)
            p95_ms = round(times.p95_ms, 3)
            found.append(NameView(name, times.count, mean_ms, p95_ms, node_class))
    return found


def runs_of(learnt: LearntTimes) -> dict[str, TimeHistogram]:
    """Return the durations of all runs by name."""
    return {
        name: TimeHistogram(times.total_ms, times.octaves)
        for name, times in learnt.items()
        if " " not in name
    }

"""Read the learnt run times of tasks, by name."""

from ..model.times import RunTimes
from ..model.views import NameView
from .runner import Runner


def read_times(store: Runner) -> dict[str, RunTimes]:
    """Return the run times of each name; lines that cannot be read are left out. Raises ServerUnreachable."""
    found = {}
    for name, text in store.hash(store.keys.shared("times")).items():
        try:
            found[name] = RunTimes.of(text)
        except ValueError:
            continue  # the next run of that name replaces it
    return found


def read_names(store: Runner) -> list[NameView]:
    """Return the names that have run times, by name. Raises ServerUnreachable."""
    found = sorted(read_times(store).items())
    return [NameView(name, times.count, round(times.mean_ms, 3), round(times.p95_ms, 3)) for name, times in found]

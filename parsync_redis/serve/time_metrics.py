"""Histograms, and ages of copies of partitions, as metrics for Prometheus. Pure."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric

from ..model.octaves import BOUNDS_S, TimeHistogram
from ..model.views import DELAYS, VIEW_AGES
from ..store.reads.schedulers import SchedulerView
from .counting import SurveyCounts

MOST_CELLS: Final = 2048
"""Maximum number of copies with an age of their own; the first schedulers have them."""

BOUNDS: Final = (*map(str, BOUNDS_S), "+Inf")


def time_metrics(counted: SurveyCounts, schedulers: Sequence[SchedulerView]) -> Iterator[Metric]:
    """Return the metrics of durations. schedulers: the schedulers with figures of their own."""
    about = "Time from when a task could be taken to its commit"
    family = HistogramMetricFamily(
        "parsync_scheduling_delay_seconds", f"{about}, by scheduler", labels=["scheduler"]
    )
    for scheduler in schedulers:
        if DELAYS in scheduler.stats:
            _add(family, scheduler.name, TimeHistogram.of(scheduler.stats[DELAYS]))
    yield family
    for name, help, histograms in (
        ("parsync_wait_seconds", f"{about}, by name", counted.waits),
        ("parsync_run_seconds", "Time that runs took, by name", counted.runs),
    ):
        family = HistogramMetricFamily(name, help, labels=["name"])
        for task, histogram in sorted(histograms.items()):
            _add(family, task, histogram)
        yield family
    yield _ages(schedulers)


def _add(family: HistogramMetricFamily, word: str, histogram: TimeHistogram) -> None:
    counts = zip(BOUNDS, map(float, accumulate(histogram.octaves)), strict=True)
    family.add_metric([word], list(counts), histogram.total_ms / 1000)


def _ages(schedulers: Sequence[SchedulerView]) -> Metric:
    help = "Age of the scheduler's copy of a partition"
    family = GaugeMetricFamily(
        "parsync_partition_view_age_seconds", help, labels=["scheduler", "partition"]
    )
    free_cells = MOST_CELLS
    for scheduler in schedulers:
        ages = [
            age
            for age in scheduler.stats.get(VIEW_AGES, "").split()
            if age.isdecimal() and len(age) < 12
        ]
        if (free_cells := free_cells - len(ages)) < 0:
            break
        for partition, age in enumerate(ages):
            family.add_metric([scheduler.name, str(partition)], int(age) / 1000)
    return family

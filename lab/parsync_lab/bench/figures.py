"""The pace of an open loop, and the summary figures of a run. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from parsync_redis.placement.strategy import Floats

QUANTILES = (("p50", 500), ("p95", 950), ("p99", 990), ("p999", 999))
"""{name of a percentile: its thousandths}."""


def quantiles(values: Floats) -> dict[str, float]:
    """Return p50, p95, p99 and p99.9 by nearest rank, in the values' unit; 0 without values."""
    if not len(values):
        return {name: 0.0 for name, _ in QUANTILES}
    ordered = np.sort(values)
    ranks = [(part * len(ordered) - 1) // 1000 for _, part in QUANTILES]
    return {
        name: round(float(ordered[rank]), 2)
        for (name, _), rank in zip(QUANTILES, ranks, strict=True)
    }


@dataclass(frozen=True, slots=True)
class Pace:
    """An open loop: task k of all generators is due k / rate seconds after the beginning.

    Generator k of `generators` has the tasks k, k + generators, ...
    """

    rate: float
    seconds: float
    generator: int = 0
    generators: int = 1

    @property
    def total(self) -> int:
        """Return the number of this generator's tasks."""
        return max(0, ceil((floor(self.rate * self.seconds) - self.generator) / self.generators))

    def due(self, elapsed_s: float) -> int:
        """Return the number of this generator's tasks that are due after `elapsed_s`."""
        if elapsed_s < 0:
            return 0
        return min(
            self.total,
            max(0, ceil((floor(self.rate * elapsed_s) + 1 - self.generator) / self.generators)),
        )

    def number(self, position: int) -> int:
        """Return the number among all tasks of this generator's task at `position`."""
        return self.generator + position * self.generators

    def due_s(self, number: int) -> float:
        """Return when task `number` is due, in seconds after the beginning."""
        return number / self.rate


def rate_within(stamps_ms: Floats, begin_ms: float, end_ms: float) -> float:
    """Return the events per second within a window."""
    inside = np.count_nonzero((stamps_ms >= begin_ms) & (stamps_ms < end_ms))
    return round(float(inside) / (end_ms - begin_ms) * 1e3, 1)


def grows(delays_ms: Floats) -> bool:
    """Return True if the delays grow: the median of the last third far exceeds the first third's.

    delays_ms: in order of due time.
    """
    third = len(delays_ms) // 3
    if not third:
        return False
    return bool(np.median(delays_ms[-third:]) > 2 * np.median(delays_ms[:third]) + 50)


def ratio(part: float, whole: float, digits: int = 6) -> float:
    """Return part / whole, 0 for a whole of 0."""
    return round(part / whole, digits) if whole else 0.0


def longest(rows: Sequence[Floats]) -> Floats:
    """Return several arrays as one array."""
    return np.concatenate(rows) if rows else np.zeros(0)

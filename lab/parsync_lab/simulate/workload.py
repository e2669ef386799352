"""Workloads: arrivals and running times of tasks, drawn for rates by phase, or listed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from .parameters import Phase


class Arrival(NamedTuple):
    """A task: its arrival, its run time, and its number of slots."""

    at_s: float
    runs_s: float
    slots: int = 1


class Load(Protocol):
    """The arrivals of one group's tasks, in order of time."""

    def until(self, end_s: float) -> Sequence[Arrival]:
        """Return the arrivals since the last call, before `end_s`."""


@dataclass(slots=True)
class Poisson:
    """Independent arrivals at rates that change.

    rates: (begin, tasks a second) in order.
    runs_s: the running time of every task.
    """

    rng: np.random.Generator
    rates: Sequence[tuple[float, float]]
    runs_s: float
    now_s: float = 0.0

    def until(self, end_s: float) -> Sequence[Arrival]:
        """Return the arrivals since the last call, before `end_s`."""
        begin_s = self.now_s
        self.now_s = end_s
        rate = [rate for since_s, rate in self.rates if since_s <= begin_s + 1e-9][-1]
        count = self.rng.poisson(rate * (end_s - begin_s))
        times = np.sort(self.rng.uniform(begin_s, end_s, count))
        return [Arrival(at_s, self.runs_s) for at_s in times.tolist()]


class Listed:
    """Arrivals from a list, such as a trace."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._ahead: Iterator[Arrival] = iter(arrivals)
        self._next = next(self._ahead, None)

    def until(self, end_s: float) -> Sequence[Arrival]:
        """Return the arrivals since the last call, before `end_s`."""
        arrivals = []
        while self._next is not None and self._next.at_s < end_s:
            arrivals.append(self._next)
            self._next = next(self._ahead, None)
        return arrivals


def phase_rates(phases: Sequence[Phase], group: int, full: float) -> list[tuple[float, float]]:
    """Return [(begin, tasks a second)] of a group whose full load is `full` tasks a second."""
    rates = []
    begin_s = 0.0
    for phase in phases:
        rates.append((begin_s, full * phase.loads[group]))
        begin_s += phase.length_s
    return rates

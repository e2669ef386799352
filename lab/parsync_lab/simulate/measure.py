"""Figures per second and group (utilisation, delays, conflicts, scores, staleness), and means."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from .parameters import Parameters, Phase
from .sim_scheduler import SimScheduler

METRICS: Final = (
    "utilisation",
    "delay_mean_s",
    "delay_p50_s",
    "delay_p99_s",
    "placed",
    "claims",
    "conflict_fraction",
    "score_mean",
    "waiting",
    "staleness_mean_s",
    "staleness_min_s",
    "staleness_max_s",
    "oldest_s",
)
"""The figures.

utilisation: the share of all slots that the group's tasks hold. delay: submit to commit, by the
second of the commit. placed, claims: counts, in a phase over all of it. conflict_fraction: of the
claims. score_mean: of the slots that got tasks. waiting: tasks in the queue, the mean over the
ticks. staleness: of a scheduler's view, the mean over partitions. oldest: the oldest copy of a
partition. None where nothing happened.
"""


@dataclass(slots=True)
class _Second:
    """The figures of a group in one second."""

    delays: list[float] = field(default_factory=list)
    scores: float = 0.0
    claims: int = 0
    lost: int = 0
    held_slots: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    ages: list[tuple[float, float, float, float]] = field(default_factory=list)


class SimMeasure:
    """The figures of a run, recorded as it goes on."""

    def __init__(self, parameters: Parameters, groups: Sequence[str]) -> None:
        self.parameters = parameters
        self.groups = groups
        self._seconds: list[list[_Second]] = [[] for _ in groups]

    def placed(self, group: int, now_s: float, delay_s: float, score: float) -> None:
        """Record a committed task."""
        second = self._second_of(group, now_s)
        second.delays.append(delay_s)
        second.scores += score

    def judged(self, group: int, now_s: float, claims: int, lost: int) -> None:
        """Record judged claims."""
        second = self._second_of(group, now_s)
        second.claims += claims
        second.lost += lost

    def see_load(self, now_s: float, held_slots: Sequence[int], waiting: Sequence[int]) -> None:
        """Record the slots that each group holds and its waiting tasks."""
        for group, count in enumerate(held_slots):
            second = self._second_of(group, now_s)
            second.held_slots.append(count)
            second.waiting.append(waiting[group])

    def see_views(self, now_s: float, schedulers: Sequence[SimScheduler]) -> None:
        """Record the age of the schedulers' copies."""
        read_s = np.array(
            [[p.read_s for p in scheduler.core.view.partitions] for scheduler in schedulers]
        )
        means = now_s - read_s.mean(axis=1)
        oldest = now_s - read_s.min(axis=1)
        of_group = np.array([scheduler.group for scheduler in schedulers])
        for group in range(len(self.groups)):
            group_means = means[of_group == group]
            group_oldest = oldest[of_group == group]
            ages = (
                float(group_means.mean()),
                float(group_means.min()),
                float(group_means.max()),
                float(group_oldest.max()),
            )
            self._second_of(group, now_s).ages.append(ages)

    @property
    def placements(self) -> int:
        """Return the number of placed tasks."""
        return sum(len(second.delays) for seconds in self._seconds for second in seconds)

    def series(self) -> dict[str, dict[str, list[float | None]]]:
        """Return {group: {metric: [value of each second]}}."""
        return {
            name: {metric: list(values) for metric, values in self._columns(seconds).items()}
            for name, seconds in zip(self.groups, self._seconds, strict=True)
        }

    def summary(self, phases: Sequence[Phase]) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return {phase: {group: {metric: mean over the phase}}}.

        Counts, shares and quantiles are of the whole phase.
        """
        by_phase: dict[str, dict[str, dict[str, float | None]]] = {}
        begin_s = 0.0
        for phase in phases:
            end_s = begin_s + phase.length_s
            by_phase[phase.name] = {
                name: self._figures_of(
                    _merge(seconds[round(begin_s) : max(round(end_s), round(begin_s) + 1)])
                )
                for name, seconds in zip(self.groups, self._seconds, strict=True)
            }
            begin_s = end_s
        return by_phase

    def _second_of(self, group: int, now_s: float) -> _Second:
        seconds = self._seconds[group]
        index = int(now_s + 1e-9)
        while len(seconds) <= index:
            seconds.append(_Second())
        return seconds[index]

    def _columns(self, seconds: Sequence[_Second]) -> dict[str, list[float | None]]:
        rows = [self._figures_of(second) for second in seconds]
        return {metric: [row[metric] for row in rows] for metric in METRICS}

    def _figures_of(self, second: _Second) -> dict[str, float | None]:
        delays = np.array(second.delays)
        p50, p99 = np.quantile(delays, (0.5, 0.99)).tolist() if len(delays) else (None, None)
        ages: Any = np.array(second.ages) if second.ages else None
        return {
            "utilisation": float(np.mean(second.held_slots)) / self.parameters.scaled_slots
            if second.held_slots
            else None,
            "delay_mean_s": float(delays.mean()) if len(delays) else None,
            "delay_p50_s": p50,
            "delay_p99_s": p99,
            "placed": len(delays),
            "claims": second.claims,
            "conflict_fraction": second.lost / second.claims if second.claims else None,
            "score_mean": second.scores / len(delays) if len(delays) else None,
            "waiting": float(np.mean(second.waiting)) if second.waiting else None,
            "staleness_mean_s": float(ages[:, 0].mean()) if ages is not None else None,
            "staleness_min_s": float(ages[:, 1].min()) if ages is not None else None,
            "staleness_max_s": float(ages[:, 2].max()) if ages is not None else None,
            "oldest_s": float(ages[:, 3].max()) if ages is not None else None,
        }


def _merge(seconds: Sequence[_Second]) -> _Second:
    merged = _Second()
    for second in seconds:
        merged.delays += second.delays
        merged.held_slots += second.held_slots
        merged.waiting += second.waiting
        merged.ages += second.ages
        merged.scores += second.scores
        merged.claims += second.claims
        merged.lost += second.lost
    return merged

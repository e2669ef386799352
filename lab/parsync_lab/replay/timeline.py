"""The events of a replay, in their order: when each pod arrived, was placed and ended."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parsync_redis.model.place import Place


@dataclass(slots=True)
class Curve:
    """A sum over time: steps, in any order, as (seconds, change)."""

    steps: list[tuple[float, int]] = field(default_factory=list)

    def add(self, at_s: float, change: int) -> None:
        """Change the sum at a time."""
        self.steps.append((at_s, change))

    def levels(self) -> tuple[list[float], list[int]]:
        """Return the times of the steps in order, and the sum from each of them on."""
        times = list[float]()
        sums = list[int]()
        total = 0
        for at_s, change in sorted(self.steps):
            total += change
            if times and times[-1] == at_s:
                sums[-1] = total
            else:
                times.append(at_s)
                sums.append(total)
        return times, sums

    def values_at(self, times_s: Sequence[float]) -> list[int]:
        """Return the sum at each of these times."""
        times, sums = self.levels()
        counts = [bisect_right(times, at_s) for at_s in times_s]
        return [sums[index - 1] if index else 0 for index in counts]

    def mean(self, end_s: float) -> float:
        """Return the mean of the sum from 0 to `end_s`."""
        times, sums = self.levels()
        ends = [*times[1:], max(end_s, times[-1])] if times else []
        area = sum(
            level * (min(after_s, end_s) - min(at_s, end_s))
            for at_s, after_s, level in zip(times, ends, sums, strict=True)
        )
        return area / end_s if end_s > 0 else 0.0

    @property
    def most(self) -> int:
        """Return the largest sum."""
        return max(self.levels()[1], default=0)


@dataclass(slots=True)
class Timeline:
    """The events of a replay as curves; times are virtual, in seconds of the trace.

    used, requested: thousandths of GPUs that pods hold, or asked for.
    """

    arrived: Curve = field(default_factory=Curve)
    placed: Curve = field(default_factory=Curve)
    requested: Curve = field(default_factory=Curve)
    used: Curve = field(default_factory=Curve)
    places: list[Place] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)

    @property
    def places_held(self) -> list[Place]:
        """The places of the pods that have not ended."""
        return [place for place in self.places if place.task not in self.ended]

    def decisions(self) -> list[Any]:
        """Return the place of each pod in order of the placements, without the server's times."""
        return [
            (place.task, place.partition, place.node, place.slots, place.asked)
            for place in self.places
        ]

"""The counts of the last minutes in a ring, and the charts that the pages draw of them. Pure."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Any, Final

from ..model.octaves import TimeHistogram

STEP_S: Final = 5.0
"""Seconds between two kept moments."""

MINUTES: Final = 10
"""The ring keeps the moments of so many minutes."""

WIDTH = 300.0
HEIGHT = 60.0
"""The size of a chart, in units of its SVG."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The counts up to a moment: totals of the schedulers, and the waits of all tasks.

    at_s: monotonic seconds.
    """

    at_s: float
    totals: Mapping[str, int]
    waits: TimeHistogram = field(default_factory=TimeHistogram)


class Ring:
    """The moments of the last minutes, one per STEP_S."""

    def __init__(self) -> None:
        self._moments = deque[Moment](maxlen=round(MINUTES * 60 / STEP_S) + 1)

    def add(self, moment: Moment) -> Sequence[Moment]:
        """Keep a moment if STEP_S have passed; return the kept moments, the oldest first."""
        if not self._moments or moment.at_s >= self._moments[-1].at_s + STEP_S:
            self._moments.append(moment)
        return tuple(self._moments)


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over the last minutes.

    points: the pieces of the line, as the attribute `points` of SVG.
    most, last: the largest and the last value, for people.
    text: the chart in words.
    """

    name: str
    unit: str
    points: Sequence[str]
    most: str
    last: str
    text: str


def charts_of(moments: Sequence[Moment]) -> list[Chart]:
    """Return the charts of the page of schedulers."""

    def rate(figure: str) -> Callable[[Moment, Moment], float | None]:
        def rate_between(before: Moment, now: Moment) -> float | None:
            grown = now.totals.get(figure, 0) - before.totals.get(figure, 0)
            return max(0, grown) / (now.at_s - before.at_s)

        return rate_between

    def delay_ms(before: Moment, now: Moment) -> float | None:
        waits = now.waits.since(before.waits)
        return waits.total_ms / waits.count if waits.count else None

    figures: list[tuple[str, str, Callable[[Moment, Moment], float | None]]] = [
        ("tasks placed", "a second", rate("placed")),
        ("conflicts", "a second", rate("conflicts")),
        ("mean scheduling delay", "ms", delay_ms),
    ]
    return [_chart(name, unit, moments, figure_of) for name, unit, figure_of in figures]


def minutes_of(moments: Sequence[Moment]) -> int:
    """Return how many minutes the charts show, from 1 to MINUTES."""
    kept_s = moments[-1].at_s - moments[0].at_s if moments else 0.0
    return min(MINUTES, max(1, ceil(kept_s / 60)))


def _chart(
    name: str,
    unit: str,
    moments: Sequence[Moment],
    figure_of: Callable[[Moment, Moment], float | None],
) -> Chart:
    """Return the chart of a figure.

    figure_of: computes the figure from two moments; the line has a gap where the figure is None.
    """
    pairs = pairwise(moments)
    values = [(now.at_s - moments[-1].at_s, figure_of(before, now)) for before, now in pairs]
    numbers = [value for _, value in values if value is not None]
    most = max(numbers, default=0.0)
    minutes = minutes_of(moments)
    pieces: list[list[str]] = [[]]
    for at_s, value in values:
        if value is None:
            pieces.append([])
            continue
        x = WIDTH * (1 + at_s / (60 * minutes))
        y = HEIGHT * (1 - value / (most or 1))
        pieces[-1].append(f"{max(0.0, x):.1f},{y:.1f}")
    last = values[-1][1] if values else None
    text = "nothing yet" if not numbers else f"{_number(last)} {unit} now, {_number(most)} at most"
    # a piece of one point is drawn as a line to itself, which shows as a dot
    points = [" ".join(piece if len(piece) > 1 else 2 * piece) for piece in pieces if piece]
    return Chart(name, unit, points, _number(most), _number(last), text)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def chart_values(moments: Sequence[Moment]) -> dict[str, Any]:
    """Return the values of the charts for the template."""
    return {
        "charts": charts_of(moments),
        "minutes": minutes_of(moments),
        "width": WIDTH,
        "height": HEIGHT,
    }

"""The counts of what happened since this service started, kept up survey by survey."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..model.octaves import CHOOSE_EVERY_S, NamedTimes, TimeHistogram, read_named_times
from ..model.views import WAITS
from ..store.reads.schedulers import SchedulerView
from .history import Moment, Ring
from .survey import Survey

Histograms = Mapping[str, TimeHistogram]

SUMMED_STATS: Final = ("claims", "conflicts", "merged", "own_ticks", "placed")
"""The figures of a scheduler that only grow."""

MOST_REPORTERS: Final = 1000
"""Maximum number of reporters whose last report is kept; a reporter may come back."""


class TimeTotals:
    """The sums of reported histograms by name, since the first reports."""

    def __init__(self) -> None:
        self._sums = NamedTimes()
        self._begun = False
        self._last_reports: dict[Hashable, Histograms] = {}

    def add(self, reports: Iterable[tuple[Hashable, Histograms]]) -> None:
        """Add what reporters have counted: (reporter, task name -> histogram since its start).

        The first call only sets the base, because its numbers are of the time before. A reporter
        that comes later counts whole. A name counts whole if it comes back after a while, or if its
        numbers fell.
        """
        for who, now in reports:
            before = self._last_reports.pop(who, {} if self._begun else now)
            for name, histogram in now.items():
                growth = histogram.since(before[name]) if name in before else histogram
                if growth.count:
                    self._sums.add_all(name, growth)
            self._last_reports[who] = now
        self._begun = True
        for who in list(self._last_reports)[:-MOST_REPORTERS]:
            del self._last_reports[who]

    def choose(self) -> None:
        """Choose anew which names have histograms of their own."""
        self._sums.choose()

    @property
    def all(self) -> TimeHistogram:
        """The sum over all names."""
        return self._sums.all

    def by_name(self) -> Histograms:
        """Return the sums by name."""
        return self._sums.by_name()


class SchedulerTotals:
    """The sums over all schedulers since the first survey. The sums never fall."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(SUMMED_STATS, 0)
        self._last_reports: dict[tuple[str, str], Mapping[str, int]] = {}
        self._begun = False

    def add(self, schedulers: Iterable[SchedulerView]) -> Mapping[str, int]:
        """Add the figures that schedulers report now, and return the sums.

        The first call only sets the base, because its figures are of the time before. A scheduler
        that comes later counts whole. A scheduler whose figure fell has started again, and counts
        whole too: in containers its name and pid may stay.
        """
        for scheduler in schedulers:
            who = (scheduler.name, scheduler.stats.get("pid", ""))
            now = {name: _number(scheduler.stats.get(name, "")) for name in SUMMED_STATS}
            before = self._last_reports.pop(who, {} if self._begun else now)
            if any(number < before.get(name, 0) for name, number in now.items()):
                before = {}
            for name, number in now.items():
                self._sums[name] += number - before.get(name, 0)
            self._last_reports[who] = now
        self._begun = True
        for who in list(self._last_reports)[:-MOST_REPORTERS]:
            del self._last_reports[who]
        return dict(self._sums)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 16 else 0


@dataclass(frozen=True, slots=True)
class SurveyCounts:
    """The counts up to a survey.

    totals: counts of schedulers, and of lost attempts and of deaths, by name.
    waits, runs: task name -> histogram of the waits for a place, or of the run times.
    moments: the counts of the last minutes.
    """

    totals: Mapping[str, int] = field(default_factory=dict)
    waits: Histograms = field(default_factory=dict)
    runs: Histograms = field(default_factory=dict)
    moments: Sequence[Moment] = ()


class SurveyCounter:
    """Adds up surveys.

    Totals never fall, whatever restarts. The histogram of a name may go, and come back at 0.
    """

    def __init__(self) -> None:
        self._schedulers = SchedulerTotals()
        self._ring = Ring()
        self._waits = TimeTotals()
        self._runs = TimeTotals()
        self._last_runs: Mapping[str, TimeHistogram] = {}
        self._state: Mapping[str, int] = {}
        self._chosen_s = float("-inf")

    def add(self, survey: Survey, at_s: float) -> SurveyCounts:
        """Add a survey whose reading began at `at_s` (monotonic), and return the counts."""
        # a shard that is away is missing in these counts, so they may fall
        now = {"lost": survey.counts.lost, "died": survey.counts.died}
        self._state = {name: max(count, self._state.get(name, 0)) for name, count in now.items()}
        totals = {**self._state, **self._schedulers.add(survey.schedulers)}
        waits = [
            (
                (scheduler.name, scheduler.stats.get("pid", "")),
                read_named_times(scheduler.stats.get(WAITS, "")),
            )
            for scheduler in survey.schedulers
        ]
        self._waits.add(waits)
        if survey.runs is not self._last_runs:
            self._last_runs = survey.runs
            self._runs.add([("times", survey.runs)])
        if at_s - self._chosen_s >= CHOOSE_EVERY_S:
            self._chosen_s = at_s
            self._waits.choose()
            self._runs.choose()
        moments = self._ring.add(Moment(at_s, totals, self._waits.all))
        return SurveyCounts(totals, self._waits.by_name(), self._runs.by_name(), moments)

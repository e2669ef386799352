"""The counts of what happened since this service started, kept up survey by survey."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..model.named_times import CHOOSE_EVERY_S, read_named_times
from ..model.octaves import TimeHistogram
from ..model.views import WAITS
from .history import Moment, Ring
from .survey import Survey
from .time_totals import Histograms, TimeTotals
from .totals import SchedulerTotals


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

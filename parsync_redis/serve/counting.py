"""Count what happened since this service started, survey by survey."""

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
class Counted:
    """The counts up to a survey.

    totals: of what schedulers did, and of lost attempts and deaths, which the state counts. waits,
    runs: by name, how long tasks waited for their places, and how long they ran. moments: of the
    last minutes.
    """

    totals: Mapping[str, int] = field(default_factory=dict)
    waits: Histograms = field(default_factory=dict)
    runs: Histograms = field(default_factory=dict)
    moments: Sequence[Moment] = ()


class Counting:
    """Counts.

    Numbers never fall, whatever restarts; a name's own histogram may go and come back at 0.
    """

    def __init__(self) -> None:
        self._schedulers = SchedulerTotals()
        self._ring = Ring()
        self._waits = TimeTotals()
        self._runs = TimeTotals()
        self._last_runs: Mapping[str, TimeHistogram] = {}
        self._state: Mapping[str, int] = {}
        self._chosen_s = float("-inf")

    def add(self, survey: Survey, at_s: float) -> Counted:
        """Take in a survey that was begun at a time (monotonic)."""
        # those of a shard that is away are missing
        now = {"lost": survey.counts.lost, "died": survey.counts.died}
        self._state = {name: max(count, self._state.get(name, 0)) for name, count in now.items()}
        totals = {**self._state, **self._schedulers.add(survey.schedulers)}
        said = [
            ((one.name, one.stats.get("pid", "")), one.stats.get(WAITS, ""))
            for one in survey.schedulers
        ]
        self._waits.add([(who, read_named_times(text)) for who, text in said])
        if survey.runs is not self._last_runs:
            self._last_runs = survey.runs
            self._runs.add([("times", survey.runs)])
        if at_s - self._chosen_s >= CHOOSE_EVERY_S:
            self._chosen_s = at_s
            self._waits.choose()
            self._runs.choose()
        moments = self._ring.add(Moment(at_s, totals, self._waits.all))
        return Counted(totals, self._waits.by_name(), self._runs.by_name(), moments)

"""Add up histograms that many report, each since its own start: by name, and never falling."""

from collections.abc import Hashable, Iterable, Mapping

from ..model.named_times import NamedTimes
from ..model.octaves import TimeHistogram
from .totals import REMEMBERED

Histograms = Mapping[str, TimeHistogram]


class TimeTotals:
    """The sums of histograms by name over all who report them, since the first reports."""

    def __init__(self) -> None:
        self._sums = NamedTimes()
        self._begun = False
        self._seen: dict[Hashable, Histograms] = {}

    def add(self, reports: Iterable[tuple[Hashable, Histograms]]) -> None:
        """Take in reports: who says it, and histograms that have grown since its start.

        The first reports are of the time before, and only set the base, as in `SchedulerTotals`.
        Later ones count as a whole. So does a name that is reported again after a while, or whose
        numbers fell.
        """
        for who, now in reports:
            before = self._seen.pop(who, {} if self._begun else now)
            for name, one in now.items():
                came = one.since(before[name]) if name in before else one
                if came.count:
                    self._sums.add_all(name, came)
            self._seen[who] = now
        self._begun = True
        for who in list(self._seen)[:-REMEMBERED]:
            del self._seen[who]

    def choose(self) -> None:
        """Choose anew which names have histograms of their own."""
        self._sums.choose()

    @property
    def all(self) -> TimeHistogram:
        """The sum over all names."""
        return self._sums.all

    def by_name(self) -> Histograms:
        """Return the sums."""
        return self._sums.by_name()

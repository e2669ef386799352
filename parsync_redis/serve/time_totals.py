"""The sums of histograms that several processes report, by name. The sums never fall."""

from collections.abc import Hashable, Iterable, Mapping

from ..model.named_times import NamedTimes
from ..model.octaves import TimeHistogram
from .totals import MOST_REPORTERS

Histograms = Mapping[str, TimeHistogram]


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

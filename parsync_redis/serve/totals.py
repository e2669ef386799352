"""The sums of the figures that all schedulers report.

A scheduler counts from its own start, and its figures go when it goes. The sums stay.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ..store.reads.schedulers import SchedulerView

SUMMED_STATS: Final = ("claims", "conflicts", "merged", "own_ticks", "placed")
"""The figures of a scheduler that only grow."""

MOST_REPORTERS: Final = 1000
"""Maximum number of reporters whose last report is kept; a reporter may come back."""


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

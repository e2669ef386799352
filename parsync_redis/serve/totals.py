"""Count what all schedulers have done: each counts from its own start, and its figures
go with it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ..store.reads.schedulers import SchedulerView

COUNTED: Final = ("claims", "conflicts", "merged", "own_ticks", "placed")
"""The figures of a scheduler that only grow."""


REMEMBERED: Final = 1000
"""Schedulers whose figures are kept after they are gone, in case they come back."""


class SchedulerTotals:
    """The sums over all schedulers since the first survey, which never become smaller."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(COUNTED, 0)
        self._seen: dict[tuple[str, str], Mapping[str, int]] = {}
        self._begun = False

    def add(self, schedulers: Iterable[SchedulerView]) -> Mapping[str, int]:
        """Take in what schedulers say now, and return the sums.

        Figures of the first call are from before, and only set the base. A later scheduler counts
        as a whole. So does one with a figure that fell, for it has begun again: in containers its
        name and pid may stay.
        """
        for one in schedulers:
            who = (one.name, one.stats.get("pid", ""))
            now = {name: _number(one.stats.get(name, "")) for name in COUNTED}
            before = self._seen.pop(who, {} if self._begun else now)
            if any(number < before.get(name, 0) for name, number in now.items()):
                before = {}
            for name, number in now.items():
                self._sums[name] += number - before.get(name, 0)
            self._seen[who] = now
        self._begun = True
        for who in list(self._seen)[:-REMEMBERED]:
            del self._seen[who]
        return dict(self._sums)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 16 else 0

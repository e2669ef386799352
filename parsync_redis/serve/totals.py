"""Count what all schedulers have done: each counts from its own start, and its figures go with it."""

from collections.abc import Iterable, Mapping
from typing import Final

from ..store.members import SchedulerView

COUNTED: Final = ("claims", "conflicts", "merged", "own_ticks", "placed")
"""The figures of a scheduler that only grow."""


class SchedulerTotals:
    """The sums over all schedulers, which never become smaller."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(COUNTED, 0)
        self._seen: dict[tuple[str, str], Mapping[str, int]] = {}

    def add(self, schedulers: Iterable[SchedulerView]) -> Mapping[str, int]:
        """Take in what schedulers say now, and return the sums. A scheduler that is new counts as a whole."""
        seen: dict[tuple[str, str], Mapping[str, int]] = {}
        for one in schedulers:
            who = (one.name, one.stats.get("pid", ""))
            now = {name: _number(one.stats.get(name, "")) for name in COUNTED}
            before = self._seen.get(who, {})
            for name, number in now.items():
                self._sums[name] += max(0, number - before.get(name, 0))
            seen[who] = {name: max(number, before.get(name, 0)) for name, number in now.items()}
        self._seen = seen
        return dict(self._sums)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 16 else 0

"""Track for how long an observer has seen something, on its own monotonic clock; nothing in Redis counts that.

A new leader begins anew, and so does one that did not look for a while.
"""

from collections.abc import Hashable, Iterable


class AgeTracker:
    """The time at which each thing was seen first. All times are seconds of one monotonic clock."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self._since_s: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()
        self._awake_s = float("-inf")

    def reset(self) -> None:
        """Forget what was seen."""
        self._since_s.clear()
        self._seen.clear()

    def look(self, now_s: float, things: Iterable[Hashable]) -> dict[Hashable, float]:
        """Take in all things that are there now and forget the others. Returns each one's age."""
        self.begin(now_s)
        ages = {thing: self.age_s(now_s, thing) for thing in things}
        self.forget_unseen()
        return ages

    def begin(self, now_s: float) -> None:
        """Begin to look at some things; forget everything if the last look is more than `pause_s` ago."""
        if now_s - self._awake_s > self.pause_s:
            self.reset()
        self._awake_s = now_s

    def age_s(self, now_s: float, thing: Hashable) -> float:
        """Return for how long one thing has been seen, 0 if it is new."""
        self._seen.add(thing)
        return now_s - self._since_s.setdefault(thing, now_s)

    def forget_unseen(self) -> None:
        """Forget what was not seen since the last call; call it when everything has been looked at."""
        self._since_s = {thing: since for thing, since in self._since_s.items() if thing in self._seen}
        self._seen.clear()

"""For how long an observer has seen something, on its own monotonic clock: how a leader counts what nobody counts in
Redis. A new leader begins anew, and so does one that did not look for a while.
"""

from collections.abc import Hashable, Iterable


class AgeTracker:
    """Since when each thing has been there. All times are seconds of one monotonic clock."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self._since_s: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()
        self._awake_s = float("-inf")

    def reset(self) -> None:
        """Forgets what was seen."""
        self._since_s.clear()
        self._seen.clear()

    def look(self, now_s: float, things: Iterable[Hashable]) -> dict[Hashable, float]:
        """Takes in all that is there now, and forgets the rest: the age of each."""
        self.begin(now_s)
        ages = {thing: self.age_s(now_s, thing) for thing in things}
        self.forget_unseen()
        return ages

    def begin(self, now_s: float) -> None:
        """The observer looks again, at some things; who did not for `pause_s` has seen nothing."""
        if now_s - self._awake_s > self.pause_s:
            self.reset()
        self._awake_s = now_s

    def age_s(self, now_s: float, thing: Hashable) -> float:
        """For how long one thing has been seen, 0 if it is new."""
        self._seen.add(thing)
        return now_s - self._since_s.setdefault(thing, now_s)

    def forget_unseen(self) -> None:
        """Forgets what was not seen since the last call: all that is there has been looked at meanwhile."""
        self._since_s = {thing: since for thing, since in self._since_s.items() if thing in self._seen}
        self._seen.clear()

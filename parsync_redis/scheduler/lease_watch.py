"""Who stands still: the rule by which a lease is judged, on the observer's own monotonic clock and on no other.

A holder moves a counter. An observer that has itself watched the counter stand still for one lease may judge it dead
(the rule of Kubernetes' leases: act only on times captured locally). Whoever was not watching starts anew: after a
pause of the observer, and after the server restarted, nobody is judged for one lease.
"""

from collections.abc import Hashable, Iterable, Mapping


class LeaseWatch:
    """Counters as one observer saw them. All times are seconds of one monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}
        self._looked_s = float("-inf")

    def reset(self) -> None:
        """Forgets what was seen: the observation starts anew."""
        self._seen.clear()

    def look(self, now_s: float, counters: Mapping[Hashable, Hashable]) -> list[Hashable]:
        """Takes in all counters; those that have stood still for a lease while this observer watched."""
        if now_s - self._looked_s > self.lease_s / 2:
            self.reset()
        self._looked_s = now_s
        self._forget(self._seen.keys() - counters.keys())
        still = []
        for holder, counter in counters.items():
            seen = self._seen.get(holder)
            if seen is None or seen[0] != counter:
                self._seen[holder] = (counter, now_s)
            elif now_s - seen[1] >= self.lease_s:
                still.append(holder)
        return still

    def _forget(self, holders: Iterable[Hashable]) -> None:
        for holder in holders:
            del self._seen[holder]

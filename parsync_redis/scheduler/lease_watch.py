"""Judge leases: a holder whose counter does not move for one lease, by the observer's monotonic clock, is lost.

Only an observer that has itself watched the counter for that long may judge it (the rule of Kubernetes' leases: act
only on times captured locally). After a pause of the observer or a restart of the server nobody is judged for a lease.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping


class LeaseWatch:
    """The counters as one observer saw them. All times are seconds of one monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}
        self._looked_s = float("-inf")

    def reset(self, of: Callable[[Hashable], bool] = lambda _: True) -> None:
        """Forget what was seen of these holders: their watch starts anew."""
        self._forget([holder for holder in self._seen if of(holder)])

    def look(self, now_s: float, counters: Mapping[Hashable, Hashable]) -> list[Hashable]:
        """Take in all counters. Returns the holders whose counters stood still for a lease while this watched."""
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

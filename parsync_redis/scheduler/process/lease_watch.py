"""Counters, ages and the leader's lease, as an observer sees them by its own monotonic clock.

A holder of a lease whose counter does not move for one lease is lost. Only an observer that has
itself watched the counter for that long may judge this (the rule of Kubernetes' leases: act only on
times captured locally). After a pause of the observer, or a restart of the server, nobody is judged
for a lease.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping

from ...model.replies import Members


class HighWaterMarks:
    """The highest value seen of numbers that only grow, by name.

    A number that decreased shows that the server has lost writes: it restarted without its last
    writes, or a replica took over that did not have them.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def see(self, numbers: Mapping[str, int]) -> list[str]:
        """Take in the numbers as they are now. Returns those that decreased, as 'NAME=WAS->IS'."""
        decreased = [
            f"{name}={self._seen[name]}->{now}"
            for name, now in numbers.items()
            if now < self._seen.get(name, 0)
        ]
        self._seen.update(numbers)
        return decreased


class AgeTracker:
    """The time since which an observer has seen each key (monotonic); nothing in Redis counts that.

    A new leader begins anew, and so does an observer that did not look for `pause_s`.
    """

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self._since_s: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()
        self._awake_s = float("-inf")

    def reset(self) -> None:
        """Forget what was seen."""
        self._since_s.clear()
        self._seen.clear()

    def look(self, now_s: float, keys: Iterable[Hashable]) -> dict[Hashable, float]:
        """Take in all keys that are there now, and forget all other keys.

        Returns the age of each in seconds.
        """
        self.begin(now_s)
        ages = {key: self.age_s(now_s, key) for key in keys}
        self.forget_unseen()
        return ages

    def begin(self, now_s: float) -> None:
        """Begin to look; forget everything if the last look was more than `pause_s` ago."""
        if now_s - self._awake_s > self.pause_s:
            self.reset()
        self._awake_s = now_s

    def age_s(self, now_s: float, key: Hashable) -> float:
        """Return for how long a key has been seen, 0 if it is new."""
        self._seen.add(key)
        return now_s - self._since_s.setdefault(key, now_s)

    def forget_unseen(self) -> None:
        """Forget the keys that were not seen since the last call.

        Call this when all keys have been looked at.
        """
        self._since_s = {
            key: since_s for key, since_s in self._since_s.items() if key in self._seen
        }
        self._seen.clear()


class LeaseWatch:
    """The counters as one observer has seen them. All times are seconds of one monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}
        self._looked_s = float("-inf")

    def reset(self, is_reset: Callable[[Hashable], bool] = lambda _: True) -> None:
        """Forget what was seen of the holders for which `is_reset` is true.

        Their watch starts anew.
        """
        self._forget([holder for holder in self._seen if is_reset(holder)])

    def look(self, now_s: float, counters: Mapping[Hashable, Hashable]) -> list[Hashable]:
        """Take in all counters.

        Returns the holders whose counters stood still for a lease of watching.
        """
        if now_s - self._looked_s > self.lease_s / 2:
            self.reset()
        self._looked_s = now_s
        self._forget(self._seen.keys() - counters.keys())
        still = []
        for holder, counter in counters.items():
            last_seen = self._seen.get(holder)
            if last_seen is None or last_seen[0] != counter:
                self._seen[holder] = (counter, now_s)
            elif now_s - last_seen[1] >= self.lease_s:
                still.append(holder)
        return still

    def _forget(self, holders: Iterable[Hashable]) -> None:
        """Forget these holders."""
        for holder in holders:
            del self._seen[holder]


class Leadership:
    """The leader's lease, as scheduler `me` sees it.

    The lease's counter is its text, 'NAME moved=N'. A scheduler that has watched the text stand
    still for half a lease takes the lease over with its next renewal. Half a lease is enough,
    because two leaders at once are harmless.

    leads: `me` holds the lease.
    stale: the text to be taken over; '' for none.
    """

    def __init__(self, me: str, lease_s: float) -> None:
        self._me = me
        self._holder = LeaseWatch(lease_s / 2)
        self.leads = False
        self.stale = ""

    def see(self, members: Members, now_s: float) -> bool:
        """Take in the reply to a renewal. Returns True if `me` has just become leader."""
        before = self.leads
        self.leads = members.leader.partition(" ")[0] == self._me
        still = self._holder.look(now_s, {"holder": members.leader})
        self.stale = members.leader if still and not self.leads else ""
        return self.leads and not before

    def reset(self) -> None:
        """Watch anew: perhaps the holder could not reach the server either."""
        self._holder.reset()
        self.stale = ""

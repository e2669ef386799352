"""Judge leases: a holder whose counter does not move for one lease, by the observer's monotonic
clock, is lost.

Only an observer that has itself watched the counter for that long may judge it (the rule of
Kubernetes' leases: act only on times captured locally). After a pause of the observer or a restart
of the server nobody is judged for a lease.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping

from ...model.replies import Members

# High-water marks of numbers that only grow: one that went back shows that the server has lost
# writes.
#
# It restarted without its last writes, or a replica took over that did not have them.


class HighWaterMarks:
    """The highest value seen of each number, by name."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def see(self, numbers: Mapping[str, int]) -> list[str]:
        """Take in the numbers as they are now. Returns those that went back, as 'NAME=WAS->IS'."""
        back = [
            f"{name}={self._seen[name]}->{now}"
            for name, now in numbers.items()
            if now < self._seen.get(name, 0)
        ]
        self._seen.update(numbers)
        return back


# Track for how long an observer has seen something, on its own monotonic clock; nothing in Redis
# counts that.
#
# A new leader begins anew, and so does one that did not look for a while.


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
        """Begin to look at some things; forget everything if the last look is more than `pause_s`
        ago.
        """
        if now_s - self._awake_s > self.pause_s:
            self.reset()
        self._awake_s = now_s

    def age_s(self, now_s: float, thing: Hashable) -> float:
        """Return for how long one thing has been seen, 0 if it is new."""
        self._seen.add(thing)
        return now_s - self._since_s.setdefault(thing, now_s)

    def forget_unseen(self) -> None:
        """Forget what was not seen since the last call; call it when everything has
        been looked at.
        """
        self._since_s = {
            thing: since for thing, since in self._since_s.items() if thing in self._seen
        }
        self._seen.clear()


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
        """Take in all counters.

        Returns the holders whose counters stood still for a lease while this watched.
        """
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


# The leader: the scheduler that holds the leader lease. Its counter is the text of the lease, 'NAME
# moved=N'.
#
# A scheduler that has watched the text stand still for half a lease takes it over with its next
# renewal. Two leaders at once are harmless, so that this may be short.


class Leadership:
    """The leader lease, as scheduler `me` sees it.

    leads: `me` holds it. stale: the text to be taken over, else ''.
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
        """Watch anew: the holder may just as little have reached the server."""
        self._holder.reset()
        self.stale = ""

"""The leader: the scheduler that holds the leader lease. Its counter is the text of the lease, 'NAME moved=N'.

A scheduler that has watched the text stand still for half a lease takes it over with its next renewal. Two leaders at
once are harmless, so that this may be short.
"""

from ..model.replies import Members
from .lease_watch import LeaseWatch


class Leadership:
    """The leader lease, as scheduler `me` sees it. leads: `me` holds it. stale: the text to be taken over, else ''."""

    def __init__(self, me: str, lease_s: float) -> None:
        self._me = me
        self._holder = LeaseWatch(lease_s / 2)
        self.leads = False
        self.stale = ""

    def see(self, members: Members, now_s: float) -> bool:
        """Take in the reply to a renewal. Returns True if `me` has just become leader."""
        before, self.leads = self.leads, members.leader.partition(" ")[0] == self._me
        still = self._holder.look(now_s, {"holder": members.leader})
        self.stale = members.leader if still and not self.leads else ""
        return self.leads and not before

    def reset(self) -> None:
        """Watch anew: the holder may just as little have reached the server."""
        self._holder.reset()
        self.stale = ""

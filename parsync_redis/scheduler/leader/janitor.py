"""The leader's work: it repairs what dead processes left.

Two leaders at once are harmless, because scripts judge every step.

A task is requeued before its slot is freed. A pending task is fenced: whatever the lost process
still does with the task changes nothing. The work of a pass is bounded; the next pass goes on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from ...settings import DEFAULT_FORGET_S
from ...store.store import Store
from ..core.large_kinds import LargeKind
from ..process.guarded import guarded
from .backfill import BackfillDuty
from .black_holes import BlackHoleDuty
from .damage import DamageDuty
from .kinds import KindDuty, expire
from .nodes import NodeDuty
from .offers import OfferDuty
from .places import PlaceDuty
from .schedulers import SchedulerDuty


class Janitor:
    """The leader's duties.

    lease_s: how long a counter must stand still, while this leader watches, to be lost. large:
    returns the large kinds without room. pause: waits between the calls that look for damage.
    forget_s: how long a node that is down is kept.
    """

    def __init__(
        self,
        store: Store,
        partitions: int,
        lease_s: float,
        large: Callable[[], Sequence[LargeKind]] = tuple,
        pause: Callable[[float], object] = lambda _: None,
        forget_s: float = DEFAULT_FORGET_S,
    ) -> None:
        self._store = store
        self.nodes = NodeDuty(store, partitions, lease_s, forget_s)
        self.schedulers = SchedulerDuty(store, lease_s)
        self.places = PlaceDuty(store, partitions, lease_s)
        self.kinds = KindDuty(store)
        self.offers = OfferDuty(store, partitions, lease_s, forget_s)
        self.black_holes = BlackHoleDuty(store, partitions, lease_s)
        self.damage = DamageDuty(store, partitions, lease_s, pause)
        self.backfill = BackfillDuty(store, lease_s, large)

    def reset(self, partitions: Collection[int] | None = None) -> None:
        """Judge nobody for one lease: the server restarted, or this process has just become leader.

        partitions: judge none of their nodes, and all else as before, because only their primary
        restarted.
        """
        self.nodes.reset(partitions)
        self.places.reset()
        if partitions is None:
            self.schedulers.reset()

    def work(
        self, clock: Callable[[], float], members: Mapping[str, int], seen_s: float | None = None
    ) -> None:
        """Do one pass.

        clock: is asked after each read, because a counter was seen when the reply had come, not
        when it was asked for. members: the counter of each scheduler, as they were at `seen_s`;
        None for now.
        """
        guarded(self._store, "damage", self.damage.work, clock)
        guarded(self._store, "nodes", self.nodes.work, clock)
        guarded(self._store, "black holes", self.black_holes.work)
        guarded(self._store, "schedulers", self.schedulers.work, clock, members, seen_s)
        guarded(self._store, "expire", expire, self._store)
        guarded(self._store, "audit", self.places.work, clock)
        guarded(self._store, "kinds", self.kinds.work)
        guarded(self._store, "offers", self.offers.work, clock(), self.nodes.names, self.nodes.up)
        guarded(self._store, "backfill", self.backfill.work, clock())

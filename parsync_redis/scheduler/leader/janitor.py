"""The leader's work, and its thread: it repairs what dead processes left.

The thread has connections of its own, so that lease and ticks never wait for it. The membership
tells the thread when a pass is due, and when what the thread has watched is worth nothing any more.
From that moment a running pass makes no call of the store: it ends at its next call.

Two leaders at once are harmless, because scripts judge every step.

A task is requeued before its slot is freed. A pending task is fenced: whatever the lost process
still does with the task changes nothing. The work of a pass is bounded; the next pass goes on.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...settings import DEFAULT_FORGET_S
from ...store.server.server_errors import Backoff
from ...store.store import Store
from ..core.large_kinds import LargeKind
from ..process.guarded import guarded
from .allotments import AllotmentDuty
from .backfill import BackfillDuty
from .black_holes import BlackHoleDuty
from .damage import DamageDuty
from .kinds import KindDuty, expire
from .nodes import NodeDuty
from .offers import OfferDuty
from .places import PlaceDuty
from .policy import PolicyDuty
from .schedulers import SchedulerDuty
from .used_shares import UsedShareDuty

log = logging.getLogger("parsync.scheduler")


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
        self.policy = PolicyDuty(store, lease_s)
        self.allotments = AllotmentDuty(store)
        self.used_shares = UsedShareDuty(store, lease_s)

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
        guarded(self._store, "policy", self.policy.work, clock())
        guarded(self._store, "allotments", self.allotments.work)
        guarded(self._store, "used shares", self.used_shares.work, self.policy.policy, clock())
        guarded(self._store, "backfill", self.backfill.work, clock())


class PassOver(Exception):
    """The exception that ends a pass.

    This scheduler leads no longer, or must watch all members and nodes anew.
    """


class LeaderWork(threading.Thread):
    """Does a pass of the janitor whenever a pass is due.

    The membership calls `see`, `reset`, `next_lost` and `stop`.
    """

    def __init__(
        self,
        store: Store,
        partitions: int,
        lease_s: float,
        leads: Callable[[], bool],
        large: Callable[[], Sequence[LargeKind]] = tuple,
        forget_s: float = DEFAULT_FORGET_S,
    ) -> None:
        super().__init__(name="leader", daemon=True)
        self._leads = leads
        self._lease_s = lease_s
        self.store = store.with_own_connections()
        self.store.before = self._check
        self._due = threading.Event()
        self._done = threading.Event()
        self._janitor = Janitor(self.store, partitions, lease_s, large, self._done.wait, forget_s)
        self._lock = threading.Lock()
        self._resets: list[Collection[int] | None] = []
        self._seen: tuple[Mapping[str, int], float] = {}, 0.0
        self._lost: list[str] = []

    def see(self, members: Mapping[str, int], seen_s: float) -> None:
        """Make a pass due. members: the counter of each scheduler at `seen_s` (monotonic)."""
        self._seen = members, seen_s
        self._due.set()

    def reset(self, partitions: Collection[int] | None = None) -> None:
        """End the running pass; the next pass watches anew, as `Janitor.reset` says."""
        with self._lock:
            self._resets.append(partitions)
            if partitions is None:
                self._lost = []

    def next_lost(self) -> str:
        """Return 'NAME COUNTER' of a scheduler that was judged lost, each once.

        Returns '' if there is none.
        """
        with self._lock:
            return self._lost.pop() if self._lost else ""

    @property
    def booked(self) -> bool:
        """True if the last pass has booked nodes, or a node holds back a name."""
        return self._janitor.backfill.booked or self._janitor.black_holes.held

    def stop(self) -> None:
        """End the thread and the running pass, and close the connections."""
        self._done.set()
        self._due.set()
        if self.ident is not None:
            self.join(timeout=10)
        self.store.disconnect()

    def run(self) -> None:
        """Do passes until stopped. After an error the next pass watches anew."""
        backoff = Backoff(log, "the leader's work", self._lease_s / 8)
        while self._due.wait() and not self._done.is_set():
            self._due.clear()
            try:
                self.work()
                backoff.well()
            except PassOver:
                log.info(
                    "a pass of the leader's work ended early: it leads no longer, or watches anew"
                )
            except (ParsyncError, RedisError, OSError) as error:
                # the server did not answer, so that a counter that stands still proves nothing
                self.reset()
                self._done.wait(backoff.pause_s(error))
            except Exception:
                log.exception("the leader's work: unexpected")
                self.reset()
                self._done.wait(self._lease_s / 16)

    def work(self) -> None:
        """Do one pass. Raises PassOver if it had to end early."""
        with self._lock:
            resets = self._resets
            self._resets = []
        for partitions in resets:
            self._janitor.reset(partitions)
        members, seen_s = self._seen
        self._janitor.work(time.monotonic, members, seen_s)
        with self._lock:
            if not self._resets:
                self._lost = list(self._janitor.schedulers.lost)

    def _check(self) -> None:
        """Raise PassOver if the running pass may do no more."""
        if self._resets or self._done.is_set() or not self._leads():
            raise PassOver

"""A scheduler's part in the backfill: it obeys bookings, and finds large kinds without room.

The scheduler tells these kinds to the leader's work. The scheduler also keeps tasks from nodes that
hold back their name, and long tasks from nodes that leave. The ticks say whether there are bookings
or nodes that hold back a name; otherwise, and while no node leaves, nothing is read.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import Final

from ...model.booking import Booking
from ...model.node import Notice
from ...model.times import class_of, field_of_class
from ...store.reads.views import read_booked, read_holds
from ...store.repair.lost_leases import now_ms
from ...store.store import Store
from ..core.booking_turns import BookingTurns
from ..core.core import Core
from ..core.large_kinds import LargeKind, LeastAsked, find_large, large_groups
from ..core.reservations import BarredNodes
from .guarded import unless_away
from .run_time_reader import RunTimeReader

MAX_NAMES: Final = 1000
"""Maximum number of waiting names whose run times are read; other tasks avoid booked nodes."""

MAX_GROUPS: Final = 1000
"""Maximum number of waiting groups whose amounts are considered."""


class BookingReader:
    """Tells the leader's work which large kinds are starving, and keeps tasks off barred nodes.

    heard: whether the last tick said that nodes are booked, or hold back a name.
    """

    def __init__(self, store: Store, core: Core, gap_s: float, lease_s: float) -> None:
        self._store = store
        self._core = core
        self._gap_s = gap_s
        self._lease_s = lease_s
        self.heard = False
        self._large: tuple[LargeKind, ...] = ()
        # whether the leader's work has read `_large` since the kinds were last found
        self._is_read = False
        self._least = LeastAsked(lease_s)
        core.on_least(self._least)
        self._times = RunTimeReader(store, lease_s)

    def large(self) -> tuple[LargeKind, ...]:
        """Return the large kinds that found no room lately, and ask for those of the next gap.

        Only the leader's thread calls this, so the other schedulers never find the kinds. The first
        answer of a new leader is empty. The kinds are found in the scheduler's thread, which alone
        may use the queue, and are replaced as a whole.
        """
        large = self._large
        self._is_read = True
        return large

    def work(self, now_s: float) -> None:
        """Once in a gap read the bookings, if any; find the large kinds if the leader asks."""
        queue = self._core.queue
        self._least.see(islice(queue.groups, MAX_GROUPS), now_s)
        queue.find_full(queue.blocked.strict)
        if self._is_read:
            self._is_read = False
            self._large = self._find_large() if queue.blocked.strict else ()
        notices = self._core.view.notices
        if not self.heard and not queue.barred and not notices:
            return
        barred = BarredNodes()
        with unless_away(self._store):
            held_back = self._read_held() if self.heard else {}
            bookings = read_booked(self._store) if self.heard else ()
            barred = BarredNodes(held_back=held_back)
            if bookings or notices:
                barred = self._judge(bookings, held_back, notices, now_s)
        self._core.on_barred(barred)

    def _find_large(self) -> tuple[LargeKind, ...]:
        """Return the large kinds without room, of tenants those that may have bookings."""
        queue = self._core.queue
        if queue.tree is None:
            return find_large(queue.blocked.strict, self._least)
        groups = large_groups(queue.blocked.strict, self._least)
        return BookingTurns(queue, groups).large() if groups else ()

    def _read_held(self) -> dict[str, frozenset[str]]:
        """Return {task name -> the nodes that take no task of this name for now}.

        Nodes that have restarted since they declared this are left out.
        """
        alive = {(node.name, node.inc) for p in self._core.view.partitions for node in p.nodes}
        holds = read_holds(self._store)
        held_back = {
            name: frozenset(node for node, _ in nodes & alive) for name, nodes in holds.items()
        }
        return {name: nodes for name, nodes in held_back.items() if nodes}

    def _judge(
        self,
        bookings: Sequence[Booking],
        held_back: Mapping[str, frozenset[str]],
        notices: Mapping[str, Notice],
        now_s: float,
    ) -> BarredNodes:
        """Return which nodes are barred for which kinds, until the next gap."""
        booked = {*notices, *(booking.node for booking in bookings)}
        all_nodes = (node for p in self._core.view.partitions for node in p.nodes)
        class_of_offer = cache(class_of)
        classes = {
            node.name: class_of_offer(node.offer) for node in all_nodes if node.name in booked
        }
        kinds = self._core.queue.kinds
        names = [
            *dict.fromkeys(
                waiting.kind.name for kinds_of_shard in kinds for waiting in kinds_of_shard.values()
            )
        ][:MAX_NAMES]
        different = {*classes.values()}
        fields = (field_of_class(name, of_nodes) for name in names for of_nodes in different)
        self._times.read(chain(names, fields), now_s)
        until_ms = now_ms(self._store) + round(1000 * self._gap_s)
        return BarredNodes(
            bookings,
            self._times.learnt.p95_ms,
            until_ms,
            held_back,
            notices,
            self._lease_s,
            classes,
        )

"""Bars: the nodes where a kind may place nothing now.

A node may be booked for another kind; then tasks go there that end before. A node may hold back a
name, because such tasks fail there (decision 0056).

Only schedulers judge it. A copy that is a little old can delay a large task a little, or has a node
give back a task whose name it holds back, and nothing else.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ...model.booking import Booking
from ...model.kind import Kind
from .kind_group import KindGroup
from .partition import PartitionCopy, Seats

NOWHERE: Final[frozenset[str]] = frozenset()


class Bars:
    """The effects of the bookings, and of the names that nodes hold back, at one moment.

    held: by name the nodes that hold it back. for_whom: by booked node, for people.
    """

    def __init__(
        self,
        bookings: Sequence[Booking] = (),
        runs_ms: Mapping[tuple[str, str], float] | None = None,
        now_ms: int = 0,
        held: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """runs_ms: by node and name, how long 95 % of such tasks run there at most, as far as it is
        known.
        """
        self.bookings = bookings
        self._runs_ms = runs_ms or {}
        self._now_ms = now_ms
        self.held = held or {}
        self.for_whom = {booking.node: booking.whom for booking in bookings}
        self._barred: dict[tuple[str, str], frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.bookings or self.held)

    def of(self, kind: Kind) -> frozenset[str]:
        """Return the nodes where tasks of a kind may not go now. Cached."""
        if not self:
            return NOWHERE
        asked = kind.name, kind.needs
        if asked not in self._barred:
            self._barred[asked] = frozenset(
                one.node
                for one in self.bookings
                if one.bars(*asked, self._runs_ms.get((one.node, kind.name)), self._now_ms)
            ) | self.held.get(kind.name, NOWHERE)
        return self._barred[asked]

    def sentences(self, group: KindGroup) -> Mapping[str, str]:
        """Return for whom each node is kept that is barred for a group."""
        return {node: self.for_whom[node] for node in group.barred if node in self.for_whom}


def seats_for(group: KindGroup, partition: PartitionCopy, ahead: bool = False) -> Seats:
    """Return the seats for the tasks of a group in a partition, without those on nodes that are
    barred for it.
    """
    found = partition.seats(group.needs, group.knowers, ahead)
    return _without(found, group.barred) if group.barred else found


def _without(found: Seats, barred: Collection[str]) -> Seats:
    others = found.partition.offers.others(barred)
    if others is None:
        return found
    kept = others[found.nodes]
    return Seats(
        found.partition,
        found.bits,
        found.leads[kept],
        found.nodes[kept],
        found.paces[kept],
        found.size,
    )

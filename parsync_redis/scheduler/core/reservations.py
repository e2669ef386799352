"""Barred nodes: the nodes where a kind may place nothing now.

A node may be booked for another kind; then the kind's tasks may go there only if they end before
the booking's task starts. A node that leaves (decision 0086) is booked for nobody: tasks may go
there only if they end before. A node may hold back a name, because such tasks fail there (decision
0056).

Only schedulers judge this, by copies that may be a little old. So a large task may be delayed a
little, or a node may give back a task whose name it holds back. Nothing else can happen.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ...model.booking import Booking
from ...model.kind import Kind
from ...model.node import Notice
from ...placement.now import before_they_end
from .kind_group import KindGroup
from .partition import PartitionCopy, Seats

NOWHERE: Final[frozenset[str]] = frozenset()
"""No node."""


class Bar(NamedTuple):
    """The reason for which a node takes no task of a kind: one of three.

    booked: the task that the node is booked for, as text for people.
    leaves: the sentence about a node that leaves before such tasks end.
    held_back: the node holds back the name of the kind.
    """

    booked: str = ""
    leaves: str = ""
    held_back: bool = False


class LeavingNodes:
    """The nodes that leave, by class, in the order of the times at which their runs are ended.

    There are far fewer classes than nodes, and tasks of a name run equally long on all of a class.
    """

    def __init__(
        self, notices: Mapping[str, Notice], lease_s: float, classes: Mapping[str, str]
    ) -> None:
        """classes: by node its class; '' for a node that is missing."""
        ends_ms: dict[str, list[tuple[float, str]]] = {}
        for node, notice in notices.items():
            of_class = ends_ms.setdefault(classes.get(node, ""), [])
            of_class.append((notice.end_ms(lease_s), node))
        self._by_class = {
            node_class: (sorted(ends), [node for _, node in sorted(ends)])
            for node_class, ends in ends_ms.items()
        }

    def before(self, run_ms_on: Callable[[str], float | None], now_ms: int) -> Collection[str]:
        """Return the nodes whose runs may be ended before a task that starts now has ended.

        run_ms_on: returns the longest run time of the task on a node class; None if no run time is
            known, which counts as too long.
        """
        barred = list[str]()
        for node_class, (ends, nodes) in self._by_class.items():
            run_ms = run_ms_on(node_class)
            count = len(ends) if run_ms is None else bisect_left(ends, (now_ms + run_ms, ""))
            barred += nodes[:count]
        return barred


class BarredNodes:
    """The nodes where kinds may place nothing, at one moment.

    A node may be booked for another task, leave soon, or hold back the name of a kind.

    bookings: the booked nodes.
    notices: by node, when it leaves.
    held_back: by name, the nodes that hold the name back.
    """

    def __init__(
        self,
        bookings: Sequence[Booking] = (),
        p95_ms: Callable[[str, str], float | None] = lambda name, node_class: None,
        now_ms: int = 0,
        held_back: Mapping[str, frozenset[str]] | None = None,
        notices: Mapping[str, Notice] | None = None,
        lease_s: float = 0.0,
        classes: Mapping[str, str] | None = None,
    ) -> None:
        """Judge bookings and notices at `now_ms` (server time).

        p95_ms: returns for a name and a node class the time that 95 % of such tasks run there at
            most; None if it is not known.
        classes: of the booked nodes and those that leave, their node classes; '' for one that is
            missing.
        """
        self.bookings = bookings
        self._p95_ms = p95_ms
        self._classes = classes or {}
        self._now_ms = now_ms
        self.held_back = held_back or {}
        self.notices = notices or {}
        self._leaving = LeavingNodes(self.notices, lease_s, self._classes)
        # nodes whose notices came after this was made
        self._unjudged: Mapping[str, Notice] = {}
        self._barred: dict[tuple[str, str, str], frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.bookings or self.held_back or self.notices or self._unjudged)

    def see(self, notices: Mapping[str, Notice]) -> None:
        """Take in the notices of the nodes of the view.

        Nothing goes to a node whose notice has just come, until its time is judged.
        """
        new = {node: notice for node, notice in notices.items() if self.notices.get(node) != notice}
        if new != self._unjudged:
            self._unjudged = new
            self._barred.clear()

    def of(self, kind: Kind) -> frozenset[str]:
        """Return the nodes where tasks of a kind may not go now. Cached."""
        if not self:
            return NOWHERE
        key = kind.name, kind.needs, kind.tenant
        if key not in self._barred:
            booked = (booking.node for booking in self._barring(kind))
            held_back = self.held_back.get(kind.name, NOWHERE)
            self._barred[key] = held_back.union(booked, self._left_too_soon(kind), self._unjudged)
        return self._barred[key]

    def bars(self, kind: Kind) -> Mapping[str, Bar]:
        """Return what bars each node where tasks of a kind may not go now, by node.

        A booking goes before a notice, and a notice before failures.
        """
        barred_by = dict.fromkeys(self.held_back.get(kind.name, NOWHERE), Bar(held_back=True))
        for node in (*self._left_too_soon(kind), *self._unjudged):
            notice = self._unjudged.get(node) or self.notices[node]
            barred_by[node] = Bar(leaves=before_they_end(notice.at_ms))
        for booking in self._barring(kind):
            barred_by[booking.node] = Bar(booked=booking.whom)
        return barred_by

    def _barring(self, kind: Kind) -> Iterator[Booking]:
        """Yield the bookings that bar a kind."""
        for booking in self.bookings:
            run_ms = self._p95_ms(kind.name, self._classes.get(booking.node, ""))
            if booking.bars(kind, run_ms, self._now_ms):
                yield booking

    def _left_too_soon(self, kind: Kind) -> Collection[str]:
        """Return the nodes that may leave before a task of a kind has ended."""
        return self._leaving.before(
            lambda node_class: self._p95_ms(kind.name, node_class), self._now_ms
        )


def seats_for(group: KindGroup, partition: PartitionCopy, ahead: bool = False) -> Seats:
    """Return the seats for a group in a partition, without those on nodes barred for the group."""
    seats = partition.seats(group.needs, group.knowers, ahead)
    return _without(seats, group.barred) if group.barred else seats


def _without(seats: Seats, barred: Collection[str]) -> Seats:
    """Return the seats that are not on barred nodes."""
    is_open = seats.partition.offers.without(barred)
    if is_open is None:
        return seats
    open_seats = is_open[seats.nodes]
    return Seats(
        seats.partition,
        seats.bits,
        seats.leads[open_seats],
        seats.nodes[open_seats],
        seats.paces[open_seats],
        seats.size,
    )

"""The seats that a group of kinds may be given now, and the partitions to read for more of them.

To avoid a task's last node is a wish, not a rule: a task goes back there if no other node has a
seat.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf

import numpy as np

from ...model.needs import Resources
from ...model.options import Strategy
from ...placement.strategy import sample
from .freshness import Freshness, PartitionOrder
from .kind_group import KindGroup
from .partition import PartitionCopy, Reservation, Seats
from .reservations import seats_for
from .scarce import keep_back, not_asked
from .view import View


def count_seats(seat_lists: Iterable[Iterable[Seats]], kept_back: bool = True) -> int:
    """Return the number of seats, with those that are kept back, or without."""
    return sum(
        len(seats.leads)
        for seats in chain.from_iterable(seat_lists)
        if kept_back or not seats.kept_back
    )


def sample_seats(
    seats: Sequence[Seats], count: int, needs: Resources, rng: np.random.Generator
) -> list[Reservation]:
    """Reserve up to `count` of these seats, sampled by their score; return them by partition."""
    paces = np.concatenate([of_partition.paces for of_partition in seats])
    ends = np.cumsum([len(of_partition.leads) for of_partition in seats])
    chosen = sample(rng, paces, count)
    index_of_seats = np.searchsorted(ends, chosen, side="right")
    reservations: list[Reservation] = []
    for i in sorted(set(index_of_seats.tolist())):
        of_partition = seats[i]
        begin = int(ends[i]) - len(of_partition.leads)
        chosen_here = chosen[index_of_seats == i] - begin
        reservations.append(of_partition.partition.reserve(of_partition, chosen_here, needs))
    return reservations


def split_off(reservations: list[Reservation], count: int) -> list[Reservation]:
    """Remove `count` seats from the front of reservations; return them as reservations."""
    split: list[Reservation] = []
    while count and reservations:
        reservation = reservations[0]
        if len(reservation) <= count:
            split.append(reservations.pop(0))
        else:
            split.append(reservation.split(count))
        count -= len(split[-1])
    return split


def _move_up(reservation: Reservation, node: str) -> bool:
    """Make the first seat that is not on this node the first of all; False if there is none."""
    avoided = reservation.partition.offers.index_of(node)
    position = next((i for i, owner in enumerate(reservation.owners) if owner != avoided), -1)
    if position > 0:
        reservation.move_up(position)
    return position >= 0


class SeatFinder:
    """Finds seats in those partitions of a view that are fresh enough for the strategy."""

    def __init__(
        self,
        view: View,
        freshness: Freshness,
        orders: Mapping[Strategy, PartitionOrder],
        rng: np.random.Generator,
    ) -> None:
        self._view = view
        self._freshness = freshness
        self._orders = orders
        self._rng = rng

    def find(
        self, group: KindGroup, strategy: Strategy, limit: float, ahead: bool = False
    ) -> Sequence[Sequence[Seats]]:
        """Return the seats of a group that are fresh enough, in the strategy's partition order.

        Seats that are kept back for other tasks come last. The search ends with the partitions that
        complete `limit` seats that are not kept back. ahead: waiting seats, not slots.
        """
        is_stale = self._freshness.is_stale
        unasked = not_asked(group.needs, self._view.scarce)
        with_seats = (
            p for p in self._view.partitions if (p.ahead_count if ahead else p.free_count)
        )
        fresh = [p for p in with_seats if not is_stale(p, strategy)]
        first = list[Sequence[Seats]]()
        last = list[Sequence[Seats]]()
        for partitions in self._orders[strategy](fresh):
            seats = [seats_for(group, partition, ahead) for partition in partitions]
            open_seats, kept_back = keep_back(seats, unasked)
            first.append(open_seats)
            last.append(kept_back)
            limit -= sum(len(of_partition.leads) for of_partition in open_seats)
            if limit <= 0:
                break
        return [*first, *last]

    def find_elsewhere(
        self, node: str, group: KindGroup, strategy: Strategy, reserved: Sequence[Reservation]
    ) -> Reservation | None:
        """Return a reservation whose first seat is not on this node; None if there is none.

        A reservation of `reserved` goes before a new reservation, which has one seat.
        """
        for reservation in reserved:
            if _move_up(reservation, node):
                return reservation
        for seats in chain.from_iterable(self.find(group, strategy, inf)):
            elsewhere = np.flatnonzero(seats.nodes != seats.partition.offers.index_of(node))
            if len(elsewhere):
                chosen = elsewhere[sample(self._rng, seats.paces[elsewhere], 1)]
                return seats.partition.reserve(seats, chosen, group.needs)
        return None

    def fetch(self, group: KindGroup, strategy: Strategy, limit: int, kept_back: bool) -> bool:
        """Read stale partitions until they have `limit` seats; True if they have any.

        Partitions with many free slots are more likely to be read. kept_back: seats that are kept
        back count too.
        """
        is_stale = self._freshness.is_stale
        unasked = not_asked(group.needs, self._view.scarce)
        stale = [p for p in self._view.partitions if p.free_count and is_stale(p, strategy)]
        free = np.array([partition.free_count for partition in stale], dtype=float)
        total = 0
        chosen = list[PartitionCopy]()
        for i in sample(self._rng, 1 / free, len(stale)).tolist():
            if total >= limit:
                break
            count = count_seats(keep_back([seats_for(group, stale[i])], unasked), kept_back)
            if count:
                chosen.append(stale[i])
                total += count
        self._freshness.fetch(partition.number for partition in chosen)
        return total > 0

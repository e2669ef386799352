"""The seats that a group of kinds may be given now, and the partitions to read for more seats."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from ...model.needs import Resources
from ...model.options import Strategy
from ...placement.preferences import rules_of
from ...placement.preferences.marks import not_asked
from ...placement.preferences.preference import ClusterNow, Preference
from ...placement.preferences.ranks import kept_back_from
from ...placement.strategy import sample
from .candidates import Candidates, count_below
from .claim_outcomes import Widths
from .freshness import Freshness, PartitionOrder, freshest_first, places_in_turn
from .kind_group import KindGroup
from .partition import PartitionCopy, Reservation, Seats
from .reservations import seats_for
from .view import View

MAX_SHIFT: Final = 1 << 20
"""The bound of the random number by which seats are moved to other free slots of their nodes."""


def sample_seats(
    seats: Sequence[Seats], count: int, needs: Resources, rng: np.random.Generator
) -> list[Reservation]:
    """Reserve up to `count` of these seats, sampled by their score; return them by partition."""
    paces = np.concatenate([of_partition.paces for of_partition in seats])
    ends = np.cumsum([len(of_partition.leads) for of_partition in seats])
    chosen = sample(rng, paces, count)
    moves = bool(needs.amounts) and len(seats[0].rules) > 1
    shift = int(rng.integers(1, MAX_SHIFT)) if moves else 0
    index_of_seats = np.searchsorted(ends, chosen, side="right")
    reservations: list[Reservation] = []
    for i in sorted(set(index_of_seats.tolist())):
        of_partition = seats[i]
        begin = int(ends[i]) - len(of_partition.leads)
        chosen_here = chosen[index_of_seats == i] - begin
        reservations.append(of_partition.partition.reserve(of_partition, chosen_here, needs, shift))
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


def _is_kept_back(reservation: Reservation, owner: int) -> bool:
    """Return whether the seats of a node, by its index, are kept back for other tasks."""
    rules = reservation.rules
    return bool(rules) and reservation.ranks[owner] >= kept_back_from(rules)


def _move_up(reservation: Reservation, node: str, kept_back: bool) -> bool:
    """Make the first seat that is not on this node the first of all; False if there is none.

    kept_back: the seat may be kept back for other tasks.
    """
    avoided = reservation.partition.offers.index_of(node)
    usable = (
        position
        for position, owner in enumerate(reservation.owners)
        if owner != avoided and (kept_back or not _is_kept_back(reservation, owner))
    )
    position = next(usable, -1)
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
        widths: Widths,
    ) -> None:
        self._view = view
        self._freshness = freshness
        self._orders = orders
        self._rng = rng
        self._widths = widths

    def find(
        self,
        group: KindGroup,
        strategy: Strategy,
        limit: float,
        ahead: bool = False,
        last: str = "",
        reserved: Sequence[Reservation] = (),
    ) -> Candidates:
        """Return the seats of a group that are fresh enough, ranked by the soft rules.

        Seats of the same rank come in the partition order of the strategy, or the freshest
        partition first if the group has preferences. The search ends with the partitions that
        complete `limit` seats of rank 0: no seats are better.

        ahead: waiting seats, not slots.
        last: the node that the tasks avoid.
        reserved: the reservations that the tasks have. Soft rules about room count their seats as
            free.
        """
        is_stale = self._freshness.is_stale
        fresh = [
            p
            for p in self._view.partitions
            if (p.ahead_count if ahead else p.free_count) and not is_stale(p, strategy)
        ]
        rules = rules_of(group.prefer, strategy is Strategy.LATENCY, last, group.name)
        order = freshest_first if group.prefer else self._orders[strategy]
        places = places_in_turn(self._view.partitions) if group.prefer else {}
        cluster = self._view.cluster_for(group.needs, group.knowers, group.prefer, reserved)
        groups = list[list[Seats]]()
        for partitions in order(fresh):
            groups.append(self._rank(group, rules, cluster, partitions, places, ahead))
            limit -= sum(count_below(seats, 1) for seats in groups[-1])
            if limit <= 0:
                break
        width = self._widths.of(group.needs.text, group.prefer) if rules[-1].gives_way else 1
        return Candidates(groups, kept_back_from(rules), width)

    def _rank(
        self,
        group: KindGroup,
        rules: Sequence[Preference],
        cluster: ClusterNow,
        partitions: Iterable[PartitionCopy],
        places: Mapping[int, int],
        ahead: bool = False,
    ) -> list[Seats]:
        """Return the seats of each of these partitions that has some, with their ranks.

        cluster: the facts of all nodes together.
        places: by number of a partition, its place in the turn; 0 if missing.
        """
        is_plain = len(rules) == 1 and not not_asked(group.needs, cluster.scarce)
        ranked = list[Seats]()
        for partition in partitions:
            seats = seats_for(group, partition, ahead)
            if not len(seats.leads):
                continue
            if not is_plain:
                place = places.get(partition.number, 0)
                ranks = partition.ranks(rules, group.needs, cluster, place)
                seats = Seats(
                    partition,
                    seats.bits,
                    seats.leads,
                    seats.nodes,
                    seats.paces,
                    seats.size,
                    ranks[seats.nodes],
                    rules,
                )
            ranked.append(seats)
        return ranked

    def find_elsewhere(
        self, node: str, group: KindGroup, strategy: Strategy, reserved: Sequence[Reservation]
    ) -> Reservation | None:
        """Return a reservation whose first seat is not on this node; None if there is none.

        A reservation of `reserved` goes before a new one, which has one seat. A seat that is
        kept back for other tasks is worse than the last node.
        """
        kept_back = all(
            _is_kept_back(reservation, owner)
            for reservation in reserved
            for owner in reservation.owners
        )
        for reservation in reserved:
            if _move_up(reservation, node, kept_back):
                return reservation
        candidates = self.find(group, strategy, 1, last=node, reserved=reserved)
        if not candidates.count(kept_back):
            return None
        for seats in candidates.best(1):
            reservation = sample_seats(seats, 1, group.needs, self._rng)[0]
            if _move_up(reservation, node, kept_back):
                return reservation
            reservation.give_back()
        return None

    def fetch(self, group: KindGroup, strategy: Strategy, limit: int, kept_back: bool) -> bool:
        """Read stale partitions until they have `limit` seats; True if they have any.

        Partitions with many free slots are more likely to be read. kept_back: seats that are kept
        back count too.
        """
        is_stale = self._freshness.is_stale
        rules = rules_of("")
        stale = [p for p in self._view.partitions if p.free_count and is_stale(p, strategy)]
        free = np.array([partition.free_count for partition in stale], dtype=float)
        total = 0
        chosen = list[PartitionCopy]()
        for i in sample(self._rng, 1 / free, len(stale)).tolist():
            if total >= limit:
                break
            candidates = Candidates(
                [self._rank(group, rules, self._view.cluster, [stale[i]], {})],
                kept_back_from(rules),
            )
            count = candidates.count(kept_back)
            if count:
                chosen.append(stale[i])
                total += count
        self._freshness.fetch(partition.number for partition in chosen)
        return total > 0

"""Find the seats that a group of kinds may be given now, and read partitions where it may find
some.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from ...model.needs import Resources
from ...model.options import Strategy
from ...model.task import Taken
from ...placement.strategy import sample
from .freshness import Freshness, Order
from .kind_group import KindGroup
from .partition import PartitionCopy, Reservation, Seats
from .reservations import seats_for
from .scarce import keep_back, not_asked
from .view import View

# Choose among seats: sample them by their score, and find others than those on the last node of a
# task.
#
# To avoid the last node is a wish, not a rule: a task for which no other node has a seat goes there
# all the same.


def count_seats(found: Iterable[Iterable[Seats]], kept_back: bool = True) -> int:
    """Return the number of seats; kept_back: those that come last as well."""
    return sum(
        len(seats.leads) for some in found for seats in some if kept_back or not seats.kept_back
    )


def sample_seats(
    seats: Sequence[Seats], count: int, needs: Resources, rng: np.random.Generator
) -> list[Reservation]:
    """Reserve up to `count` of these seats, sampled by their score."""
    paces = np.concatenate([found.paces for found in seats])
    ends = np.cumsum([len(found.leads) for found in seats])
    chosen = sample(rng, paces, count)
    which = np.searchsorted(ends, chosen, side="right")
    made: list[Reservation] = []
    for i in sorted(set(which.tolist())):
        found = seats[i]
        begin = int(ends[i]) - len(seats[i].leads)
        made.append(found.partition.reserve(found, chosen[which == i] - begin, needs))
    return made


def elsewhere(
    tasks: Sequence[Taken],
    reserved: Sequence[Reservation],
    needs: Resources,
    find: Callable[[], Sequence[Sequence[Seats]]],
    rng: np.random.Generator,
) -> Iterator[tuple[Taken, Reservation]]:
    """Return each task that avoids its last node, and a reservation whose first seat is on another,
    if there is one.

    The caller claims that seat before it asks for the next. find: returns seats that are not
    reserved.
    """
    for task in tasks:
        if task.last:
            seat = next((some for some in reserved if _move_up(some, task.last)), None)
            seat = seat or _another(task.last, needs, find(), rng)
            if seat is not None:
                yield task, seat


def _move_up(reservation: Reservation, name: str) -> bool:
    """Let a seat be the first that is not on the node of this name; False if there is none."""
    own = reservation.partition.offers.index_of(name)
    at = next((at for at, owner in enumerate(reservation.owners) if owner != own), -1)
    if at > 0:
        reservation.move_up(at)
    return at >= 0


def _another(
    name: str, needs: Resources, found: Sequence[Sequence[Seats]], rng: np.random.Generator
) -> Reservation | None:
    """Reserve a seat that is not on the node of this name; None if there is none."""
    for seats in chain.from_iterable(found):
        others = np.flatnonzero(seats.nodes != seats.partition.offers.index_of(name))
        if len(others):
            chosen = others[sample(rng, seats.paces[others], 1)]
            return seats.partition.reserve(seats, chosen, needs)
    return None


class SeatFinder:
    """Finds seats in the partitions of a view, those that are fresh enough for the strategy."""

    def __init__(
        self,
        view: View,
        freshness: Freshness,
        orders: Mapping[Strategy, Order],
        rng: np.random.Generator,
    ) -> None:
        self._view = view
        self._freshness = freshness
        self._orders = orders
        self._rng = rng

    def find(
        self, group: KindGroup, strategy: Strategy, wanted: float, ahead: bool = False
    ) -> Sequence[Sequence[Seats]]:
        """Return the seats of a group that are fresh enough to claim, in the strategy's order of
        partitions.

        Seats that are kept back for other tasks come last. The search ends with the partitions that
        complete `wanted` seats that are not kept back.
        """
        is_stale = self._freshness.is_stale
        kept = not_asked(group.needs, self._view.scarce)
        some = (p for p in self._view.partitions if (p.ahead_count if ahead else p.free_count))
        known = [p for p in some if not is_stale(p, strategy)]
        first = list[Sequence[Seats]]()
        last = list[Sequence[Seats]]()
        for partitions in self._orders[strategy](known):
            seats, rest = keep_back(
                [seats_for(group, partition, ahead) for partition in partitions], kept
            )
            first.append(seats)
            last.append(rest)
            wanted -= sum(len(found.leads) for found in seats)
            if wanted <= 0:
                break
        return [*first, *last]

    def fetch(self, group: KindGroup, strategy: Strategy, wanted: int, kept_back: bool) -> bool:
        """Read stale partitions with seats (see `count_seats`), more likely those with many free
        slots; True if any.
        """
        is_stale = self._freshness.is_stale
        kept = not_asked(group.needs, self._view.scarce)
        stale = [p for p in self._view.partitions if p.free_count and is_stale(p, strategy)]
        free = np.array([partition.free_count for partition in stale], dtype=float)
        found = 0
        chosen = list[PartitionCopy]()
        for i in sample(self._rng, 1 / free, len(stale)).tolist():
            if found >= wanted:
                break
            if seats := count_seats(keep_back([seats_for(group, stale[i])], kept), kept_back):
                chosen.append(stale[i])
                found += seats
        self._freshness.fetch(partition.number for partition in chosen)
        return found > 0

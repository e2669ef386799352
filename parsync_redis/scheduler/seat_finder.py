"""Find the seats that a group of kinds may be given now, and read partitions where it may find some."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..model.options import Strategy
from ..placement.strategy import sample
from .bars import seats_for
from .freshness import Freshness, Order
from .kind_group import KindGroup
from .partition_copy import PartitionCopy, Seats
from .scarce import keep_back, not_asked
from .seat_choice import count_seats
from .view import View


class SeatFinder:
    """Finds seats in the partitions of a view, those that are fresh enough for the strategy."""

    def __init__(
        self, view: View, freshness: Freshness, orders: Mapping[Strategy, Order], rng: np.random.Generator
    ) -> None:
        self._view, self._freshness, self._orders, self._rng = view, freshness, orders, rng

    def find(
        self, group: KindGroup, strategy: Strategy, wanted: float, ahead: bool = False
    ) -> Sequence[Sequence[Seats]]:
        """Return the seats of a group that are fresh enough to claim, in the strategy's order of partitions.

        Seats that are kept back for other tasks come last. The search ends with the partitions that complete `wanted`
        seats that are not kept back.
        """
        is_stale, kept = self._freshness.is_stale, not_asked(group.needs, self._view.scarce)
        some = (p for p in self._view.partitions if (p.ahead_count if ahead else p.free_count))
        known = [p for p in some if not is_stale(p, strategy)]
        first, last = list[Sequence[Seats]](), list[Sequence[Seats]]()
        for partitions in self._orders[strategy](known):
            seats, rest = keep_back([seats_for(group, partition, ahead) for partition in partitions], kept)
            first.append(seats)
            last.append(rest)
            wanted -= sum(len(found.leads) for found in seats)
            if wanted <= 0:
                break
        return [*first, *last]

    def fetch(self, group: KindGroup, strategy: Strategy, wanted: int, kept_back: bool) -> bool:
        """Read stale partitions with seats (see `count_seats`), more likely those with many free slots; True if any."""
        is_stale, kept = self._freshness.is_stale, not_asked(group.needs, self._view.scarce)
        stale = [p for p in self._view.partitions if p.free_count and is_stale(p, strategy)]
        free = np.array([partition.free_count for partition in stale], dtype=float)
        found, chosen = 0, list[PartitionCopy]()
        for i in sample(self._rng, 1 / free, len(stale)).tolist():
            if found >= wanted:
                break
            if seats := count_seats(keep_back([seats_for(group, stale[i])], kept), kept_back):
                chosen.append(stale[i])
                found += seats
        self._freshness.fetch(partition.number for partition in chosen)
        return found > 0

"""The candidates of a task: the seats that the hard rules leave, ranked by the soft rules.

The best candidates are equal by all rules. Among them the seats of the partition that was read last
go first, because few claims are lost there, and then the score decides by chance. Where claims are
lost all the same, tasks choose among more seats (claim_outcomes.py): the last rule gives way.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from ...placement.preferences.preference import MAX_BUCKET
from ...placement.strategy import Ints
from .partition import Seats


def count_below(seats: Seats, rank: int) -> int:
    """Return the number of seats of a lower rank."""
    if seats.ranks is None:
        return len(seats.leads)
    return int(np.count_nonzero(seats.ranks < rank))


def _ranks(seats: Seats) -> Ints:
    """Return the rank of each seat."""
    return np.zeros(len(seats.leads), dtype=np.int64) if seats.ranks is None else seats.ranks


def _between(all_seats: Iterable[Seats], low: int, high: int) -> list[Seats]:
    """Return the seats of ranks from `low` to below `high`, of the partitions that have some."""
    chosen_seats = list[Seats]()
    for seats in all_seats:
        ranks = _ranks(seats)
        chosen = ((ranks >= low) & (ranks < high)).nonzero()[0]
        if len(chosen) == len(ranks):
            chosen_seats.append(seats)
        elif len(chosen):
            chosen_seats.append(
                Seats(
                    seats.partition,
                    seats.bits,
                    seats.leads[chosen],
                    seats.nodes[chosen],
                    seats.paces[chosen],
                    seats.size,
                    ranks[chosen],
                    seats.rules,
                )
            )
    return chosen_seats


class Candidates:
    """The seats for tasks of equal needs and wishes.

    groups: the partitions with seats, in the order in which seats of the same rank are taken.
    kept_back_from: seats of this rank and higher ranks are kept back for other tasks.
    width: among how many seats each task chooses.
    """

    def __init__(
        self, groups: Sequence[Sequence[Seats]], kept_back_from: int, width: int = 1
    ) -> None:
        self._groups = [group for group in groups if group]
        self._kept_back_from = kept_back_from
        self._width = width

    def count(self, kept_back: bool = True) -> int:
        """Return the number of seats, with those that are kept back, or without."""
        all_seats = chain.from_iterable(self._groups)
        if kept_back:
            return sum(len(seats.leads) for seats in all_seats)
        return sum(count_below(seats, self._kept_back_from) for seats in all_seats)

    def count_best(self) -> int:
        """Return the number of seats of the best rank."""
        ranks = [_ranks(seats) for seats in chain.from_iterable(self._groups) if len(seats.leads)]
        best = min((int(of_partition.min()) for of_partition in ranks), default=0)
        return sum(int(np.count_nonzero(of_partition == best)) for of_partition in ranks)

    def best(self, count: int) -> Sequence[Sequence[Seats]]:
        """Return lists with the best `count` seats; all seats of a list go before the next list.

        The seats of all lists but the first are equal by all rules, or by all but the last rule if
        tasks choose among more seats; and they may be more than `count`.
        """
        all_seats = [*chain.from_iterable(self._groups)]
        if all(seats.ranks is None for seats in all_seats):
            return self._groups
        ranks = [_ranks(seats) for seats in all_seats]
        best, low = _worst_of_best(ranks, count)
        high = low
        if self._width > 1:
            high = min(_worst_of_best(ranks, count * self._width)[1], low | MAX_BUCKET)
            low &= ~MAX_BUCKET
        lists = [_between(all_seats, best, low)] if best < low else []
        lists += [_between(group, low, high + 1) for group in self._groups]
        return [of_list for of_list in lists if of_list]


def _worst_of_best(ranks: Sequence[Ints], count: int) -> tuple[int, int]:
    """Return the best rank, and the worst rank among the best `count`; at most all of them."""
    best = min(int(of_partition.min()) for of_partition in ranks)
    if sum(int(np.count_nonzero(of_partition == best)) for of_partition in ranks) >= count:
        return best, best
    together = np.concatenate(ranks)
    count = min(count, len(together))
    return best, int(np.partition(together, count - 1)[count - 1])


NO_SEATS: Final = Candidates((), 1)

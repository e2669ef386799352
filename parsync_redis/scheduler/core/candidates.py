"""The candidates of a task: seats, ranked by the soft rules (placement/preferences/).

The best candidates are equal by all rules. Among them the seats of the partition that was read last
go first, because few claims are lost there, and then the score decides by chance.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from ...model.explanation import Ranked
from ...model.needs import Resources
from ...placement.columns import Mask
from ...placement.preferences.preference import MAX_BUCKET, NodesNow, Preference
from ...placement.strategy import Ints
from .partition import Seats

_RADIX: Final = MAX_BUCKET + 1


def rank_nodes(rules: Sequence[Preference], nodes: NodesNow, needs: Resources) -> Ints:
    """Return the rank of each node by these rules, 0 the best.

    The bucket of the first rule is the first digit of the rank, in base MAX_BUCKET + 1. So ten
    rules fit in 63 bits.
    """
    ranks = nodes.everyone()
    for rule in rules:
        ranks = ranks * _RADIX + rule.buckets(nodes, needs)
    return ranks


def kept_back_from(rules: Sequence[Preference]) -> int:
    """Return the lowest rank of nodes that the first rule, ScarcePreference, keeps back."""
    return int(_RADIX ** (len(rules) - 1))


def compare(rules: Sequence[Preference], ranks: Ints, rank: int) -> tuple[Mask, tuple[Ranked, ...]]:
    """Return which nodes are as good as a chosen node, and how they compare by each rule.

    ranks: of all nodes with a seat.
    rank: of the chosen node, which is among them.
    """
    equal: Mask = np.full(len(ranks), True)
    ranked = list[Ranked]()
    for power, rule in zip(reversed(range(len(rules))), rules, strict=True):
        buckets = ranks // _RADIX**power % _RADIX
        bucket = rank // _RADIX**power % _RADIX
        best = int(buckets[equal].min())
        equal = equal & (buckets == bucket)
        ranked.append(Ranked(rule.name, bucket, best, int(equal.sum())))
    return equal, tuple(ranked)


def count_below(seats: Seats, rank: int) -> int:
    """Return the number of seats of a lower rank."""
    if seats.ranks is None:
        return len(seats.leads)
    return int(np.count_nonzero(seats.ranks < rank))


def _between(seats: Seats, low: int, high: int) -> Seats:
    """Return the seats of ranks from `low` to below `high`."""
    ranks = np.zeros(len(seats.leads), dtype=np.int64) if seats.ranks is None else seats.ranks
    chosen = ((ranks >= low) & (ranks < high)).nonzero()[0]
    return replace(
        seats,
        leads=seats.leads[chosen],
        nodes=seats.nodes[chosen],
        paces=seats.paces[chosen],
        ranks=ranks[chosen],
    )


class Candidates:
    """The seats for tasks of equal needs and wishes.

    groups: the partitions with seats, in the order in which seats of the same rank are taken.
    """

    def __init__(self, groups: Sequence[Sequence[Seats]], kept_back_from: int) -> None:
        """kept_back_from: seats of this rank and higher ranks are kept back for other tasks."""
        self._groups = [group for group in groups if group]
        self._kept_back_from = kept_back_from

    def count(self, kept_back: bool = True) -> int:
        """Return the number of seats, with those that are kept back, or without."""
        all_seats = chain.from_iterable(self._groups)
        if kept_back:
            return sum(len(seats.leads) for seats in all_seats)
        return sum(count_below(seats, self._kept_back_from) for seats in all_seats)

    def best(self, count: int) -> Sequence[Sequence[Seats]]:
        """Return lists with the best `count` seats; all seats of a list go before the next list.

        The seats of all lists but the first are equal by all rules, and may be more than `count`.
        """
        all_seats = [*chain.from_iterable(self._groups)]
        if all(seats.ranks is None for seats in all_seats):
            return self._groups
        ranks = np.concatenate(
            [
                np.zeros(len(s.leads), dtype=np.int64) if s.ranks is None else s.ranks
                for s in all_seats
            ]
        )
        count = min(count, len(ranks))
        last = int(np.partition(ranks, count - 1)[count - 1])
        lists = [[_between(seats, 0, last) for seats in all_seats]] if last else []
        lists += [[_between(seats, last, last + 1) for seats in group] for group in self._groups]
        nonempty = [[seats for seats in of_list if len(seats.leads)] for of_list in lists]
        return [of_list for of_list in nonempty if of_list]


NO_SEATS: Final = Candidates((), 1)

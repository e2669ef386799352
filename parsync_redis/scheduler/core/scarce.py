"""Keep scarce resources for tasks that ask for them: nodes that declare some come last for all
other tasks.

A resource is scarce if fewer than half of the nodes declare it. This is a preference: a task goes
to such a node if no other node has a seat.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...model.devices import kind_of
from ...model.needs import Resources
from .partition import PartitionCopy, Seats


def find_scarce(partitions: Iterable[PartitionCopy]) -> frozenset[str]:
    """Return the resources, and the kinds of devices, that a minority of the nodes declares."""
    nodes = 0
    having = dict[str, int]()
    for partition in partitions:
        nodes += len(partition.nodes)
        for name, nodes_with_it in partition.offers.declaring.items():
            having[name] = having.get(name, 0) + int(np.count_nonzero(nodes_with_it))
    return frozenset(name for name, count in having.items() if 0 < 2 * count < nodes)


def not_asked(needs: Resources, scarce: frozenset[str]) -> frozenset[str]:
    """Return the scarce resources that these needs do not ask for: nodes that have some are kept
    back from them.
    """
    return scarce.difference(kind_of(name) for name, _ in needs.amounts)


def keep_back(found: Iterable[Seats], kept: frozenset[str]) -> tuple[list[Seats], list[Seats]]:
    """Split seats into those that may be taken first and those on nodes with some of the resources
    `kept`.
    """
    some = [seats for seats in found if len(seats.leads)]
    if not kept:
        return some, []
    parts = [_split(seats, kept) for seats in some]
    return [part for part, _ in parts if len(part.leads)], [
        part for _, part in parts if len(part.leads)
    ]


def _split(seats: Seats, kept: frozenset[str]) -> tuple[Seats, Seats]:
    having = seats.partition.offers.having(kept)[seats.nodes]
    first = np.flatnonzero(~having)
    last = np.flatnonzero(having)
    return _some(seats, first, False), _some(seats, last, True)


def _some(seats: Seats, which: np.typing.NDArray[np.intp], last: bool) -> Seats:
    return replace(
        seats,
        leads=seats.leads[which],
        nodes=seats.nodes[which],
        paces=seats.paces[which],
        kept_back=last,
    )

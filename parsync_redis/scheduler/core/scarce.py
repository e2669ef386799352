"""Scarce resources are kept for the tasks that ask for them: other tasks go to other nodes first.

A resource is scarce if fewer than half of the nodes declare it. The rule is a preference: a task
goes to a node with a scarce resource if no other node has a seat.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...model.devices import kind_of
from ...model.needs import Resources
from .partition import PartitionCopy, Seats


def find_scarce(partitions: Iterable[PartitionCopy]) -> frozenset[str]:
    """Return the resources, and the kinds of devices, that fewer than half of the nodes declare."""
    nodes = 0
    having = dict[str, int]()
    for partition in partitions:
        nodes += len(partition.nodes)
        for name, nodes_with_it in partition.offers.declaring.items():
            having[name] = having.get(name, 0) + int(np.count_nonzero(nodes_with_it))
    return frozenset(name for name, count in having.items() if 0 < 2 * count < nodes)


def not_asked(needs: Resources, scarce: frozenset[str]) -> frozenset[str]:
    """Return the scarce resources that these needs do not ask for: their nodes are kept back."""
    return scarce.difference(kind_of(name) for name, _ in needs.amounts)


def keep_back(
    seat_list: Iterable[Seats], unasked: frozenset[str]
) -> tuple[list[Seats], list[Seats]]:
    """Split seats in two: those to take first, and those on nodes with a resource of `unasked`."""
    nonempty = [seats for seats in seat_list if len(seats.leads)]
    if not unasked:
        return nonempty, []
    parts = [_split(seats, unasked) for seats in nonempty]
    first = [part for part, _ in parts if len(part.leads)]
    last = [part for _, part in parts if len(part.leads)]
    return first, last


def _split(seats: Seats, unasked: frozenset[str]) -> tuple[Seats, Seats]:
    """Split seats of a partition in two: on nodes without these resources, and on other nodes."""
    having = seats.partition.offers.having(unasked)[seats.nodes]
    first = np.flatnonzero(~having)
    last = np.flatnonzero(having)
    return _part(seats, first, False), _part(seats, last, True)


def _part(seats: Seats, chosen: np.typing.NDArray[np.intp], kept_back: bool) -> Seats:
    """Return some of the seats, by their indices."""
    return replace(
        seats,
        leads=seats.leads[chosen],
        nodes=seats.nodes[chosen],
        paces=seats.paces[chosen],
        kept_back=kept_back,
    )

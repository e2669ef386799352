"""A scheduler's copy of the run times of names whose tasks prefer fast nodes."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final

import numpy as np

from ...model.order import ORDERS_OF_MS
from ...model.times import LearntTimes
from ...placement.preferences.fast import UNKNOWN_TIMES
from ...placement.strategy import Floats
from .kind_group import KindGroup
from .partition import PartitionCopy
from .reservations import seats_for

MAX_FAST_NAMES: Final = 1000
"""Maximum number of names whose run times a scheduler keeps; older names are forgotten."""


class RunTimesCopy:
    """The mean run times of names by node class, of the classes that nodes are of now.

    asked: the names whose run times were asked for, the latest last. The process reads the run
        times of these names, and of no others.
    """

    def __init__(self, partitions: Sequence[PartitionCopy]) -> None:
        self._partitions = partitions
        self.asked: dict[str, None] = {}
        self._learnt = LearntTimes()
        self._classes: frozenset[str] | None = None
        self._means: dict[str, Mapping[str, float]] = {}
        # by name and partition
        self._of_nodes: dict[tuple[str, int], Floats] = {}

    def on_nodes(self) -> None:
        """Note that nodes have changed, and so their classes perhaps."""
        self._classes = None
        self._means.clear()
        self._of_nodes.clear()

    @property
    def classes(self) -> Collection[str]:
        """The classes that nodes are of."""
        if self._classes is None:
            self._classes = frozenset(
                name for p in self._partitions for name in p.offers.columns.classes.values
            )
        return self._classes

    def set(self, learnt: LearntTimes) -> None:
        """Take in the run times of all names that were asked for."""
        before = self._means
        self._learnt = learnt
        self._means = {}
        self._of_nodes.clear()
        if any(self._means_of(name) != means for name, means in before.items()):
            for partition in self._partitions:
                partition.kept_ranks.on_offers()

    def of(self, name: str) -> Mapping[str, float]:
        """Return the mean run time (ms) of a name by node class; {} if nothing can be compared."""
        if name not in self.asked:
            self.asked[name] = None
            if len(self.asked) > MAX_FAST_NAMES:
                self.asked = dict.fromkeys(islice(self.asked, 1, None))
        return self._means_of(name)

    def _means_of(self, name: str) -> Mapping[str, float]:
        means = self._means.get(name)
        if means is None:
            means = self._means[name] = self._learnt.means_of(name, self.classes)
        return means

    def lost(self, group: KindGroup) -> float:
        """Return by how much a group's turn for seats is later, as a difference of orders.

        Tasks that prefer fast nodes let tasks pass that are younger by less than the time that they
        would lose: how much longer they run on the best free seat than on the fastest class that
        fits.
        """
        return ORDERS_OF_MS * self._lost_ms(group) if group.lets_pass else 0.0

    def _lost_ms(self, group: KindGroup) -> float:
        """Return the time that a task of a group loses on the best free seat; 0 without a seat."""
        if not self.of(group.name):
            return 0.0
        fastest_ms = inf
        best_ms = inf
        has_unknown = False
        for partition in self._partitions:
            of_node = self._of_node(group.name, partition)
            fitting = partition.offers.open(group.needs, group.knowers)
            fastest_ms = min(fastest_ms, of_node.min(where=fitting, initial=inf))
            if partition.free_count:
                seats = seats_for(group, partition)
                of_seat = of_node[seats.nodes]
                best_ms = min(best_ms, of_seat.min(initial=inf))
                has_unknown |= bool((of_seat == inf).any())
        if has_unknown:
            best_ms = min(best_ms, UNKNOWN_TIMES * fastest_ms)
        return 0.0 if best_ms == inf else float(max(0.0, best_ms - fastest_ms))

    def _of_node(self, name: str, partition: PartitionCopy) -> Floats:
        """Return the run time (ms) of a name on each node of a partition, or inf. Cached."""
        of_node = self._of_nodes.get((name, partition.number))
        if of_node is None:
            run_ms = self.of(name)
            classes = partition.offers.columns.classes
            of_class = np.array([run_ms.get(name, inf) for name in classes.values])
            of_node = of_class[classes.codes]
            self._of_nodes[name, partition.number] = of_node
        return of_node

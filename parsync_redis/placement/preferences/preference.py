"""The preference: one soft rule, which puts the nodes into buckets.

Preferences are the soft rules of Protean (Hadary et al., OSDI 2020), beside its validators
(placement/rules/). The buckets are coarse on purpose: a rule that tells any two nodes apart leaves
nothing to later rules, and all schedulers would choose the same node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np

from ...model.amount import THOUSANDTHS
from ...model.needs import Resources
from ..columns import Columns, Mask
from ..strategy import Floats, Ints
from .ring import WarmSet

MAX_BUCKET: Final = 63
"""The largest number of a bucket; a larger number counts as this one."""

QUARTERS: Final = 4
"""Rules about room have a bucket for each quarter of a node."""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """What preferences read of all nodes together.

    score_bounds: the scores that part the nodes into fifths, ascending.
    scarce: the resources and kinds of devices that fewer than half of the nodes declare.
    used_by: returns for a label by value the part of the open nodes' slots in use, 0.0 to 1.0.
    warm_set: returns the warm set of a key (ring.py) for tasks of the needs in question; None if it
        is not known.
    leaving: the nodes that have a notice.
    run_ms: returns for a task's name its mean run time (ms) by node class (LearntTimes.means_of),
        for the classes of open nodes that fit the needs in question.
    """

    score_bounds: Floats = field(default_factory=lambda: np.zeros(0))
    scarce: frozenset[str] = frozenset()
    used_by: Callable[[str], Mapping[str, float]] = lambda _: {}
    warm_set: Callable[[str], WarmSet | None] = lambda _: None
    leaving: frozenset[str] = frozenset()
    run_ms: Callable[[str], Mapping[str, float]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class NodesNow:
    """What preferences read of the nodes of one partition, by the index of the node.

    columns: what they offer.
    capacities: what they can give now.
    index_of: the index of a node by its name; -1 for a node of another partition.
    free: number of free slots.
    amounts_left: by resource, what is free, in thousandths.
    scores: of the nodes.
    place_in_turn: how many partitions were read after this partition.
    partition: its number.
    """

    columns: Columns
    capacities: Columns
    index_of: Callable[[str], int]
    free: Ints
    amounts_left: Mapping[str, Ints]
    scores: Floats
    cluster: ClusterNow
    place_in_turn: int = 0
    partition: int = 0

    def everyone(self) -> Ints:
        """Return bucket 0 for each node, a new array for each call."""
        return np.zeros(self.columns.size, dtype=np.int64)

    def parts(self, name: str, needed: int) -> Floats:
        """Return the part of what each node gives that a task would leave, below 0 for no room.

        name: `slots`, or a resource; devices count by their kind. needed: by the task, in
        thousandths. A node that does not have the amount has all of it left.
        """
        if name == "slots":
            free = self.free * THOUSANDTHS
        else:
            free = self.capacities.sum(self.amounts_left, name)
        return self.capacities.part_of_total(name, free - needed)


def fifths(scores: Floats) -> Floats:
    """Return the scores that part these scores into fifths, ascending; none without scores."""
    if not len(scores):
        return scores
    bounds = np.quantile(scores, [0.2, 0.4, 0.6, 0.8], method="higher")
    return np.array(sorted(set(bounds.tolist())))


def find_scarce(all_columns: Iterable[Columns]) -> frozenset[str]:
    """Return the resources, and the kinds of devices, that fewer than half of the nodes declare."""
    nodes = 0
    declaring = dict[str, int]()
    for columns in all_columns:
        nodes += columns.size
        for name, nodes_with_it in columns.declaring.items():
            declaring[name] = declaring.get(name, 0) + int(np.count_nonzero(nodes_with_it))
    return frozenset(name for name, count in declaring.items() if 0 < 2 * count < nodes)


def first_of(values: Sequence[str]) -> str:
    """Return the first value of a label of a node, '' for a node without the label."""
    return values[0] if values else ""


def parts_in_use(
    label: str, partitions: Iterable[tuple[Columns, Mask, Ints]]
) -> Mapping[str, float]:
    """Return by value of a label the part of its open nodes' slots that is in use, 0.0 to 1.0.

    '' stands for nodes without the label. A node with several values counts to the first.

    partitions: of each what its nodes can give now, which are open, and their numbers of free
        slots.
    """
    slots: dict[str, int] = {}
    free: dict[str, int] = {}
    for columns, is_open, free_slots in partitions:
        column = columns.labels.get(label)
        values = [first_of(of_nodes) for of_nodes in column.values] if column else [""]
        codes = column.codes if column else np.zeros(columns.size, dtype=np.int64)
        for totals, of_nodes in ((slots, columns.slots), (free, free_slots)):
            sums = np.bincount(codes[is_open], of_nodes[is_open], len(values))
            for value, total in zip(values, sums, strict=True):
                totals[value] = totals.get(value, 0) + int(total)
    return {value: 1 - free[value] / total for value, total in slots.items() if total}


class Lasts(Enum):
    """How long the buckets of a rule are right.

    OFFERS: until a node changes, or the facts of all nodes together. FREE: until a task comes to a
    node of the partition or goes, or another partition is read. MOMENT: for one search.
    """

    OFFERS = "offers"
    FREE = "free"
    MOMENT = "moment"


class Preference(ABC):
    """A soft rule of a task.

    name: for people, different for different rules of a task.
    key: different for all different rules.
    lasts: how long its buckets are right.
    reads_needs: its buckets depend on the needs of the task.
    gives_way: as the last rule of a task, it gives way where schedulers lose claims to each other.
    """

    name: str
    lasts: Lasts = Lasts.OFFERS
    reads_needs: bool = False
    gives_way: bool = False

    @property
    def key(self) -> str:  # noqa: D102
        return f"{type(self).__name__} {self.name}"

    def state(self, cluster: ClusterNow) -> Hashable:
        """Return what else the buckets depend on, of the facts of all nodes together."""
        return None

    @abstractmethod
    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the bucket of each node, 0 the best, as it is before the task comes."""

    @abstractmethod
    def sentence(self, bucket: int) -> str:
        """Return what nodes of a bucket have in common, for people: 'zone is a'."""

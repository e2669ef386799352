"""Nodes, partitions and what waits, for people; and how evenly nodes are dealt to partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .node import NodeState

VIEW_AGES: Final = "view_ages_ms"
"""The figure of a scheduler that has the ages of its copies, in ms, in the order of the partitions.
"""

AGES_TOLD: Final = 256
"""Partitions whose age a scheduler tells."""

DELAYS: Final = "delays"
"""The figure of a scheduler that has its scheduling delays, as a `TimeHistogram`."""

WAITS: Final = "waits"
"""The figure of a scheduler that has the same by the names of the tasks, as `NamedTimes`."""

LONG_FIGURES: Final = frozenset((VIEW_AGES, DELAYS, WAITS))
"""Figures of a scheduler that no table shows: JSON has them."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: `slots` that it declares, `free` that may be claimed now, `held` that have a lease.

    state: up, draining (up, and an operator drained it), suspect, leaving or down; `draining`: an
    operator drained it, whatever its state is. resources is what it declares, left what is not held
    of it. note: of its drain (deadline and reason), or why it is suspect. queues: the Celery queues
    that its worker consumes. labels: several values of one have commas between. taints: only tasks
    that tolerate all of them go there. down_ms: when it was found to be down (server time), None
    for a node that is not down. waiting: the waiting seats that are held, by tasks that wait at its
    worker or begin; ahead: those that are open. reserved: the large task for which it is kept, ''
    if none.
    """

    name: str
    partition: int
    state: NodeState
    draining: bool
    inc: int
    score: float
    slots: int
    free: int
    held: int
    resources: Mapping[str, int | float]
    left: Mapping[str, int | float]
    labels: Mapping[str, str]
    note: str = ""
    queues: tuple[str, ...] = ()
    down_ms: int | None = None
    waiting: int = 0
    ahead: int = 0
    reserved: str = ""
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition: its nodes, their slots in all, those that are free, the mean score of a slot
    (None if it has none).

    labels: label ('zone:a') -> slots on nodes that have it. version grows with every change, epoch
    with its nodes.
    """

    number: int
    version: int
    epoch: int
    nodes: int
    slots: int
    free: int
    mean_score: float | None
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KindView:
    """A kind of which tasks wait: tasks of equal name, needs and strategy.

    `kind` is all three as one text.

    needs: with the labels of its routing. strategy: '' is the scheduler's. waiting: how many.
    priority: the highest. why: why they wait, as a scheduler found last; '' if none has looked.
    """

    kind: str
    name: str
    needs: str
    strategy: str
    waiting: int
    priority: int
    why: str


@dataclass(frozen=True, slots=True)
class NameView:
    """The run times of a name, as nodes have learnt them: the number of runs, their mean, and their
    95th percentile.

    p95_ms: of the latest runs, to within a fifth. node_class: the amounts and labels of the nodes
    where they ran; '' is all nodes.
    """

    name: str
    count: int
    mean_ms: float
    p95_ms: float
    node_class: str = ""


@dataclass(frozen=True, slots=True)
class Evenness:
    """How unlike partitions are: (max - min) / mean over the partitions, 0 is even; None where
    there is no mean.

    slots over all partitions; mean_score and each label's share of the slots over those that have
    slots.
    """

    slots: float | None
    mean_score: float | None
    labels: Mapping[str, float | None]


def gather_partition(
    number: int, version: int, epoch: int, nodes: Sequence[NodeView]
) -> PartitionView:
    """Return a partition's view from those of its nodes; nodes that are down are left out."""
    present = [node for node in nodes if node.state != "down"]
    slots = sum(node.slots for node in present)
    alike = Counter[tuple[tuple[str, str], ...]]()
    labels = Counter[str]()
    for node in present:
        alike[tuple(node.labels.items())] += node.slots
    for words, count in alike.items():
        for label in [f"{name}:{value}" for name, values in words for value in values.split(",")]:
            labels[label] += count
    mean = sum(node.score * node.slots for node in present) / slots if slots else None
    free = sum(node.free for node in present)
    return PartitionView(
        number, version, epoch, len(present), slots, free, mean, dict(sorted(labels.items()))
    )


def measure_evenness(partitions: Sequence[PartitionView]) -> Evenness:
    """Return the spread of slots, of mean score and of each label's share over the partitions."""
    filled = [p for p in partitions if p.slots]
    labels = sorted({label for p in filled for label in p.labels})
    return Evenness(
        spread(p.slots for p in partitions),
        spread(p.mean_score for p in filled if p.mean_score is not None),
        {label: spread(p.labels.get(label, 0) / p.slots for p in filled) for label in labels},
    )


def spread(values: Iterable[float]) -> float | None:
    """Return (max - min) / mean; None if there are no values or their mean is 0."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers) if numbers else 0
    return (max(numbers) - min(numbers)) / abs(mean) if mean else None

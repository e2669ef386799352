"""Views of nodes, partitions, kinds and run times for people, and the evenness of partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .human import clock_text
from .node import NodeState

VIEW_AGES: Final = "view_ages_ms"
"""The scheduler's figure with the ages of its partition copies, in ms, in order of partitions."""

AGES_TOLD: Final = 256
"""The maximum number of partitions whose ages a scheduler reports."""

DELAYS: Final = "delays"
"""The scheduler's figure with its scheduling delays, a `TimeHistogram`."""

WAITS: Final = "waits"
"""The scheduler's figure with its scheduling delays by task name, a `NamedTimes`."""

LONG_FIGURES: Final = frozenset((VIEW_AGES, DELAYS, WAITS))
"""The scheduler's figures that no table shows; JSON has them."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node.

    slots: the declared slots.
    free: the slots that may be claimed now.
    held: the slots with a lease.
    state: up, draining, suspect, leaving or down.
    draining: whether an operator drains the node, whatever its state.
    resources: the declared amounts.
    left: the amounts that no task holds.
    note: the terms of the drain (deadline and reason), or why the node is suspect; of any other
        node what it gives now, if that is less than it offers.
    queues: the Celery queues that its worker consumes.
    labels: several values of a label have commas between.
    taints: a task must tolerate all of them to go there.
    leaves_ms: when the node leaves (server time), None if nobody said that it will.
    down_ms: when the node was found to be down (server time), None for any other state.
    waiting: the waiting seats that tasks hold.
    ahead: the waiting seats that are open.
    reserved: the large task for which the node is kept, '' if there is none.
    capacity: what the node can give now of the slots and amounts of which it declares more.
    capacity_fails: the source of the capacity fails, so that the last capacity stands.
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
    capacity: Mapping[str, int | float] = field(default_factory=dict)
    capacity_fails: bool = False
    leaves_ms: int | None = None

    @property
    def remarks(self) -> str:
        """Return the note, when the node leaves and for whom it is reserved, as text for people."""
        leaves = "" if self.leaves_ms is None else f"leaves at {clock_text(self.leaves_ms)}"
        reserved = self.reserved and f"reserved for {self.reserved}"
        return "; ".join(filter(None, (self.note, leaves, reserved)))


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition: its nodes, all slots, free slots, and mean score.

    mean_score: the mean score of a slot; None without slots.
    labels: label ('zone:a') -> slots on nodes with that label.
    version: grows with every change.
    epoch: grows with every change of a node.
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
    """A kind of waiting tasks: equal name, needs and strategy.

    kind: name, needs and strategy as one text.
    needs: with the labels of the routing.
    strategy: '' is the scheduler's own strategy.
    waiting: the number of tasks.
    priority: the highest priority of the tasks.
    why: the reason that a scheduler wrote last, '' if no scheduler has looked.
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
    """The run times of a task name: number of runs, mean, and 95th percentile of the latest runs.

    p95_ms: exact to a fifth, because runs are counted in quarter octaves.
    node_class: amounts and labels of the nodes; '' for all nodes.
    """

    name: str
    count: int
    mean_ms: float
    p95_ms: float
    node_class: str = ""


@dataclass(frozen=True, slots=True)
class Evenness:
    """The unevenness of the partitions: (max - min) / mean; 0 is even, None without a mean.

    slots: the unevenness of the slots over all partitions.
    mean_score: the unevenness of the mean scores, over the partitions with slots.
    labels: by label, the unevenness of the share of slots with the label, over the partitions with
        slots.
    """

    slots: float | None
    mean_score: float | None
    labels: Mapping[str, float | None]


def gather_partition(
    number: int, version: int, epoch: int, nodes: Sequence[NodeView]
) -> PartitionView:
    """Return a partition's view from its nodes' views; nodes that are down do not count."""
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
    """Return the evenness of slots, mean scores, and each label's share over the partitions."""
    filled = [p for p in partitions if p.slots]
    labels = sorted({label for p in filled for label in p.labels})
    scores = [p.mean_score for p in filled if p.mean_score is not None]

    def spread_of(label: str) -> float | None:
        return spread(p.labels.get(label, 0) / p.slots for p in filled)

    return Evenness(
        spread(p.slots for p in partitions),
        spread(scores),
        {label: spread_of(label) for label in labels},
    )


def spread(values: Iterable[float]) -> float | None:
    """Return (max - min) / mean; None without values or with a mean of 0."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers) if numbers else 0
    return (max(numbers) - min(numbers)) / abs(mean) if mean else None

"""The preferences about what nodes are: labels, price, score, and how fresh the copy of them is."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...model.condition import holds, is_number, written
from ...model.devices import kind_of
from ...model.needs import TRANSIENT_LABEL, Resources
from ...model.preferences import ranks_of
from ..strategy import Ints
from .preference import MAX_BUCKET, Lasts, NodesNow, Preference

COST_LABEL: Final = "cost"
"""The label that has the price of a node, in any unit that is the same for all nodes."""

COST_OCTAVES: Final = 32
"""Octave 0 of the price is bucket 32, so that prices from 2^-32 on differ."""


class LabelPreference(Preference):
    """Prefers nodes whose label meets a condition."""

    def __init__(self, label: str, condition: str) -> None:
        """condition: as Redis stores it (model/condition.py)."""
        self.name = written(label, condition)
        self._label = label
        self._condition = condition

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return 0 where the condition holds, else 1."""
        met = nodes.columns.judge_label(
            self._label, self._condition, lambda values: holds(self._condition, values)
        )
        return (~met).astype(np.int64)

    def sentence(self, bucket: int) -> str:
        """Say whether the condition holds."""
        return f"not {self.name}" if bucket else self.name


class NearPreference(Preference):
    """Prefers the node where another task runs or ran last, as submit found it."""

    def __init__(self, node: str) -> None:
        """node: its name; it may be a node that is not there any more."""
        self.name = f"near:{node}"
        self._node = node

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return 0 for the node, else 1."""
        buckets = nodes.everyone() + 1
        index = nodes.index_of(self._node)
        if index >= 0:
            buckets[index] = 0
        return buckets

    def sentence(self, bucket: int) -> str:
        """Say whether it is the node."""
        return f"it is {'not ' if bucket else ''}node {self._node}"


class RankPreference(Preference):
    """Prefers some values of a label to other values, as the task ranks them."""

    def __init__(self, label: str, condition: str) -> None:
        """condition: the ranks as Redis stores them, 'a=0|b=2'."""
        self.name = f"{label}:{condition.replace('|', ',')}"
        self._label = label
        self._ranks: Mapping[str, int] = ranks_of(condition)
        self._last = max(self._ranks.values()) + 1

    def _rank(self, values: tuple[str, ...]) -> int:
        """Return the best rank of the values of a node; the last bucket without a ranked value."""
        return min((self._ranks.get(value, self._last) for value in values), default=self._last)

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the rank of each node's value."""
        column = nodes.columns.labels.get(self._label)
        if column is None:
            return nodes.everyone() + self._last
        return np.array([self._rank(values) for values in column.values])[column.codes]

    def sentence(self, bucket: int) -> str:
        """Say which value the node has."""
        values = sorted(value for value, rank in self._ranks.items() if rank == bucket)
        return f"{self._label} is {' or '.join(values)}" if values else f"no ranked {self._label}"


class CheapPreference(Preference):
    """Prefers nodes of a low price: the label `cost`, a positive number, in powers of two.

    A node without a price comes last.
    """

    name = "cheap"

    def _octave(self, values: tuple[str, ...]) -> int:
        """Return the bucket of the prices of a node."""
        costs = [float(value) for value in values if is_number(value) and float(value) > 0]
        if not costs:
            return MAX_BUCKET
        return int(np.clip(np.floor(np.log2(min(costs))) + COST_OCTAVES, 0, MAX_BUCKET - 1))

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the octave of each node's price."""
        column = nodes.columns.labels.get(COST_LABEL)
        if column is None:
            return nodes.everyone() + MAX_BUCKET
        return np.array([self._octave(values) for values in column.values])[column.codes]

    def sentence(self, bucket: int) -> str:
        """Say between which prices the node is."""
        if bucket == MAX_BUCKET:
            return "no label cost"
        low = 2.0 ** (bucket - COST_OCTAVES)
        return f"cost is {low:g} to {2 * low:g}"


class ScorePreference(Preference):
    """Prefers nodes of a high score, in fifths of all nodes."""

    name = "score"
    gives_way = True

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the fifth of each node's score, 0 the best fifth."""
        better = np.searchsorted(nodes.cluster.score_bounds, nodes.scores, side="right")
        return np.asarray(len(nodes.cluster.score_bounds) - better, dtype=np.int64)

    def sentence(self, bucket: int) -> str:
        """Say in which fifth the score is."""
        return f"its score is in fifth {bucket + 1} of all nodes"


class StablePreference(Preference):
    """Prefers nodes that stay: transient nodes and nodes that have a notice come last."""

    name = "stable"

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return 1 for a node that may leave soon, else 0."""
        column = nodes.columns.labels.get(TRANSIENT_LABEL)
        buckets = nodes.everyone()
        if column is not None:
            buckets[column.judge(bool)] = 1
        for name in nodes.cluster.leaving:
            index = nodes.index_of(name)
            if index >= 0:
                buckets[index] = 1
        return buckets

    def sentence(self, bucket: int) -> str:
        """Say whether the node stays."""
        return "it may leave soon" if bucket else "it stays"


class FreshPreference(Preference):
    """Prefers nodes of the partitions that the scheduler read last, where few claims are lost."""

    name = "fresh"
    lasts = Lasts.MOMENT

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return how many partitions were read after the node's partition."""
        return nodes.everyone() + min(nodes.place_in_turn, MAX_BUCKET)

    def sentence(self, bucket: int) -> str:
        """Say how fresh the copy is."""
        return "its partition was read last" if not bucket else f"{bucket} were read after it"


class ScarcePreference(Preference):
    """Keeps scarce resources for the tasks that ask for them; the first rule of every task."""

    name = "not kept back"
    reads_needs = True

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return 1 for a node with a scarce resource that the task does not ask for, else 0."""
        unasked = not_asked(needs, nodes.cluster.scarce)
        buckets = nodes.everyone()
        for name in unasked & nodes.columns.declaring.keys():
            buckets[nodes.columns.declaring[name]] = 1
        return buckets

    def sentence(self, bucket: int) -> str:
        """Say whether the node is kept for other tasks."""
        return "kept back for tasks that ask for what it has" if bucket else "not kept back"


def not_asked(needs: Resources, scarce: frozenset[str]) -> frozenset[str]:
    """Return the scarce resources that these needs do not ask for."""
    return scarce.difference(kind_of(name) for name, _ in needs.amounts)


class ElsewherePreference(Preference):
    """Prefers other nodes than the node where the task ran last (the option `avoid_last`)."""

    name = "elsewhere"
    lasts = Lasts.MOMENT

    def __init__(self, last: str) -> None:
        """last: the name of the node where the task ran last."""
        self._last = last

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return 1 for the node where the task ran last, else 0."""
        buckets = nodes.everyone()
        index = nodes.index_of(self._last)
        if index >= 0:
            buckets[index] = 1
        return buckets

    def sentence(self, bucket: int) -> str:
        """Say whether the task ran there last."""
        return "it ran there last" if bucket else "it did not run there last"

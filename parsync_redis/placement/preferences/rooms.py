"""The preferences about room: to fill nodes one after another, or to spread tasks over them."""

from typing import Final

import numpy as np

from ...model.amount import THOUSANDTHS
from ...model.devices import whole_of
from ...model.needs import Resources
from ..strategy import Floats, Ints
from .preference import QUARTERS, Lasts, NodesNow, Preference, first_of

MAY_BE_FULL: Final = QUARTERS
"""The bucket of `pack` for nodes that other schedulers may have filled since they were read."""


def quarters(parts: Floats) -> Ints:
    """Return which quarter a part of a whole is in, 0 to 3."""
    numbers: Ints = np.minimum(np.maximum(parts * QUARTERS, 0), QUARTERS - 1).astype(np.int64)
    return numbers


def _least_left(nodes: NodesNow, needs: Resources, task: bool) -> Floats:
    """Return the part that is left of the scarcest amount that a task needs, on each node.

    task: after the task has come.
    """
    parts = nodes.parts("slots", needs.slots * THOUSANDTHS * task)
    for name, amount in whole_of(needs.amounts).items():
        parts = np.minimum(parts, nodes.parts(name, amount * task))
    return parts


class PackPreference(Preference):
    """Prefers nodes that the task fills best, so that other nodes stay empty.

    The buckets are quarters of what would be left of the scarcest amount that the task needs, or of
    the named amount: 0 if less than a quarter is left. In a partition that was not read last, a
    node with less than a quarter left may be full by now, because other schedulers pack it too.
    Such a node is in the last bucket.
    """

    lasts = Lasts.FREE
    reads_needs = True
    gives_way = True

    def __init__(self, amount: str = "") -> None:
        """amount: the resource that counts alone; '' for slots and all that the task needs."""
        self.name = f"pack:{amount}" if amount else "pack"
        self._amount = amount

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the quarter that would be left, or MAY_BE_FULL."""
        if self._amount:
            parts = nodes.parts(self._amount, whole_of(needs.amounts).get(self._amount, 0))
        else:
            parts = _least_left(nodes, needs, task=True)
        buckets = quarters(parts)
        if nodes.place_in_turn:
            buckets[buckets == 0] = MAY_BE_FULL
        return buckets

    def sentence(self, bucket: int) -> str:
        """Say how much would be left."""
        of_what = self._amount or "its scarcest amount"
        if bucket == MAY_BE_FULL:
            return f"less than {100 // QUARTERS} % of {of_what} is left, by an old copy"
        low = bucket * 100 // QUARTERS
        return f"{low} to {low + 100 // QUARTERS} % of {of_what} is left"


class SpreadPreference(Preference):
    """Prefers nodes of which least is in use.

    The buckets are quarters in use of the scarcest amount that the task needs on the node; with a
    label, quarters of the slots in use on all nodes with the node's value of the label.
    """

    reads_needs = True
    gives_way = True

    def __init__(self, label: str = "") -> None:
        """label: nodes with the same value of this label count together; '' for each node alone."""
        self.lasts = Lasts.MOMENT if label else Lasts.FREE
        self.name = f"spread:{label}" if label else "spread"
        self._label = label

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the quarter that is in use."""
        if not self._label:
            return quarters(1.0 - _least_left(nodes, needs, task=False))
        used = nodes.cluster.used_by(self._label)
        column = nodes.columns.labels.get(self._label)
        values = column.values if column else [()]
        parts = np.array([used.get(first_of(of_nodes), 0.0) for of_nodes in values])
        return quarters(parts)[column.codes if column else nodes.everyone()]

    def sentence(self, bucket: int) -> str:
        """Say how much is in use."""
        where = f"its {self._label}" if self._label else "the node"
        low = bucket * 100 // QUARTERS
        return f"{low} to {low + 100 // QUARTERS} % of {where} is in use"

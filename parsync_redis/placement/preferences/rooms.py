"""The preferences about room: to fill nodes one after another, or to spread tasks over them."""

import numpy as np

from ...model.amount import THOUSANDTHS
from ...model.needs import Resources
from ..strategy import Floats, Ints
from .preference import QUARTERS, Lasts, NodesNow, Preference, first_of


def _quarters(parts: Floats) -> Ints:
    """Return which quarter a part of a whole is in, 0 to 3."""
    quarters: Ints = np.clip(parts * QUARTERS, 0, QUARTERS - 1).astype(np.int64)
    return quarters


def _least_left(nodes: NodesNow, needs: Resources, task: bool) -> Floats:
    """Return the part that is left of the scarcest amount that a task needs, on each node.

    task: after the task has come.
    """
    parts = nodes.parts("slots", needs.slots * THOUSANDTHS * task)
    for name, amount in needs.amounts:
        parts = np.minimum(parts, nodes.parts(name, amount * task))
    return parts


class PackPreference(Preference):
    """Prefers nodes that the task fills best, so that other nodes stay empty.

    The buckets are quarters of what would be left of the scarcest amount that the task needs, or of
    the named amount: 0 if less than a quarter is left.
    """

    lasts = Lasts.FREE
    reads_needs = True
    gives_way = True

    def __init__(self, amount: str = "") -> None:
        """amount: the resource that counts alone; '' for slots and all that the task needs."""
        self.name = f"pack:{amount}" if amount else "pack"
        self._amount = amount

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the quarter that would be left."""
        if not self._amount:
            return _quarters(_least_left(nodes, needs, task=True))
        return _quarters(nodes.parts(self._amount, dict(needs.amounts).get(self._amount, 0)))

    def sentence(self, bucket: int) -> str:
        """Say how much would be left."""
        of_what = self._amount or "its scarcest amount"
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
            return _quarters(1.0 - _least_left(nodes, needs, task=False))
        used = nodes.cluster.used_by(self._label)
        column = nodes.columns.labels.get(self._label)
        values = column.values if column else [()]
        parts = np.array([used.get(first_of(of_nodes), 0.0) for of_nodes in values])
        return _quarters(parts)[column.codes if column else nodes.everyone()]

    def sentence(self, bucket: int) -> str:
        """Say how much is in use."""
        where = f"its {self._label}" if self._label else "the node"
        low = bucket * 100 // QUARTERS
        return f"{low} to {low + 100 // QUARTERS} % of {where} is in use"

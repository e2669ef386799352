"""What nodes offer, in arrays: a rule judges all nodes of a partition with a few comparisons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..model.devices import attributes_of, indexes_of, kind_of, share_of
from ..model.needs import SHARED_LABEL, Resources
from .strategy import Ints

MOST: Final = 10**9
"""More tasks than a node has slots."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A label of all nodes: node i has the values `values[codes[i]]`; the first of `values` are
    none.
    """

    values: Sequence[tuple[str, ...]]
    codes: Ints

    def judge(self, judge: Callable[[tuple[str, ...]], bool]) -> Mask:
        """Return what is true of each node; each distinct set of values is judged once."""
        mask: Mask = np.array([judge(values) for values in self.values], dtype=bool)[self.codes]
        return mask


class Columns:
    """The offers of some nodes, by their index.

    amounts: of each resource, in thousandths. indexes: of the devices that some node has, by kind.
    devices: which nodes have devices of a kind. declaring: which nodes declare some of a resource,
    or have such devices. protected: which nodes keep theirs for tasks that ask for them; protects:
    some node does.
    """

    def __init__(self, offers: Sequence[Resources]) -> None:
        self.size = len(offers)
        self.slots: Ints = np.array([offer.slots for offer in offers], dtype=np.int64)
        self.amounts: Mapping[str, Ints] = self.spread(
            (at, dict(o.amounts)) for at, o in enumerate(offers)
        )
        self.labels: Mapping[str, LabelColumn] = _index_labels(offers)
        self._judged: dict[tuple[str, str], Mask] = {}
        self.indexes = indexes_of(self.amounts)
        self.devices: Mapping[str, Mask] = {kind: self._have(kind) for kind in self.indexes}
        self.declaring: dict[str, Mask] = {}
        for name, amounts in self.amounts.items():
            kind = kind_of(name)
            self.declaring[kind] = self.declaring.get(kind, ~self.everyone()) | (amounts > 0)
        shared = self.labels.get(SHARED_LABEL[0])
        self.protected = ~(shared.judge(bool) if shared else ~self.everyone())
        self.protected &= np.any([~self.everyone(), *self.devices.values()], axis=0)
        self.protects = bool(self.protected.any())

    def everyone(self) -> Mask:
        """Return a mask of all nodes, new each time."""
        return np.full(self.size, True)

    def _have(self, kind: str) -> Mask:
        mask: Mask = np.any(
            [self.amounts[f"{kind}@{index}"] > 0 for index in self.indexes[kind]], axis=0
        )
        return mask

    def tasks_on_devices(
        self, kind: str, asked: Sequence[tuple[str, int]], left: Mapping[str, Ints]
    ) -> Ints:
        """Return how many tasks that ask this of devices of a kind each node could hold at once;
        left: its amounts.

        Each device counts by itself: the amounts left on two devices do not add up.
        """
        none = np.zeros(self.size, dtype=np.int64)
        found = share_of(kind, asked)
        if found is None:
            return none
        share, count = found
        if not count:
            return none + MOST
        total = none
        attributes = attributes_of(kind, asked)
        for index in self.indexes[kind]:
            fit = left.get(f"{kind}@{index}", none) // share
            for name, amount in attributes:
                fit = np.minimum(fit, left.get(f"{name}@{index}", none) // amount)
            total = total + np.maximum(fit, 0)
        return total // count

    def have_devices(self, kind: str, asked: Sequence[tuple[str, int]], others: Mask) -> Mask:
        """Return which empty nodes can give a task devices of a kind; others: the answer for nodes
        without the kind.
        """
        return np.where(
            self.devices[kind], self.tasks_on_devices(kind, asked, self.amounts) >= 1, others
        )

    def spread(self, amounts: Iterable[tuple[int, Mapping[str, int]]]) -> dict[str, Ints]:
        """Return, by resource, the amount of each node (thousandths), 0 for one of which `amounts`
        has none.

        amounts: the index of a node, and its amounts by resource.
        """
        found: dict[str, Ints] = {}
        for index, some in amounts:
            for name, amount in some.items():
                if name not in found:
                    found[name] = np.zeros(self.size, dtype=np.int64)
                found[name][index] = amount
        return found

    def judge_label(
        self, name: str, condition: str, judge: Callable[[tuple[str, ...]], bool]
    ) -> Mask:
        """Return what is true of each node's values of a label. Cached by name and condition."""
        mask = self._judged.get((name, condition))
        if mask is None:
            column = self.labels.get(name)
            mask = (
                np.full(self.size, judge(()), dtype=bool) if column is None else column.judge(judge)
            )
            self._judged[name, condition] = mask
        return mask


def _index_labels(offers: Sequence[Resources]) -> dict[str, LabelColumn]:
    found: dict[str, dict[int, list[str]]] = {}
    for index, offer in enumerate(offers):
        for name, value in offer.labels:
            found.setdefault(name, {}).setdefault(index, []).append(value)
    columns = {}
    for name, by_node in found.items():
        numbers: dict[tuple[str, ...], int] = {(): 0}
        codes = np.zeros(len(offers), dtype=np.int64)
        for index, values in by_node.items():
            codes[index] = numbers.setdefault(tuple(values), len(numbers))
        columns[name] = LabelColumn([*numbers], codes)
    return columns

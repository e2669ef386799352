"""The offers of nodes as arrays: a rule judges all nodes of a partition with a few comparisons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..model.amount import THOUSANDTHS
from ..model.apart import undeclared
from ..model.devices import attributes_of, by_kind, indexes_of, kind_of, share_of
from ..model.needs import SHARED_LABEL, Resources
from ..model.times import class_of
from .strategy import Floats, Ints

UNLIMITED_TASKS: Final = 10**9
"""Stands for any number of tasks: more than any node has slots."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """The values of one label on all nodes: node i has the values `values[codes[i]]`.

    The first entry of `values` is (): the node does not have the label.
    """

    values: Sequence[tuple[str, ...]]
    codes: Ints

    def judge(self, judge: Callable[[tuple[str, ...]], bool]) -> Mask:
        """Return which nodes have values that `judge` accepts, asked once for each distinct set."""
        mask: Mask = np.array([judge(values) for values in self.values], dtype=bool)[self.codes]
        return mask


class ClassColumn(NamedTuple):
    """The classes of all nodes: node i is of the class `values[codes[i]]`."""

    values: Sequence[str]
    codes: Ints


class Columns:
    """The offers of some nodes, by the index of the node.

    amounts: by resource, the amount of each node in thousandths.
    indexes: by kind of devices, the indexes that some node has.
    devices: by kind, which nodes have such devices.
    declaring: by resource or kind of devices, which nodes have some.
    protected: which nodes keep their devices for tasks that ask for devices.
    protects: whether any node is protected.
    """

    def __init__(self, offers: Sequence[Resources]) -> None:
        self.size = len(offers)
        self._offers = offers
        self.slots: Ints = np.array([offer.slots for offer in offers], dtype=np.int64)
        self.amounts: Mapping[str, Ints] = self.spread(
            (index, dict(offer.amounts)) for index, offer in enumerate(offers)
        )
        self.labels: Mapping[str, LabelColumn] = _index_labels(offers)
        self._judged: dict[tuple[str, str], Mask] = {}
        self._totals: dict[str, Ints] = {}
        self._divisors: dict[str, tuple[Floats, Floats]] = {}
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
        """Return a mask of all nodes, a new one for each call."""
        return np.full(self.size, True)

    @cached_property
    def classes(self) -> ClassColumn:
        """The class of each node (model/times.py)."""
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(class_of(offer), len(numbers)) for offer in self._offers]
        return ClassColumn([*numbers], np.array(codes, dtype=np.int64))

    def _have(self, kind: str) -> Mask:
        """Return which nodes have devices of a kind."""
        mask: Mask = np.any(
            [self.amounts[f"{kind}@{index}"] > 0 for index in self.indexes[kind]], axis=0
        )
        return mask

    def sum(self, amounts: Mapping[str, Ints], name: str) -> Ints:
        """Return the amount of a resource on each node, of devices the sum over the devices.

        The array may be one of `amounts`.

        amounts: by resource, of each node in thousandths.
        """
        parts = [amounts[name]] if name in amounts else []
        devices = (f"{name}@{index}" for index in self.indexes.get(kind_of(name), ()))
        parts += [amounts[device] for device in devices if device in amounts]
        if len(parts) == 1:
            return parts[0]
        return np.sum(parts, axis=0) if parts else np.zeros(self.size, dtype=np.int64)

    def total(self, name: str) -> Ints:
        """Return the amount of a resource that each empty node has. Cached."""
        total = self._totals.get(name)
        if total is None:
            total = self.sum(self.amounts, name)
            self._totals[name] = total
        return total

    def part_of_total(self, name: str, amounts: Ints) -> Floats:
        """Return which part these amounts are of what each empty node has; 1.0 of nothing.

        name: `slots`, or a resource; devices count by their kind. amounts: of each node, in
        thousandths; at most 0 on a node that has nothing.
        """
        if name not in self._divisors:
            total = self.slots * THOUSANDTHS if name == "slots" else self.total(name)
            divisor = np.where(total > 0, total, np.inf)
            self._divisors[name] = divisor, np.isinf(divisor).astype(np.float64)
        divisor, absent = self._divisors[name]
        return amounts / divisor + absent

    def tasks_on_devices(
        self, kind: str, amounts: Sequence[tuple[str, int]], amounts_left: Mapping[str, Ints]
    ) -> Ints:
        """Return how many tasks the devices of each node could hold at once.

        Each device counts by itself: the amounts left on two devices do not add up.

        amounts: what a task asks of devices of this kind.
        amounts_left: by resource, what each node has left.
        """
        none = np.zeros(self.size, dtype=np.int64)
        share_and_count = share_of(kind, amounts)
        if share_and_count is None:
            return none
        share, count = share_and_count
        if not count:
            return none + UNLIMITED_TASKS
        total = none
        attributes = attributes_of(kind, amounts)
        for index in self.indexes[kind]:
            fit = amounts_left.get(f"{kind}@{index}", none)
            if share > 1:
                fit = fit // share
            for name, amount in attributes:
                fit = np.minimum(fit, amounts_left.get(f"{name}@{index}", none) // amount)
            total = total + np.maximum(fit, 0)
        return total // count

    def tasks(
        self,
        needs: Resources,
        nodes: Ints,
        amounts_left: Mapping[str, Ints],
        of_nodes: Callable[[str, Ints], Ints],
    ) -> Ints:
        """Return for how many tasks of these needs the amounts of each of these nodes suffice.

        amounts_left: by resource, what each node has left.
        of_nodes: returns how much of a resource each of these nodes has left.
        """
        most = np.full(len(nodes), UNLIMITED_TASKS, dtype=np.int64)
        for kind, amounts in by_kind(needs.amounts).items():
            tasks_of_kind = most
            for name, amount in amounts:
                amounts_open = of_nodes(name, nodes)
                # less than 0 is left on a node that has shrunk: a claim of 0 is refused there
                tasks_of_amount = (
                    amounts_open // amount if amount else np.where(amounts_open < 0, 0, most)
                )
                tasks_of_kind = np.minimum(tasks_of_kind, tasks_of_amount)
            if kind in self.devices:
                on_devices = self.tasks_on_devices(kind, amounts, amounts_left)[nodes]
                tasks_of_kind = np.where(
                    self.devices[kind][nodes], np.minimum(most, on_devices), tasks_of_kind
                )
            most = tasks_of_kind
        return np.maximum(most, 0)

    def tasks_when_empty(self, needs: Resources) -> Ints:
        """Return how many tasks of these needs each node could hold at once when it is empty."""
        none = np.zeros(self.size, dtype=np.int64)

        def of_nodes(name: str, nodes: Ints) -> Ints:
            return self.amounts.get(name, none)[nodes] + undeclared(name)

        tasks = self.tasks(needs, np.arange(self.size), self.amounts, of_nodes)
        return np.minimum(self.slots // needs.slots, tasks)

    def have_devices(
        self, kind: str, amounts: Sequence[tuple[str, int]], without_kind: Mask
    ) -> Mask:
        """Return which empty nodes can give a task devices of a kind.

        without_kind: the answer for nodes that have no devices of the kind.
        """
        return np.where(
            self.devices[kind],
            self.tasks_on_devices(kind, amounts, self.amounts) >= 1,
            without_kind,
        )

    def spread(self, amounts: Iterable[tuple[int, Mapping[str, int]]]) -> dict[str, Ints]:
        """Return the amount of each resource on each node in thousandths, 0 where a node has none.

        amounts: the index of each node, with its amounts by resource.
        """
        spread: dict[str, Ints] = {}
        for index, amounts_of_node in amounts:
            for name, amount in amounts_of_node.items():
                if name not in spread:
                    spread[name] = np.zeros(self.size, dtype=np.int64)
                spread[name][index] = amount
        return spread

    def judge_label(
        self, name: str, condition: str, judge: Callable[[tuple[str, ...]], bool]
    ) -> Mask:
        """Return which nodes have values of a label that `judge` accepts.

        The answer is cached by label and condition.
        """
        mask = self._judged.get((name, condition))
        if mask is None:
            column = self.labels.get(name)
            mask = (
                np.full(self.size, judge(()), dtype=bool) if column is None else column.judge(judge)
            )
            self._judged[name, condition] = mask
        return mask


def _index_labels(offers: Sequence[Resources]) -> dict[str, LabelColumn]:
    """Return a column for each label that some node has."""
    values_by_label: dict[str, dict[int, list[str]]] = {}
    for index, offer in enumerate(offers):
        for name, value in offer.labels:
            values_by_label.setdefault(name, {}).setdefault(index, []).append(value)
    columns = {}
    for name, by_node in values_by_label.items():
        numbers: dict[tuple[str, ...], int] = {(): 0}
        codes = np.zeros(len(offers), dtype=np.int64)
        for index, values in by_node.items():
            codes[index] = numbers.setdefault(tuple(values), len(numbers))
        columns[name] = LabelColumn([*numbers], codes)
    return columns

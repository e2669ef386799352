"""The amounts left on the nodes of a partition, as arrays.

For each `apart` word they include the nodes that have a task with the word.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from ...model.amount import THOUSANDTHS
from ...model.apart import undeclared
from ...model.devices import hold, kind_of
from ...model.needs import Resources, read_amounts
from ...placement.columns import Columns, Mask
from ...placement.strategy import Ints

DeviceAmounts = Sequence[Mapping[str, int]]
"""The amounts that a task with devices holds on each node, in the order of the nodes.

Empty for a task without devices: such a task holds the amounts of its needs on any node.
"""


class AmountsLeft:
    """The amounts left on each node, by the node's index, in thousandths.

    The word of the option `apart` counts as a resource of which each node has 1. There may be many
    such words, each on few nodes, so a word has the set of nodes that hold it instead of an array.
    """

    def __init__(
        self, columns: Columns, amounts: Mapping[str, Ints], apart: Mapping[str, Collection[int]]
    ) -> None:
        """columns: the amounts of the empty nodes. amounts: by resource. apart: by word, nodes."""
        self._columns = columns
        self._amounts = dict(amounts)
        self._apart = {name: set(nodes) for name, nodes in apart.items()}

    @property
    def amounts(self) -> Mapping[str, Ints]:
        """What each node has left, by resource, without the words of `apart`."""
        return self._amounts

    def of_nodes(self, name: str, nodes: Ints) -> Ints:
        """Return how much of a resource each of these nodes has left."""
        if full := undeclared(name):
            return np.where(np.isin(nodes, [*self._apart.get(name, ())]), 0, full)
        return self._amounts[name][nodes] if name in self._amounts else np.zeros_like(nodes)

    def tasks(self, needs: Resources, nodes: Ints) -> Ints:
        """Return how many tasks of these needs each of these nodes could hold at once."""
        if len(needs.amounts) == 1 and not self._columns.devices and needs.amounts[0][1]:
            ((name, amount),) = needs.amounts  # the usual case takes a fourth of the time this way
            return np.maximum(self.of_nodes(name, nodes) // amount, 0)
        return self._columns.tasks(needs, nodes, self._amounts, self.of_nodes)

    def within(self, needs: Resources, nodes: Sequence[int], seats: Mask) -> Mask:
        """Return the seats for which the amounts left suffice, for tasks of these needs.

        seats: of a partition, as a mask.
        nodes: the node of each seat.
        """
        if not needs.amounts:
            return seats
        most = dict(zip(nodes, self.tasks(needs, np.array(nodes)).tolist(), strict=True))
        for i in np.flatnonzero(seats).tolist():
            most[nodes[i]] -= 1
            seats[i] = most[nodes[i]] >= 0
        return seats

    def take(self, needs: Resources, nodes: Sequence[int]) -> list[dict[str, int]]:
        """Take what a task of these needs holds on each of these nodes; return `DeviceAmounts`.

        The devices are those that `commit` would choose now.
        """
        if not any(kind_of(name) in self._columns.devices for name, _ in needs.amounts):
            self._change(needs.amounts, nodes, -1)
            return []
        device_amounts = []
        for node in nodes:
            device_amounts.append(hold(self.of_node(node), needs.amounts) or {})
            self._change(device_amounts[-1].items(), [node], -1)
        return device_amounts

    def put_back(
        self, needs: Resources, nodes: Sequence[int], device_amounts: DeviceAmounts
    ) -> None:
        """Put back the amounts that `take` took. device_amounts: the result of `take`."""
        if not device_amounts:
            self._change(needs.amounts, nodes, 1)
        for node, amounts in zip(nodes, device_amounts, strict=False):
            self._change(amounts.items(), [node], 1)

    def _change(self, amounts: Iterable[tuple[str, int]], nodes: Sequence[int], sign: int) -> None:
        """Add amounts to these nodes (sign 1), or take them (-1)."""
        for name, amount in amounts:
            if undeclared(name):
                nodes_with_word = self._apart.setdefault(name, set())
                if sign < 0:
                    nodes_with_word.update(nodes)
                else:
                    nodes_with_word.difference_update(nodes)
            elif name in self._amounts:
                np.add.at(self._amounts[name], nodes, sign * amount)

    def most(self, nodes: Mask) -> dict[str, int]:
        """Return the most that any of these nodes could give one task, by resource.

        Words that keep tasks apart are left out.
        """
        most = {
            name: int(amounts.max(where=nodes, initial=0))
            for name, amounts in self._amounts.items()
        }
        for name, amounts in self._most_on_devices().items():
            most[name] = max(most.get(name, 0), int(amounts.max(where=nodes, initial=0)))
        return most

    def _most_on_devices(self) -> dict[str, Ints]:
        """Return the most that each node's devices could give one task, by kind and attribute."""
        most: dict[str, Ints] = {}
        for kind, indexes in self._columns.indexes.items():
            shares = np.array(
                [self._amounts[name] for i in indexes if (name := f"{kind}@{i}") in self._amounts]
            )
            if len(shares):
                whole = (shares >= THOUSANDTHS).sum(axis=0) * THOUSANDTHS
                most[kind] = np.maximum(whole, shares.max(axis=0))
        for name, amounts in self._amounts.items():
            attribute, separator, _ = name.partition("@")
            if separator and "." in attribute:
                most[attribute] = (
                    np.maximum(most[attribute], amounts) if attribute in most else amounts
                )
        return most

    def of_node(self, index: int) -> dict[str, int]:
        """Return what a node has left of what it declares, and 0 for each apart word there."""
        declared = self._columns.amounts
        amounts_of_node = {
            name: int(amounts[index])
            for name, amounts in self._amounts.items()
            if name in declared and declared[name][index]
        }
        return amounts_of_node | {name: 0 for name, nodes in self._apart.items() if index in nodes}


class AmountsReader:
    """Reader of the amounts that snapshots give for the nodes of a partition.

    The reader keeps the amounts of the last snapshot, without later claims.
    """

    def __init__(self, columns: Columns, index: Mapping[str, int]) -> None:
        """index: by name of a node."""
        self._columns = columns
        self._index = index
        self._amounts: dict[str, Ints] = {}
        self._apart: dict[str, set[int]] = {}

    def read(self, texts: Mapping[str, str], whole: bool = True) -> AmountsLeft:
        """Return what each node has left by the texts of a snapshot; ignore unknown names.

        whole: a node without a text has nothing left; if False, such a node has what it had.
        """
        if whole:
            self._amounts = {}
            self._apart = {}
        by_text = defaultdict[str, list[int]](list)
        nodes_and_amounts = dict[str, tuple[list[int], list[int]]]()
        for name, text in texts.items():
            if name in self._index:
                by_text[text].append(self._index[name])
        for text, rows in by_text.items():
            for resource, amount in read_amounts(text).items():
                indexes, amounts = nodes_and_amounts.setdefault(resource, ([], []))
                indexes += rows
                amounts += [amount] * len(rows)
        rows = [*chain.from_iterable(by_text.values())]
        for amounts_left in self._amounts.values():
            amounts_left[rows] = 0
        for nodes in self._apart.values():
            nodes.difference_update(rows)
        for resource, (indexes, amounts) in nodes_and_amounts.items():
            if undeclared(resource):
                self._apart.setdefault(resource, set()).update(indexes)
            else:
                amounts_left = self._amounts.setdefault(
                    resource, np.zeros(self._columns.size, dtype=np.int64)
                )
                amounts_left[indexes] = amounts
        self._apart = {name: nodes for name, nodes in self._apart.items() if nodes}
        return AmountsLeft(
            self._columns,
            {name: amounts_left.copy() for name, amounts_left in self._amounts.items()},
            self._apart,
        )

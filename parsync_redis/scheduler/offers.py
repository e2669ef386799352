"""The offers of a partition's nodes, in arrays: one comparison tells which of them fit a task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.apps import TASKS_LABEL, digest_of
from ..model.condition import holds
from ..model.needs import Resources, parse_resources
from ..model.node import Node
from ..placement.strategy import Ints

Knowers = frozenset[str] | None
"""The digests (model/apps.py) of the nodes that know a task's name, None for all."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Column:
    """A label of all nodes: node i has the values `values[codes[i]]`, the first of which are none."""

    values: Sequence[tuple[str, ...]]
    codes: Ints


def _index_labels(nodes: Sequence[Node]) -> dict[str, _Column]:
    """Return the column of each label that a node has."""
    found: dict[str, dict[int, list[str]]] = {}
    for index, node in enumerate(nodes):
        for name, value in node.offer.labels:
            found.setdefault(name, {}).setdefault(index, []).append(value)
    columns = {}
    for name, by_node in found.items():
        numbers: dict[tuple[str, ...], int] = {(): 0}
        codes = np.zeros(len(nodes), dtype=np.int64)
        for index, values in by_node.items():
            codes[index] = numbers.setdefault(tuple(values), len(numbers))
        columns[name] = _Column([*numbers], codes)
    return columns


class Offers:
    """The offers of some nodes, by their index. placement/fits.py says the same of one node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.digests = [digest_of(node.offer) for node in nodes]
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._open = np.array([node.state == "up" and not node.draining for node in nodes], dtype=bool)
        self._slots = np.array([node.offer.slots for node in nodes], dtype=np.int64)
        self._looks_ahead = np.array([node.span > node.offer.slots for node in nodes], dtype=bool)
        self._amounts: dict[str, Ints] = {}
        for index, node in enumerate(nodes):
            for name, amount in node.offer.amounts:
                self._amounts.setdefault(name, np.zeros(len(nodes), dtype=np.int64))[index] = amount
        self._labels = _index_labels(nodes)
        self._marked: dict[tuple[tuple[tuple[str, str], ...], Knowers], Mask] = {}

    def marked(self, labels: tuple[tuple[str, str], ...], knowers: Knowers) -> Mask:
        """Return which nodes meet these conditions on labels and know the task's name. Cached."""
        mask = self._marked.get((labels, knowers))
        if mask is None:
            mask = self._knowing(knowers)
            for name, condition in labels:
                mask = mask & self._meeting(name, condition)
            self._marked[labels, knowers] = mask
        return mask

    def _knowing(self, knowers: Knowers) -> Mask:
        """Return which nodes know a task's name; a node that does not say which tasks it knows knows all."""
        column = self._labels.get(TASKS_LABEL)
        if knowers is None or column is None:
            return np.full(len(self.nodes), True)
        knows = np.array([not digests or digests[0] in knowers for digests in column.values], dtype=bool)
        mask: Mask = knows[column.codes]
        return mask

    def _meeting(self, name: str, condition: str) -> Mask:
        """Return which nodes meet a condition on a label. Each distinct set of its values is judged once."""
        column = self._labels.get(name)
        if column is None:
            return np.full(len(self.nodes), holds(condition, ()), dtype=bool)
        meets = np.array([holds(condition, values) for values in column.values], dtype=bool)
        mask: Mask = meets[column.codes]
        return mask

    def fitting(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty."""
        mask: Mask = self.marked(needs.labels, knowers) & (self._slots >= needs.slots)
        for name, amount in needs.amounts:
            mask = mask & (self._amounts[name] >= amount if name in self._amounts else amount <= 0)
        return mask

    def open(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty, and take new tasks."""
        mask: Mask = self.fitting(needs, knowers) & self._open
        return mask

    def looks_ahead(self, needs: Resources, knowers: Knowers) -> bool:
        """Return True if a node with waiting seats fits when it is empty."""
        return bool((self.fitting(needs, knowers) & self._looks_ahead).any())

    def amounts_of(self, left: Mapping[str, str]) -> dict[str, Ints]:
        """Return, by resource, what each node has left, from the texts of a snapshot."""
        found: dict[str, Ints] = {}
        for name, text in left.items():
            index = self._index.get(name)
            if index is not None:
                for resource, amount in parse_resources(text).amounts:
                    if resource not in found:
                        found[resource] = np.zeros(len(self.nodes), dtype=np.int64)
                    found[resource][index] = amount
        return found

    def left_of(self, left: Mapping[str, Ints], index: int) -> dict[str, int]:
        """Return what one node has left."""
        return {name: int(amounts[index]) for name, amounts in left.items()}

"""What is left of each node of a partition: arrays of amounts, and which nodes have a task of which `apart` word."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..model.apart import undeclared
from ..model.needs import Resources, read_amounts
from ..placement.columns import Mask
from ..placement.strategy import Ints


class Left:
    """What is left of each node, by its index. Amounts are in thousandths.

    A word that keeps tasks apart is a resource of which each node has 1. There may be many words, of few nodes each, so
    they have sets of nodes and no arrays.
    """

    def __init__(self, amounts: Mapping[str, Ints], apart: Mapping[str, Collection[int]]) -> None:
        self._amounts = dict(amounts)
        self._apart = {name: set(nodes) for name, nodes in apart.items()}

    @classmethod
    def of(cls, texts: Mapping[int, str], size: int) -> "Left":
        """Read what a snapshot says of some of `size` nodes, by their index."""
        amounts, apart = dict[str, Ints](), dict[str, set[int]]()
        for index, text in texts.items():
            for name, amount in read_amounts(text).items():
                if undeclared(name):
                    apart.setdefault(name, set()).add(index)
                else:
                    amounts.setdefault(name, np.zeros(size, dtype=np.int64))[index] = amount
        return cls(amounts, apart)

    def of_nodes(self, name: str, nodes: Ints) -> Ints:
        """Return how much of a resource each of these nodes has left."""
        if full := undeclared(name):
            return np.where(np.isin(nodes, [*self._apart.get(name, ())]), 0, full)
        return self._amounts[name][nodes] if name in self._amounts else np.zeros_like(nodes)

    def change(self, needs: Resources, nodes: Sequence[int], sign: int) -> None:
        """Take what tasks of these needs hold on these nodes (sign 1), or put it back (-1)."""
        for name, amount in needs.amounts:
            if undeclared(name):
                held = self._apart.setdefault(name, set())
                (held.update if sign > 0 else held.difference_update)(nodes)
            elif name in self._amounts:
                np.subtract.at(self._amounts[name], nodes, sign * amount)

    def most(self, nodes: Mask) -> dict[str, int]:
        """Return the most that any of these nodes has left, by resource, without words that keep tasks apart."""
        return {name: int(left.max(where=nodes, initial=0)) for name, left in self._amounts.items()}

    def of_node(self, index: int) -> dict[str, int]:
        """Return what one node has left."""
        taken = {name: 0 for name, nodes in self._apart.items() if index in nodes}
        return {name: int(amounts[index]) for name, amounts in self._amounts.items()} | taken

"""Where the bits of a partition's nodes are in its bitmap."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..model.node import Node
from ..placement.columns import Mask
from ..placement.strategy import Ints
from .offers import Knowers, keep

Key = tuple[str, Knowers, bool]
"""The text of needs, who knows the task's name, and whether waiting seats are meant."""

KEPT: Final = 1000
"""Positions that are kept for one key at most: more cost more memory than time."""


class BitLayout:
    """The bits of a partition, by their position.

    node_of: the index of the node, -1 for a bit of no node. is_slot: True for a slot, False for a waiting seat.
    first_of: the first bit of each node.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        size = max((node.first + node.span for node in nodes), default=0)
        self._nodes, self._kept = len(nodes), dict[Key, Ints]()
        self.first_of = np.array([node.first for node in nodes], dtype=np.int64)
        self.node_of, self.is_slot = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=bool)
        for index, node in enumerate(nodes):
            self.node_of[node.first : node.first + node.span] = index
            self.is_slot[node.first : node.first + node.offer.slots] = True

    def bits_of(self, key: Key, nodes: Mask) -> Ints:
        """Return the positions of all slots, or waiting seats, of the nodes that fit some needs.

        nodes: which nodes these are. Few positions are cached, by `key`.
        """
        found = self._kept.get(key)
        if found is None:
            found = (nodes[self.node_of] & (self.is_slot != key[2]) & (self.node_of >= 0)).nonzero()[0]
            if len(found) <= KEPT:
                keep(self._kept, key, found)
        return found

    def count(self, bits: Mask) -> Ints:
        """Return how many of these bits each node has."""
        return np.bincount(self.node_of[bits.nonzero()[0]], minlength=self._nodes)

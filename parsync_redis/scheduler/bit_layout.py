"""Where the bits of a partition's nodes are in its bitmap."""

from collections.abc import Sequence

import numpy as np

from ..model.node import Node
from ..placement.columns import Mask
from ..placement.strategy import Ints


class BitLayout:
    """The bits of a partition, by their position.

    node_of: the index of the node, -1 for a bit of no node. is_slot: True for a slot, False for a waiting seat.
    first_of: the first bit of each node.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        size = max((node.first + node.span for node in nodes), default=0)
        self._nodes = len(nodes)
        self.first_of = np.array([node.first for node in nodes], dtype=np.int64)
        self.node_of, self.is_slot = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=bool)
        for index, node in enumerate(nodes):
            self.node_of[node.first : node.first + node.span] = index
            self.is_slot[node.first : node.first + node.offer.slots] = True

    def bits_of(self, nodes: Mask, ahead: bool) -> Ints:
        """Return the positions of all slots of some nodes; ahead: of their waiting seats."""
        found: Ints = (nodes[self.node_of] & (self.is_slot != ahead) & (self.node_of >= 0)).nonzero()[0]
        return found

    def count(self, bits: Mask) -> Ints:
        """Return how many of these bits each node has."""
        return np.bincount(self.node_of[bits.nonzero()[0]], minlength=self._nodes)

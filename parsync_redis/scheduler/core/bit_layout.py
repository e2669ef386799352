"""The bits of the nodes in the bitmap of a partition: a bit for each slot and waiting seat."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...model.node import Node
from ...placement.columns import Mask
from ...placement.strategy import Ints
from .offers import Knowers, keep

SeatKey = tuple[str, Knowers, bool]
"""Key of a cache: the text of the needs, who knows the task's name, and the sort of seat.

The sort is True for waiting seats, False for slots.
"""

MAX_CACHED_BITS: Final = 1000
"""Maximum number of positions that are cached for one key.

A larger cache saves little time and takes much memory.
"""


class BitLayout:
    """The positions of the nodes' bits in the bitmap of a partition.

    node_of: the index of the node of each bit; -1 for a bit of no node.
    is_slot: True for a slot, False for a waiting seat.
    first_of: by index of a node, its first bit.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        size = max((node.first + node.span for node in nodes), default=0)
        self._nodes = len(nodes)
        self._kept = dict[SeatKey, Ints]()
        self.first_of = np.array([node.first for node in nodes], dtype=np.int64)
        self.node_of = np.full(size, -1, dtype=np.int64)
        self.is_slot = np.zeros(size, dtype=bool)
        for index, node in enumerate(nodes):
            self.node_of[node.first : node.first + node.span] = index
            self.is_slot[node.first : node.first + node.offer.slots] = True

    def bits_of(self, key: SeatKey, nodes: Mask) -> Ints:
        """Return the positions of all slots, or waiting seats, of these nodes.

        key: names the answer; short answers are cached.
        """
        bits = self._kept.get(key)
        if bits is None:
            bits = (nodes[self.node_of] & (self.is_slot != key[2]) & (self.node_of >= 0)).nonzero()[
                0
            ]
            if len(bits) <= MAX_CACHED_BITS:
                keep(self._kept, key, bits)
        return bits

    def count(self, bits: Mask) -> Ints:
        """Return how many of these bits each node has."""
        return np.bincount(self.node_of[bits.nonzero()[0]], minlength=self._nodes)

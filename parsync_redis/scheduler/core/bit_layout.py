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
        self._span_of = np.array([node.span for node in nodes], dtype=np.int64)
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

    def bits_at(self, owners: Sequence[int], slots: Sequence[tuple[int, ...]], size: int) -> Ints:
        """Return the positions of slots of nodes, one row for each node, of `size` positions."""
        offsets = np.array(slots, dtype=np.int64).reshape(len(owners), size)
        return np.asarray(self.first_of[list(owners)][:, None] + offsets, dtype=np.int64)

    def move_on(self, bits: Ints, owners: Ints, leads: Ints, shift: int) -> Ints:
        """Return, for seats of one slot, seats of the same nodes that lie `shift` further on.

        Behind the last bit of a node comes its first. The seats of a node stay different.

        bits: positions, ascending. owners: the node of each seat. leads: by seat, an index in bits.
        """
        begins = np.searchsorted(bits, self.first_of[owners])
        ends = np.searchsorted(bits, self.first_of[owners] + self._span_of[owners])
        moved: Ints = begins + (leads - begins + shift) % (ends - begins)
        return moved

    def count(self, bits: Mask) -> Ints:
        """Return how many of these bits each node has."""
        return np.bincount(self.node_of[bits.nonzero()[0]], minlength=self._nodes)


def find_leads(free_slots: Ints, tasks: Ints, size: int) -> Ints:
    """Return the first bit of each seat, an index in the bits of all free slots of some nodes.

    free_slots: number of free slots of each node. tasks: how many tasks its amounts allow.
    size: slots of a task.
    """
    seats = np.minimum(free_slots // size, tasks)
    ends = np.cumsum(free_slots)
    rank = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - free_slots, free_slots)
    of_seats = rank < np.repeat(seats * size, free_slots)
    is_lead = of_seats if size == 1 else of_seats & (rank % size == 0)
    return is_lead.nonzero()[0]

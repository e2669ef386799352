"""Seats in a partition for tasks of equal needs, and those of them that a scheduler keeps for tasks it will take."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..model.needs import Resources
from ..model.node import Node
from ..placement.columns import Mask
from ..placement.strategy import Floats, Ints

if TYPE_CHECKING:
    from .partition_copy import PartitionCopy


@dataclass(slots=True)
class Seats:
    """The seats for one set of needs in one partition.

    bits: free slots, those of a node next to each other; seat i is `size` of them from position `leads[i]` on.
    nodes[i]: the index of seat i's node. paces[i]: how good the seat is, see placement/strategy.py. kept_back: they
    come last, see scheduler/scarce.py.
    """

    partition: "PartitionCopy"
    bits: Ints
    leads: Ints
    nodes: Ints
    paces: Floats
    size: int
    kept_back: bool = False


@dataclass(slots=True, eq=False)
class Reservation:
    """Seats that the copy keeps for tasks of equal needs, the best first; seat i is `slots[i]` of node `owners[i]`.

    held: the result of `Left.take` for them.
    """

    partition: "PartitionCopy"
    needs: Resources
    owners: list[int]
    slots: list[tuple[int, ...]]
    held: list[dict[str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def bits(self) -> Ints:
        """The positions of the seats' slots in the partition's bitmap, a row a seat."""
        nodes = self.partition.nodes
        firsts = np.array([nodes[owner].first for owner in self.owners], dtype=np.int64)
        return firsts[:, None] + np.array(self.slots, dtype=np.int64).reshape(len(self), self.needs.slots)

    def claim(self, count: int) -> Iterator[tuple[Node, tuple[int, ...]]]:
        """Return node and slots of the first `count` seats: they stay taken in the copy until the partition is read."""
        nodes = self.partition.nodes
        claimed = zip([nodes[owner] for owner in self.owners[:count]], self.slots[:count], strict=True)
        del self.owners[:count], self.slots[:count], self.held[:count]
        return claimed

    def give_back(self) -> None:
        """Free the seats that are left: no tasks came for them."""
        self.partition.reserved.pop(self, None)
        if self:
            self.partition.change(self, -1)
            self.owners, self.slots = [], []

    def move_up(self, at: int) -> None:
        """Let seat `at` be the first."""
        for column in filter(None, cast(tuple[list[Any], ...], (self.owners, self.slots, self.held))):
            column.insert(0, column.pop(at))

    def keep(self, which: Mask) -> None:
        """Forget the other seats: others have them. The caller must take the amounts of the rest anew."""
        self.owners = list(compress(self.owners, which))
        self.slots = list(compress(self.slots, which))

"""A scheduler's copy of one partition, in numpy arrays: one bit a slot (free or not), each slot's
node, amounts left.

`seats` computes where a task of given needs could go. `reserve` takes seats out of the copy for
tasks that are still to be taken from the queue; each reserved seat ends as a claim, or goes back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final, cast

import numpy as np

from ...model.needs import Resources
from ...model.node import Node
from ...placement.columns import Mask
from ...placement.strategy import SHARPNESS, Floats, Ints, pace
from .offers import Knowers, Offers, keep

# Where the bits of a partition's nodes are in its bitmap.

Key = tuple[str, Knowers, bool]
"""The text of needs, who knows the task's name, and whether waiting seats are meant."""

KEPT: Final = 1000
"""Positions that are kept for one key at most: more cost more memory than time."""


class BitLayout:
    """The bits of a partition, by their position.

    node_of: the index of the node, -1 for a bit of no node. is_slot: True for a slot, False for a
    waiting seat. first_of: the first bit of each node.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        size = max((node.first + node.span for node in nodes), default=0)
        self._nodes = len(nodes)
        self._kept = dict[Key, Ints]()
        self.first_of = np.array([node.first for node in nodes], dtype=np.int64)
        self.node_of = np.full(size, -1, dtype=np.int64)
        self.is_slot = np.zeros(size, dtype=bool)
        for index, node in enumerate(nodes):
            self.node_of[node.first : node.first + node.span] = index
            self.is_slot[node.first : node.first + node.offer.slots] = True

    def bits_of(self, key: Key, nodes: Mask) -> Ints:
        """Return the positions of all slots, or waiting seats, of the nodes that fit some needs.

        nodes: which nodes these are. Few positions are cached, by `key`.
        """
        found = self._kept.get(key)
        if found is None:
            found = (
                nodes[self.node_of] & (self.is_slot != key[2]) & (self.node_of >= 0)
            ).nonzero()[0]
            if len(found) <= KEPT:
                keep(self._kept, key, found)
        return found

    def count(self, bits: Mask) -> Ints:
        """Return how many of these bits each node has."""
        return np.bincount(self.node_of[bits.nonzero()[0]], minlength=self._nodes)


WHOLE: Final = 64
"""Of so many reads of a partition one is whole."""


@dataclass(slots=True)
class Seats:
    """The seats for one set of needs in one partition.

    bits: free slots, those of a node next to each other; seat i is `size` of them from position
    `leads[i]` on. nodes[i]: the index of seat i's node. paces[i]: how good the seat is, see
    placement/strategy.py. kept_back: they come last, see scheduler/core/scarce.py.
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
    """Seats that the copy keeps for tasks of equal needs, the best first; seat i is `slots[i]` of
    node `owners[i]`.

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
        return firsts[:, None] + np.array(self.slots, dtype=np.int64).reshape(
            len(self), self.needs.slots
        )

    def claim(self, count: int) -> Iterator[tuple[Node, tuple[int, ...]]]:
        """Return node and slots of the first `count` seats: they stay taken in the copy until the
        partition is read.
        """
        nodes = self.partition.nodes
        claimed = zip(
            [nodes[owner] for owner in self.owners[:count]], self.slots[:count], strict=True
        )
        del self.owners[:count], self.slots[:count], self.held[:count]
        return claimed

    def give_back(self) -> None:
        """Free the seats that are left: no tasks came for them."""
        self.partition.reserved.pop(self, None)
        if self:
            self.partition.change(self, -1)
            self.owners = []
            self.slots = []

    def move_up(self, at: int) -> None:
        """Let seat `at` be the first."""
        for column in filter(
            None, cast(tuple[list[Any], ...], (self.owners, self.slots, self.held))
        ):
            column.insert(0, column.pop(at))

    def keep(self, which: Mask) -> None:
        """Forget the other seats: others have them.

        The caller must take the amounts of the rest anew.
        """
        self.owners = list(compress(self.owners, which))
        self.slots = list(compress(self.slots, which))


class PartitionCopy:
    """A scheduler's copy of one partition.

    read_s: when it was read, on the scheduler's monotonic clock. due: the last of the scheduler's
    ticks at which this partition was due; turn: the value of `due` when it was last read.
    fetched_pass: the scheduler's pass at which it was last read out of turn. free: slots and
    waiting seats that may be claimed; free_count and ahead_count count each. version: that of the
    snapshot, -1 if all must be read anew. judged: that after the last claims, -1 after a read.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.version = -1
        self.epoch = -1
        self.judged = -1
        self.read_s = float("-inf")
        self.due = 0
        self.turn = 0
        self.fetched_pass = -1
        self.nodes: list[Node] = []
        self.offers = Offers([])
        self._reads = 0
        self._bits = b""
        self.free = np.zeros(0, dtype=bool)
        self.free_count = self.ahead_count = 0
        self.left = self.offers.left_of({})
        self.quality = np.zeros(0)
        self._paces = np.ones(0)
        self.reserved: dict[Reservation, None] = {}
        self._free_of: Ints | None = None
        self._seats: dict[tuple[str, Knowers, bool], tuple[Seats, int]] = {}
        # the nodes whose seats were taken or put back since these answers began
        self._changed: list[int] = []
        self._layout = BitLayout([])
        self._most: dict[tuple[str, Knowers], tuple[dict[str, int], int]] = {}

    def set_nodes(self, nodes: Iterable[Node], epoch: int) -> None:
        """Store the partition's nodes; the bits must be read again after that."""
        self.nodes = sorted(nodes, key=lambda node: node.first)
        self.epoch = epoch
        self._layout = BitLayout(self.nodes)
        self.close()
        self.set_quality(np.zeros(len(self.nodes)))
        self.offers = Offers(self.nodes)
        self.left = self.offers.left_of({})

    def close(self) -> None:
        """Let it have no seats until it is read again: its nodes are others by now, and every claim
        would be lost.
        """
        self.version = -1
        self.free = np.zeros(len(self._layout.is_slot), dtype=bool)
        self.free_count = 0
        self.ahead_count = 0
        for reservation in self.reserved:
            reservation.owners = []
            reservation.slots = []
        self.reserved.clear()
        self._forget_seats()

    def set_quality(self, quality: Floats, sharpness: float = SHARPNESS) -> None:
        """Store each node's score among the nodes of all partitions, in standard deviations from
        the mean.
        """
        self.quality = quality
        self._paces = pace(quality, sharpness)
        self._forget_seats()

    @property
    def since(self) -> int:
        """The version since which the changes are to be read, -1 for all: now and then, for what
        nobody noted.
        """
        return self.version if self._reads % WHOLE else -1

    def set_free(
        self, bits: bytes | None, left: Mapping[str, str], version: int, whole: bool = True
    ) -> None:
        """Store a snapshot: the bitmap as Redis has it, None for that of the last one, and the
        amounts left.
        """
        self._bits = self._bits if bits is None else bits
        self.judged = -1
        whole = whole and bits is not None
        self._reads += 1
        # unpackbits fills a short bitmap up with 0, but makes garbage of no byte at all.
        seen = np.unpackbits(
            np.frombuffer(self._bits or b"\0", dtype=np.uint8), count=len(self._layout.is_slot)
        )
        self.free = seen.view(bool) & (self._layout.node_of >= 0)
        self.free_count = int(np.count_nonzero(self.free & self._layout.is_slot))
        self.ahead_count = int(np.count_nonzero(self.free)) - self.free_count
        self.left = self.offers.left_of(left, whole)
        self.version = version
        for reservation in filter(len, self.reserved):
            found = np.asarray(self.free[reservation.bits].all(axis=1))
            reservation.keep(self.left.within(reservation.needs, reservation.owners, found))
            if reservation:
                self.change(reservation, 1)
        self._forget_seats()

    def _forget_seats(self) -> None:
        self._changed.clear()
        self._seats.clear()
        self._most.clear()
        self._free_of = None

    def forget_reservations(self) -> None:
        """Forget what was reserved; the bits must be read again after that."""
        self.reserved.clear()
        self.version = -1

    def seats(self, needs: Resources, knowers: Knowers = None, ahead: bool = False) -> Seats:
        """Return the seats for these needs, by this copy. All of them could be taken at once.

        knowers: the digests of the nodes that know the task's name; None if all nodes do. Seats do
        not share slots, and no node has more seats than its amounts allow. ahead: waiting seats,
        not slots.
        """
        found, at = self._seats.get((needs.text, knowers, ahead)) or (None, 0)
        if found is None or self._has_changed(needs, knowers, at):
            found = self._find_seats(needs, knowers, ahead)
        self._seats[needs.text, knowers, ahead] = found, len(self._changed)
        return found

    def _has_changed(self, needs: Resources, knowers: Knowers, at: int) -> bool:
        """Return whether seats were taken or put back on a node that fits these needs, since change
        number `at`.
        """
        return at < len(self._changed) and bool(
            self.offers.open(needs, knowers)[self._changed[at:]].any()
        )

    def _find_seats(self, needs: Resources, knowers: Knowers, ahead: bool) -> Seats:
        if needs.amounts or needs.labels or knowers is not None or self.offers.choosy:
            of_nodes = self._layout.bits_of(
                (needs.text, knowers, ahead), self.offers.open(needs, knowers)
            )
            bits = of_nodes[self.free[of_nodes]]
        else:
            bits = (self.free & (self._layout.is_slot != ahead)).nonzero()[0]
        nodes = self._layout.node_of[bits]
        if needs.slots == 1 and not needs.amounts:
            return Seats(self, bits, np.arange(len(bits)), nodes, self._paces[nodes], 1)
        held = np.bincount(nodes, minlength=len(self.nodes))
        counts = held[owners := held.nonzero()[0]]
        most = np.minimum(counts // needs.slots, self.left.tasks(needs, owners))
        rank = np.arange(len(bits)) - np.repeat(np.cumsum(counts) - counts, counts)
        of_seats = rank < np.repeat(most * needs.slots, counts)
        leads = (of_seats if needs.slots == 1 else of_seats & (rank % needs.slots == 0)).nonzero()[
            0
        ]
        return Seats(self, bits, leads, nodes[leads], self._paces[nodes[leads]], needs.slots)

    def reserve(self, seats: Seats, chosen: Ints, needs: Resources) -> Reservation:
        """Take seats, by their indices, out of this copy, for tasks that are still to be taken."""
        bits = seats.bits[seats.leads[chosen][:, None] + np.arange(seats.size)]
        owners = seats.nodes[chosen]
        slots = (bits - self._layout.first_of[owners][:, None]).tolist()
        reservation = Reservation(self, needs, owners.tolist(), [tuple(row) for row in slots])
        self.change(reservation, 1, bits)
        self.reserved[reservation] = None
        return reservation

    def change(self, reservation: Reservation, sign: int, bits: Ints | None = None) -> None:
        """Take the seats of a reservation out of the copy (sign 1), or put them back (-1); bits:
        their positions.
        """
        bits = reservation.bits if bits is None else bits
        self.free[bits] = sign < 0
        slots = int(np.count_nonzero(self._layout.is_slot[bits]))
        self.free_count -= sign * slots
        self.ahead_count -= sign * (bits.size - slots)
        if sign > 0:
            reservation.held = self.left.take(reservation.needs, reservation.owners)
        else:
            self.left.put_back(reservation.needs, reservation.owners, reservation.held)
        self._changed += reservation.owners
        self._free_of = None

    def most_free(self, labels: Resources, knowers: Knowers) -> Mapping[str, int]:
        """Return the most that any open node has free of each resource, of `slots`, and of `seats`.

        Cached.

        seats: its free slots, or 1 if only waiting seats are free there. labels: needs of one slot
        with the labels that the nodes must have, and the least of each resource; knowers: as in
        `seats`.
        """
        found, at = self._most.get((labels.text, knowers)) or (None, 0)
        if found is None or self._has_changed(labels, knowers, at):
            if self._free_of is None:
                self._free_of = self._layout.count(self.free & self._layout.is_slot)
            fitting = self.offers.open(labels, knowers)
            nodes = fitting & (self._free_of > 0)
            found = {"slots": int(self._free_of.max(where=nodes, initial=0))}
            waits = (
                self.ahead_count
                and (fitting & (self._layout.count(self.free & ~self._layout.is_slot) > 0)).any()
            )
            found["seats"] = max(found["slots"], int(bool(waits)))
            found |= self.left.most(nodes)
        self._most[labels.text, knowers] = found, len(self._changed)
        return found

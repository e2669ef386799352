"""The view: a scheduler's own, slightly stale copy of the state, a partition at a time, in numpy arrays.

A partition is one bit a slot (free or not), the node of each slot, and what is left of resources. `seats` turns that
into the places where a task of some needs could go; `occupy` takes one away, before Redis has judged it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.needs import Bundle, parse_bundle
from ..model.node import Node
from ..placement.fits import fits
from ..placement.strategy import SHARPNESS, Floats, Ints, pace


@dataclass(slots=True)
class Seats:
    """Where a task of some needs could go in one partition.

    `bits` are free slots, those of a node next to each other; a seat is `size` of them from position `leads[i]` on.
    `nodes[i]` is the index of the seat's node, `paces[i]` says how good it is: see placement/strategy.py.
    """

    partition: "PartitionView"
    bits: Ints
    leads: Ints
    nodes: Ints
    paces: Floats
    size: int


class PartitionView:
    """What a scheduler knows of one partition; `read_s` is when it was read, on the scheduler's monotonic clock.

    due: the last of its scheduler's ticks at which it was its turn to read it; turn: the same, as it was last read.
    fetched_pass: how often its scheduler had made claims when it was last read out of turn.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.version, self.epoch = -1, -1
        self.read_s = float("-inf")
        self.due = self.turn = 0
        self.fetched_pass = -1
        self.nodes: list[Node] = []
        self.free = np.zeros(0, dtype=bool)
        self.free_count = 0
        self.left: dict[str, dict[str, int]] = {}
        self.quality = np.zeros(0)
        self._paces = np.ones(0)
        self._seats: dict[str, Seats] = {}
        self._first_of = np.zeros(0, dtype=np.int64)
        self._node_of = np.zeros(0, dtype=np.int64)
        self._is_slot = np.zeros(0, dtype=bool)
        self._fits: dict[str, npt.NDArray[np.bool_]] = {}

    def set_nodes(self, nodes: Iterable[Node], epoch: int) -> None:
        """Takes in the partition's nodes; the bits must be read again after that."""
        self.nodes = sorted(nodes, key=lambda node: node.first)
        self.epoch, self.version = epoch, -1
        self._first_of = np.array([node.first for node in self.nodes], dtype=np.int64)
        size = max((node.first + node.span for node in self.nodes), default=0)
        self._node_of = np.full(size, -1, dtype=np.int64)
        for index, node in enumerate(self.nodes):
            self._node_of[node.first : node.first + node.offer.slots] = index
        self._is_slot = self._node_of >= 0
        self.free, self.free_count = np.zeros(size, dtype=bool), 0
        self.set_quality(np.zeros(len(self.nodes)))
        self._fits.clear()

    def set_quality(self, quality: Floats, sharpness: float = SHARPNESS) -> None:
        """Takes in how good each node is among those of all partitions, in standard deviations from the mean."""
        self.quality, self._paces = quality, pace(quality, sharpness)
        self._seats.clear()

    def set_free(self, bits: bytes, left: Mapping[str, str], version: int) -> None:
        """Takes in a snapshot: the bitmap as Redis has it, and what is left of each node's resources."""
        # It fills up with 0; of no byte at all it would make garbage.
        seen = np.unpackbits(np.frombuffer(bits or b"\0", dtype=np.uint8), count=len(self._is_slot))
        self.free = seen.view(bool) & self._is_slot
        self.free_count = int(np.count_nonzero(self.free))
        self.left = {node: dict(parse_bundle(text).resources) for node, text in left.items()}
        self.version = version
        self._seats.clear()

    def _fit(self, needs: Bundle) -> "npt.NDArray[np.bool_]":
        mask = self._fits.get(needs.text)
        if mask is None:
            mask = self._fits[needs.text] = np.array(
                [node.state == "up" and not node.draining and fits(node.offer, needs) for node in self.nodes],
                dtype=bool,
            )
        return mask

    def seats(self, needs: Bundle) -> Seats:
        """Every place in this partition where a task of these needs could go, as far as the view knows.

        All of them could be taken at once: seats do not share slots, and no node has more than its amounts allow.
        """
        found = self._seats.get(needs.text)
        if found is None:
            found = self._seats[needs.text] = self._find_seats(needs)
        return found

    def _find_seats(self, needs: Bundle) -> Seats:
        bits = self.free.nonzero()[0]
        nodes = self._node_of[bits]
        if needs.resources or needs.labels:
            bits = bits[self._fit(needs)[nodes]]
            nodes = self._node_of[bits]
        if needs.slots == 1 and not needs.resources:
            return Seats(self, bits, np.arange(len(bits)), nodes, self._paces[nodes], 1)
        owners, starts, counts = np.unique(nodes, return_index=True, return_counts=True)
        most = counts // needs.slots
        for i, owner in enumerate(owners):
            left = self.left.get(self.nodes[owner].name, {})
            for name, amount in needs.resources:
                if amount:
                    most[i] = min(most[i], left.get(name, 0) // amount)
        rank = np.arange(len(bits)) - np.repeat(starts, counts)
        lead = (rank % needs.slots == 0) & (rank // needs.slots < np.repeat(most, counts))
        leads = np.flatnonzero(lead)
        return Seats(self, bits, leads, nodes[leads], self._paces[nodes[leads]], needs.slots)

    def occupy(self, seats: Seats, chosen: Ints, needs: Bundle) -> list[tuple[Node, tuple[int, ...]]]:
        """Takes seats, by their indices, away from the view; the node and slots of each."""
        bits = seats.bits[seats.leads[chosen][:, None] + np.arange(seats.size)]
        owners = seats.nodes[chosen]
        self._seats.clear()
        self.free[bits] = False
        self.free_count -= bits.size
        slots = (bits - self._first_of[owners][:, None]).tolist()
        nodes = [self.nodes[owner] for owner in owners.tolist()]
        for node in nodes if needs.resources else ():
            left = self.left.setdefault(node.name, {})
            for name, amount in needs.resources:
                left[name] = left.get(name, 0) - amount
        return [(node, tuple(row)) for node, row in zip(nodes, slots, strict=True)]

    def most_free(self, needs: Bundle) -> tuple[int, int]:
        """(nodes that take claims and could hold the task when empty, the most free slots one of them has now)."""
        mask = self._fit(needs)
        if not mask.any():
            return 0, 0
        owners = self._node_of[np.flatnonzero(self.free)]
        counts = np.bincount(owners, minlength=len(self.nodes)) if len(owners) else np.zeros(len(self.nodes), int)
        return int(mask.sum()), int(counts[mask].max())


class View:
    """All partitions, and how good each node is among all: its score in standard deviations from the mean."""

    def __init__(self, partitions: int, sharpness: float = SHARPNESS) -> None:
        self.sharpness = sharpness
        self.partitions = [PartitionView(number) for number in range(partitions)]
        self.changes = 0

    @property
    def free_count(self) -> int:
        """Slots that are free as far as the view knows."""
        return sum(partition.free_count for partition in self.partitions)

    def rescale(self) -> None:
        """Computes every node's quality anew; to be called when nodes came, went or changed."""
        weights = np.array([n.offer.slots for p in self.partitions for n in p.nodes], dtype=float)
        scores = np.array([n.score for p in self.partitions for n in p.nodes], dtype=float)
        mean, spread = 0.0, 1.0
        if len(scores):
            mean = float(np.average(scores, weights=weights))
            spread = float(np.sqrt(np.average((scores - mean) ** 2, weights=weights))) or 1.0
        for partition in self.partitions:
            quality = np.array([(node.score - mean) / spread for node in partition.nodes], dtype=float)
            partition.set_quality(quality, self.sharpness)

    def ages_s(self, now_s: float) -> list[float]:
        """How old each partition's copy is, in seconds; partitions that were never read are left out."""
        return [now_s - p.read_s for p in self.partitions if p.read_s > float("-inf")]

    def why_not(self, needs: Bundle) -> str:
        """Why a task of these needs finds no place now, in words."""
        fitting, most = 0, 0
        for partition in self.partitions:
            nodes, free = partition.most_free(needs)
            fitting, most = fitting + nodes, max(most, free)
        if not fitting:
            return f"no node offers {needs.text}"
        if most < needs.slots:
            return f"waits for {needs.slots} free slot{'s' * (needs.slots > 1)} on one of {fitting} fitting nodes"
        return f"waits for resources on one of {fitting} fitting nodes: {needs.text}"

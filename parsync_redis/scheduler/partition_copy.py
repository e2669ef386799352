"""A scheduler's copy of one partition, in numpy arrays: one bit a slot (free or not), each slot's node, amounts left.

`seats` computes where a task of given needs could go; `occupy` takes seats away before Redis has judged the claim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.apps import digest_of
from ..model.needs import Resources, parse_resources
from ..model.node import Node
from ..placement.fits import fits
from ..placement.reasons import NodeFacts
from ..placement.strategy import SHARPNESS, Floats, Ints, pace

Knowers = frozenset[str] | None
"""The digests (model/apps.py) of the nodes that know a task's name, None for all."""


@dataclass(slots=True)
class Seats:
    """The seats for one set of needs in one partition.

    bits: free slots, those of a node next to each other; seat i is `size` of them from position `leads[i]` on.
    nodes[i]: the index of seat i's node. paces[i]: how good the seat is, see placement/strategy.py.
    """

    partition: "PartitionCopy"
    bits: Ints
    leads: Ints
    nodes: Ints
    paces: Floats
    size: int


class PartitionCopy:
    """A scheduler's copy of one partition.

    read_s: when it was read, on the scheduler's monotonic clock. due: the last of the scheduler's ticks at which this
    partition was due; turn: the value of `due` when it was last read. fetched_pass: the scheduler's pass at which it
    was last read out of turn.
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
        self._seats: dict[tuple[str, Knowers], Seats] = {}
        self._first_of = np.zeros(0, dtype=np.int64)
        self._node_of = np.zeros(0, dtype=np.int64)
        self._is_slot = np.zeros(0, dtype=bool)
        self._fits: dict[tuple[str, Knowers], npt.NDArray[np.bool_]] = {}
        self._offers: dict[tuple[str, Knowers], npt.NDArray[np.bool_]] = {}
        self.digests: list[str] = []

    def set_nodes(self, nodes: Iterable[Node], epoch: int) -> None:
        """Store the partition's nodes; the bits must be read again after that."""
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
        self.digests = [digest_of(node.offer) for node in self.nodes]
        self._offers.clear()

    def set_quality(self, quality: Floats, sharpness: float = SHARPNESS) -> None:
        """Store each node's score among the nodes of all partitions, in standard deviations from the mean."""
        self.quality, self._paces = quality, pace(quality, sharpness)
        self._seats.clear()

    def set_free(self, bits: bytes, left: Mapping[str, str], version: int) -> None:
        """Store a snapshot: the bitmap as Redis has it, and what is left of each node's resources."""
        # unpackbits fills a short bitmap up with 0, but makes garbage of no byte at all.
        seen = np.unpackbits(np.frombuffer(bits or b"\0", dtype=np.uint8), count=len(self._is_slot))
        self.free = seen.view(bool) & self._is_slot
        self.free_count = int(np.count_nonzero(self.free))
        self.left = {node: dict(parse_resources(text).amounts) for node, text in left.items()}
        self.version = version
        self._seats.clear()

    def _fit(self, needs: Resources, knowers: "Knowers" = None) -> "npt.NDArray[np.bool_]":
        mask = self._fits.get((needs.text, knowers))
        if mask is None:
            mask = self._fits[needs.text, knowers] = np.array(
                [
                    node.state == "up"
                    and not node.draining
                    and fits(node.offer, needs)
                    and (knowers is None or not digest or digest in knowers)
                    for node, digest in zip(self.nodes, self.digests, strict=True)
                ],
                dtype=bool,
            )
        return mask

    def seats(self, needs: Resources, knowers: "Knowers" = None) -> Seats:
        """Return the seats for these needs, by this copy. All of them could be taken at once.

        knowers: the digests of the nodes that know the task's name; None if all nodes do. Seats do not share slots, and
        no node has more seats than its amounts allow.
        """
        found = self._seats.get((needs.text, knowers))
        if found is None:
            found = self._seats[needs.text, knowers] = self._find_seats(needs, knowers)
        return found

    def _find_seats(self, needs: Resources, knowers: "Knowers") -> Seats:
        bits = self.free.nonzero()[0]
        nodes = self._node_of[bits]
        if needs.amounts or needs.labels or knowers is not None:
            bits = bits[self._fit(needs, knowers)[nodes]]
            nodes = self._node_of[bits]
        if needs.slots == 1 and not needs.amounts:
            return Seats(self, bits, np.arange(len(bits)), nodes, self._paces[nodes], 1)
        owners, starts, counts = np.unique(nodes, return_index=True, return_counts=True)
        most = counts // needs.slots
        for i, owner in enumerate(owners):
            left = self.left.get(self.nodes[owner].name, {})
            for name, amount in needs.amounts:
                if amount:
                    most[i] = min(most[i], left.get(name, 0) // amount)
        rank = np.arange(len(bits)) - np.repeat(starts, counts)
        lead = (rank % needs.slots == 0) & (rank // needs.slots < np.repeat(most, counts))
        leads = np.flatnonzero(lead)
        return Seats(self, bits, leads, nodes[leads], self._paces[nodes[leads]], needs.slots)

    def occupy(self, seats: Seats, chosen: Ints, needs: Resources) -> list[tuple[Node, tuple[int, ...]]]:
        """Take seats, by their indices, out of this copy. Returns the node and slots of each."""
        bits = seats.bits[seats.leads[chosen][:, None] + np.arange(seats.size)]
        owners = seats.nodes[chosen]
        self._seats.clear()
        self.free[bits] = False
        self.free_count -= bits.size
        slots = (bits - self._first_of[owners][:, None]).tolist()
        nodes = [self.nodes[owner] for owner in owners.tolist()]
        for node in nodes if needs.amounts else ():
            left = self.left.setdefault(node.name, {})
            for name, amount in needs.amounts:
                left[name] = left.get(name, 0) - amount
        return [(node, tuple(row)) for node, row in zip(nodes, slots, strict=True)]

    def fitting(self, needs: Resources, knowers: Knowers, most: int) -> tuple[list[NodeFacts], int]:
        """Return facts of up to `most` nodes that fit when empty, open ones first, and the number of all that fit."""
        mask = self._offers.get((needs.text, knowers))
        if mask is None:
            knows = (knowers is None or not digest or digest in knowers for digest in self.digests)
            fitting = [known and fits(node.offer, needs) for node, known in zip(self.nodes, knows, strict=True)]
            mask = self._offers[needs.text, knowers] = np.array(fitting, dtype=bool)
        found = np.flatnonzero(mask)
        if not len(found):
            return [], 0
        chosen = [*np.flatnonzero(self._fit(needs, knowers))[:most], *found[:most]]
        return [self._facts(self.nodes[i]) for i in dict.fromkeys(map(int, chosen))][:most], len(found)

    def _facts(self, node: Node) -> NodeFacts:
        free = int(np.count_nonzero(self.free[node.first : node.first + node.offer.slots]))
        return NodeFacts(node.name, node.state, node.draining, node.offer, free, self.left.get(node.name, {}))

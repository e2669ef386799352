"""The view: a scheduler's own, slightly stale copy of the state, a partition at a time, in numpy arrays.

A partition is one bit a slot (free or not), the node of each slot, and what is left of resources. `seats` turns that
into the places where a task of some needs could go; `occupy` takes one away, before Redis has judged it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.apps import digest_of
from ..model.needs import Resources, parse_resources
from ..model.node import Node
from ..placement.fits import fits
from ..placement.reasons import NAMES_UNREAD, NO_NAME, NO_NODE, SHOWN, NodeFacts, explain_fitting, explain_none
from ..placement.strategy import SHARPNESS, Floats, Ints, pace

Knowers = frozenset[str] | None
"""The digests (model/apps.py) of the nodes that know a task's name, None for all."""


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
        self._seats: dict[tuple[str, Knowers], Seats] = {}
        self._first_of = np.zeros(0, dtype=np.int64)
        self._node_of = np.zeros(0, dtype=np.int64)
        self._is_slot = np.zeros(0, dtype=bool)
        self._fits: dict[tuple[str, Knowers], npt.NDArray[np.bool_]] = {}
        self._offers: dict[tuple[str, Knowers], npt.NDArray[np.bool_]] = {}
        self.digests: list[str] = []

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
        self.digests = [digest_of(node.offer) for node in self.nodes]
        self._offers.clear()

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
        """Every place in this partition where a task of these needs could go, as far as the view knows.

        knowers: the digests of the nodes that know the task's name; None if all nodes do.

        All of them could be taken at once: seats do not share slots, and no node has more than its amounts allow.
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
        """Takes seats, by their indices, away from the view; the node and slots of each."""
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
        """Facts of up to `most` nodes that could hold the task when empty, the open ones first; and how many fit."""
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


class View:
    """All partitions, and how good each node is among all: its score in standard deviations from the mean."""

    def __init__(self, partitions: int, sharpness: float = SHARPNESS) -> None:
        self.sharpness = sharpness
        self.partitions = [PartitionView(number) for number in range(partitions)]
        self.changes = 0
        self.known: dict[str, Collection[str]] = {}
        self._knowers: dict[str, Knowers] = {}
        self._none: dict[tuple[str, Knowers], str] = {}
        self._digests: frozenset[str] = frozenset()

    def set_names(self, digest: str, names: Collection[str]) -> None:
        """Takes in for which task names a digest stands; it stands for them for ever."""
        self.known[digest] = names

    def unread(self) -> set[str]:
        """The digests of nodes whose names the view does not know yet: nothing is placed on those nodes."""
        return {digest for p in self.partitions for digest in p.digests if digest} - self.known.keys()

    def knowers(self, name: str) -> Knowers:
        """The digests of the nodes that know a task's name; None if every node does. Cached until nodes change."""
        if name not in self._knowers:
            found = frozenset(digest for digest in self._digests if name in self.known.get(digest, ()))
            self._knowers[name] = None if found == self._digests else found
        return self._knowers[name]

    @property
    def free_count(self) -> int:
        """Slots that are free as far as the view knows."""
        return sum(partition.free_count for partition in self.partitions)

    def rescale(self) -> None:
        """Computes anew what depends on all nodes, their quality and who knows which name: when nodes have changed."""
        self._digests = frozenset(digest for p in self.partitions for digest in p.digests if digest)
        self._knowers.clear()
        self._none.clear()
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

    def why_not(self, needs: Resources, knowers: Knowers = None) -> str:
        """Why a task of these needs finds no place now, in words."""
        if not any(partition.nodes for partition in self.partitions):
            return NO_NODE
        if knowers is not None and not knowers and "" not in {digest for p in self.partitions for digest in p.digests}:
            return NAMES_UNREAD if self.unread() else NO_NAME
        shown, total = list[NodeFacts](), 0
        for partition in self.partitions:
            nodes, count = partition.fitting(needs, knowers, SHOWN)
            shown, total = [*shown, *nodes], total + count
        if total:
            shown.sort(key=lambda node: not node.open)
            return explain_fitting(needs, shown[:SHOWN], total)
        if (needs.text, knowers) not in self._none:
            offers = {
                node.name: node.offer
                for p in self.partitions
                for node, digest in zip(p.nodes, p.digests, strict=True)
                if knowers is None or not digest or digest in knowers
            }
            self._none[needs.text, knowers] = explain_none(needs, offers)
        return self._none[needs.text, knowers]

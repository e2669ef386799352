"""A scheduler's copy of one partition, as numpy arrays.

The copy has one bit for each slot (free or not), each slot's node, and the amounts left. `seats`
computes where a task of given needs could go. `reserve` takes seats out of the copy for tasks that
are still to be taken from the queue. Each reserved seat becomes a claim, or goes back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Final

import numpy as np

from ...model.needs import Resources
from ...model.node import Node
from ...placement.columns import Mask
from ...placement.preferences.preference import ClusterNow, NodesNow, Preference
from ...placement.strategy import SHARPNESS, Floats, Ints, pace
from .bit_layout import BitLayout, find_leads
from .offers import Knowers, Offers
from .ranks import Ranks

READS_PER_WHOLE_READ: Final = 64
"""Number of reads of a partition of which one reads all of the partition."""


@dataclass(slots=True)
class Seats:
    """The seats for given needs in one partition.

    bits: positions of free slots, those of a node next to each other.
    leads: seat i is `size` slots from `bits[leads[i]]` on.
    nodes: the index of each seat's node.
    paces: how good each seat is, see placement/strategy.py.
    ranks: of each seat by the soft `rules`, see candidates.py; None if all are 0.
    """

    partition: "PartitionCopy"
    bits: Ints
    leads: Ints
    nodes: Ints
    paces: Floats
    size: int
    ranks: Ints | None = None
    rules: Sequence[Preference] = ()


@dataclass(slots=True, eq=False)
class Reservation:
    """Seats that the copy keeps for tasks of equal needs, the best first.

    Seat i is `slots[i]` of node `owners[i]`. device_amounts: the result of `AmountsLeft.take` for
    them. ranks: by node, the rank of its seats by the soft `rules`; 0 for a node that is missing.
    """

    partition: "PartitionCopy"
    needs: Resources
    owners: list[int]
    slots: list[tuple[int, ...]]
    device_amounts: list[dict[str, int]] = field(default_factory=list)
    ranks: Mapping[int, int] = field(default_factory=dict)
    rules: Sequence[Preference] = ()

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def bits(self) -> Ints:
        """The positions of the seats' slots in the partition's bitmap, one row for each seat."""
        return self.partition.layout.bits_at(self.owners, self.slots, self.needs.slots)

    def rank_of(self, node: Node) -> int:
        """Return the rank of a node by the soft rules, when its seat was reserved."""
        return self.ranks.get(self.partition.offers.index_of(node.name), 0)

    def claim(self, count: int) -> Iterator[tuple[Node, tuple[int, ...]]]:
        """Return node and slots of the first `count` seats, and take them out of the reservation.

        The copy keeps these slots taken until the next read.
        """
        nodes = self.partition.nodes
        claimed = zip(
            [nodes[owner] for owner in self.owners[:count]], self.slots[:count], strict=True
        )
        del self.owners[:count], self.slots[:count], self.device_amounts[:count]
        return claimed

    def give_back(self) -> None:
        """Free the remaining seats: no tasks came for them."""
        self.partition.reserved.pop(self, None)
        if self:
            self.partition.change(self, -1)
            self.owners = []
            self.slots = []

    def split(self, count: int) -> "Reservation":
        """Return the first `count` seats as a reservation of their own."""
        first = replace(self, owners=self.owners[:count], slots=self.slots[:count])
        first.device_amounts = self.device_amounts[:count]
        del self.owners[:count], self.slots[:count], self.device_amounts[:count]
        self.partition.reserved[first] = None
        return first

    def move_up(self, position: int) -> None:
        """Make the seat at this position the first."""
        self.owners.insert(0, self.owners.pop(position))
        self.slots.insert(0, self.slots.pop(position))
        if self.device_amounts:
            self.device_amounts.insert(0, self.device_amounts.pop(position))

    def keep(self, is_kept: Mask) -> None:
        """Forget the seats that are not kept: other claims have them.

        is_kept: for each seat, whether it is kept. The caller must take the amounts of the kept
        seats again.
        """
        self.owners = list(compress(self.owners, is_kept))
        self.slots = list(compress(self.slots, is_kept))


class PartitionCopy:
    """A scheduler's copy of one partition.

    read_s: when it was read (monotonic).
    due: the last tick of this scheduler at which the partition was due.
    turn: the value of `due` when it was last read.
    fetched_pass: the pass of this scheduler at which it was last read out of turn.
    reads: how often it was read.
    layout: where the bits of its nodes are.
    free: the slots and waiting seats that may be claimed, by position.
    free_count, ahead_count: number of free slots, and of free waiting seats.
    version: of the snapshot; -1 if all must be read again.
    judged: the version after the last claims; -1 after a read.
    quality: of each node, in standard deviations.
    kept_ranks: the ranks of the nodes by the soft rules.
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
        self.reads = 0
        self._bits = b""
        self.free = np.zeros(0, dtype=bool)
        self.free_count = 0
        self.ahead_count = 0
        self.amounts_left = self.offers.amounts_left({})
        self.quality = np.zeros(0)
        self._paces = np.ones(0)
        self.reserved: dict[Reservation, None] = {}
        self._free_of: Ints | None = None
        self._used: Mapping[str, int] | None = None
        self._seats: dict[tuple[str, Knowers, bool], tuple[Seats, int]] = {}
        # the nodes whose seats were taken or put back since the caches were empty
        self._changed: list[int] = []
        self.layout = BitLayout([])
        self._most: dict[tuple[str, Knowers], tuple[dict[str, int], int]] = {}
        self.kept_ranks = Ranks()

    def set_nodes(self, nodes: Iterable[Node], epoch: int) -> None:
        """Store the partition's nodes; the bits must be read again."""
        self.nodes = sorted(nodes, key=lambda node: node.first)
        self.epoch = epoch
        self.layout = BitLayout(self.nodes)
        self.close()
        self.set_quality(np.zeros(len(self.nodes)))
        self.offers = Offers(self.nodes)
        self.amounts_left = self.offers.amounts_left({})

    def close(self) -> None:
        """Leave the copy without seats until the next read, because every claim would be lost."""
        self.version = -1
        self.free = np.zeros(len(self.layout.is_slot), dtype=bool)
        self.free_count = 0
        self.ahead_count = 0
        for reservation in self.reserved:
            reservation.owners = []
            reservation.slots = []
        self.reserved.clear()
        self._forget_seats()

    def set_quality(self, quality: Floats, sharpness: float = SHARPNESS) -> None:
        """Store the quality of each node.

        quality: the score among the nodes of all partitions, in standard deviations from the mean.
        sharpness: how much more often a node of a higher score is chosen, see `pace`.
        """
        self.quality = quality
        self._paces = pace(quality, sharpness)
        self._forget_seats()
        self.kept_ranks.on_offers()

    @property
    def since(self) -> int:
        """The version since which the next read asks for changes; -1 to read all.

        One read in READS_PER_WHOLE_READ reads all, in case a change was not noted by a script.
        """
        return self.version if self.reads % READS_PER_WHOLE_READ else -1

    def set_free(
        self, bits: bytes | None, amounts_left: Mapping[str, str], version: int, whole: bool = True
    ) -> None:
        """Store a snapshot: the free bits, and the amounts that the nodes have left.

        bits: the bitmap as Redis has it; None for the bitmap of the last snapshot.
        amounts_left: by node, as text.
        whole: whether `amounts_left` has all nodes.
        """
        self._bits = self._bits if bits is None else bits
        self.judged = -1
        whole = whole and bits is not None
        # unpackbits fills a short bitmap up with 0, but makes garbage of an empty bitmap
        bits_read = np.unpackbits(
            np.frombuffer(self._bits or b"\0", dtype=np.uint8), count=len(self.layout.is_slot)
        )
        self.free = bits_read.view(bool) & (self.layout.node_of >= 0)
        self.free_count = int(np.count_nonzero(self.free & self.layout.is_slot))
        self.ahead_count = int(np.count_nonzero(self.free)) - self.free_count
        self.amounts_left = self.offers.amounts_left(amounts_left, whole)
        self.version = version
        for reservation in filter(len, self.reserved):
            is_free = np.asarray(self.free[reservation.bits].all(axis=1))
            reservation.keep(
                self.amounts_left.within(reservation.needs, reservation.owners, is_free)
            )
            if reservation:
                self.change(reservation, 1)
        self._forget_seats()

    def _forget_seats(self) -> None:
        """Empty the caches."""
        self._changed.clear()
        self._seats.clear()
        self._most.clear()
        self.kept_ranks.on_free()
        self._free_of = None
        self._used = None

    def forget_reservations(self) -> None:
        """Forget all reservations; the bits must be read again."""
        self.reserved.clear()
        self.version = -1

    def seats(self, needs: Resources, knowers: Knowers = None, ahead: bool = False) -> Seats:
        """Return the seats for these needs, by this copy; all of them could be taken at once.

        Seats do not share slots, and no node has more seats than its amounts allow.

        knowers: the digests of the nodes that know the task's name; None if all nodes do.
        ahead: waiting seats, not slots.
        """
        seats, change_number = self._seats.get((needs.text, knowers, ahead)) or (None, 0)
        if seats is None or self._has_changed(needs, knowers, change_number):
            seats = self._find_seats(needs, knowers, ahead)
        self._seats[needs.text, knowers, ahead] = seats, len(self._changed)
        return seats

    def _has_changed(self, needs: Resources, knowers: Knowers, change_number: int) -> bool:
        """Return whether seats have changed on a node that fits these needs.

        change_number: earlier changes do not count.
        """
        return change_number < len(self._changed) and bool(
            self.offers.open(needs, knowers)[self._changed[change_number:]].any()
        )

    def _find_seats(self, needs: Resources, knowers: Knowers, ahead: bool) -> Seats:
        """Return the seats for these needs, without the cache."""
        if needs.amounts or needs.labels or knowers is not None or self.offers.choosy:
            key = needs.text, knowers, ahead
            of_nodes = self.layout.bits_of(key, self.offers.open(needs, knowers))
            bits = of_nodes[self.free[of_nodes]]
        else:
            bits = (self.free & (self.layout.is_slot != ahead)).nonzero()[0]
        nodes = self.layout.node_of[bits]
        if needs.slots == 1 and not needs.amounts:
            return Seats(self, bits, np.arange(len(bits)), nodes, self._paces[nodes], 1)
        free_bits = np.bincount(nodes, minlength=len(self.nodes))
        owners = free_bits.nonzero()[0]
        tasks = self.amounts_left.tasks(needs, owners)
        leads = find_leads(free_bits[owners], tasks, needs.slots)
        return Seats(self, bits, leads, nodes[leads], self._paces[nodes[leads]], needs.slots)

    def reserve(self, seats: Seats, chosen: Ints, needs: Resources, shift: int = 0) -> Reservation:
        """Take seats, by their indices, out of this copy, for tasks that are still to be taken.

        shift: for tasks with preferences that hold amounts, a random number: which of the free
        slots are taken, lest two schedulers that prefer a node claim the same slot.
        """
        owners = seats.nodes[chosen]
        leads = seats.leads[chosen]
        if shift and seats.size == 1:
            leads = self.layout.move_on(seats.bits, owners, leads, shift)
        bits = seats.bits[leads[:, None] + np.arange(seats.size)]
        slots = (bits - self.layout.first_of[owners][:, None]).tolist()
        reservation = Reservation(self, needs, owners.tolist(), [tuple(row) for row in slots])
        if seats.ranks is not None:
            reservation.ranks = dict(
                zip(reservation.owners, seats.ranks[chosen].tolist(), strict=True)
            )
            reservation.rules = seats.rules
        self.change(reservation, 1, bits)
        self.reserved[reservation] = None
        return reservation

    def change(self, reservation: Reservation, sign: int, bits: Ints | None = None) -> None:
        """Take the seats of a reservation out of the copy (sign 1), or put them back (-1).

        bits: the positions of their slots, if the caller has them.
        """
        bits = reservation.bits if bits is None else bits
        self.free[bits] = sign < 0
        slots = int(np.count_nonzero(self.layout.is_slot[bits]))
        self.free_count -= sign * slots
        self.ahead_count -= sign * (bits.size - slots)
        if sign > 0:
            reservation.device_amounts = self.amounts_left.take(
                reservation.needs, reservation.owners
            )
        else:
            self.amounts_left.put_back(
                reservation.needs, reservation.owners, reservation.device_amounts
            )
        self._changed += reservation.owners
        self.kept_ranks.on_free()
        self._free_of = None
        self._used = None

    def used(self) -> Mapping[str, int]:
        """Return what is not free on open nodes, in thousandths, `slots` too. Cached."""
        if self._used is None:
            self._used = self.offers.used(self.free_slots(), self.amounts_left)
        return self._used

    def free_slots(self) -> Ints:
        """Return the number of free slots of each node. Cached."""
        if self._free_of is None:
            self._free_of = self.layout.count(self.free & self.layout.is_slot)
        return self._free_of

    def ranks(
        self,
        rules: Sequence[Preference],
        needs: Resources,
        cluster: ClusterNow,
        place_in_turn: int = 0,
    ) -> Ints:
        """Return the rank of each node for a task of these needs, 0 the best.

        cluster: the facts of all nodes together. place_in_turn: number of partitions read later.
        """
        offers = self.offers
        return self.kept_ranks.of(
            rules,
            needs,
            cluster,
            not place_in_turn,
            lambda: NodesNow(
                offers.columns,
                offers.capacities,
                offers.index_of,
                self.free_slots(),
                self.amounts_left.amounts,
                offers.scores,
                cluster,
                place_in_turn,
                self.number,
            ),
        )

    def most_free(self, labels: Resources, knowers: Knowers) -> Mapping[str, int]:
        """Return the most that any open node has free: by resource, and as `slots` and `seats`.

        seats: its free slots, or 1 if only waiting seats are free there.
        labels: needs of one slot: the labels that a node must have, the least of each resource.
        knowers: as in `seats`. Cached.
        """
        most, change_number = self._most.get((labels.text, knowers)) or (None, 0)
        if most is None or self._has_changed(labels, knowers, change_number):
            free = self.free_slots()
            fitting = self.offers.open(labels, knowers)
            nodes = fitting & (free > 0)
            most = {"slots": int(free.max(where=nodes, initial=0))}
            has_waiting_seat = False
            if self.ahead_count:
                waiting_seats = self.layout.count(self.free & ~self.layout.is_slot)
                has_waiting_seat = bool((fitting & (waiting_seats > 0)).any())
            most["seats"] = max(most["slots"], int(has_waiting_seat))
            most |= self.amounts_left.most(nodes)
        self._most[labels.text, knowers] = most, len(self._changed)
        return most

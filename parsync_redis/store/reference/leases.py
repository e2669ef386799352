"""The state of a partition of the store in memory: nodes, leases, bits, amounts."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...model.apart import undeclared
from ...model.capacity import amounts_given
from ...model.needs import Resources, is_resources, parse_needs, parse_resources
from ...model.node import Notice
from ...model.place import Place
from .records import World


@dataclass(slots=True)
class NodeRecord:
    """A node's record, counter and doorbells.

    first, span: its bits are first .. first + span - 1. moved: its counter. ahead: the number of
    its open waiting seats; None for a node without waiting seats; below 0, minus the number of its
    shut slots. capacity: what it can give now, as its record has it. notice: when it leaves. inbox:
    doorbells, the newest first.
    """

    name: str
    inc: int
    score: str
    offer: Resources
    first: int = 0
    span: int = 0
    state: str = "up"
    drain: int = 0
    amounts_left: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    ahead: int | None = None
    capacity: str = ""
    notice: Notice | None = None
    inbox: "deque[Place]" = field(default_factory=deque)

    @property
    def has_waiting_seats(self) -> bool:
        """True if the node has waiting seats behind its slots."""
        return self.ahead is not None and self.ahead >= 0

    def usable(self, slot: int) -> bool:
        """Return whether the slot or waiting seat may be claimed when it has no lease."""
        is_open = self.state == "up" and not self.drain and not (self.notice and self.notice.over)
        return is_open and slot < self.offer.slots + (self.ahead or 0)


def amounts_of(needs_or_amounts: str) -> tuple[tuple[str, int], ...]:
    """Return the amounts that a claim asks for or a place holds, (name, thousandths)."""
    return (
        parse_resources(needs_or_amounts)
        if is_resources(needs_or_amounts)
        else parse_needs(needs_or_amounts)
    ).amounts


class Leases:
    """The nodes, leases and bits of one partition."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, NodeRecord] = {}
        self.leases: dict[tuple[str, int], Place] = {}
        self.bits = bytearray()
        self.version = self.epoch = self.inc = 0
        # node -> the version of its last change; "" -> the version of the very first change
        self.changed: dict[str, int] = {}
        self._with_amounts: list[NodeRecord] = []
        self.lost: set[str] = set()
        self.notes: dict[str, str] = {}
        self.waiters: list[str] = []

    def is_free(self, node: NodeRecord, slot: int) -> bool:
        """Return whether a claim on the slot would win."""
        return self._get(node.first + slot)

    def _holds(self, place: Place) -> bool:
        """Return whether the lease of a place's first slot is this very place."""
        return self.leases.get((place.node, place.slot)) == place

    def _leases_of(self, node: NodeRecord) -> Iterator[tuple[int, Place]]:
        for slot in range(node.span):
            if lease := self.leases.get((node.name, slot)):
                yield slot, lease

    def _give(self, node: NodeRecord, place: Place, factor: int) -> None:
        for name, amount in amounts_of(place.asked):
            if name in node.amounts_left or undeclared(name):
                node.amounts_left[name] = (
                    node.amounts_left.get(name, undeclared(name)) + factor * amount
                )
            if node.amounts_left.get(name) == undeclared(name) > 0:
                del node.amounts_left[name]
        self._with_amounts = [node for node in self.nodes.values() if node.amounts_left]

    def _count_left(self, node: NodeRecord) -> None:
        """Compute what is left of a node's amounts, from its offer, its capacity and its leases."""
        node.amounts_left = dict(amounts_given(node.offer, node.capacity))
        for slot, lease in self._leases_of(node):
            if slot == lease.slot:
                self._give(node, lease, -1)

    def _changed_nodes(self) -> None:
        self.version += 1
        now = self.world.now_ms
        following = self.epoch + 1
        self.epoch = now if following <= now else following + now % 1000
        self._with_amounts = [node for node in self.nodes.values() if node.amounts_left]

    def _free(self) -> int:
        """Return how many slots and waiting seats may be claimed."""
        return sum(byte.bit_count() for byte in self.bits)

    def _tell_waiter(self, channel: str, number: str) -> None:
        """Tell the scheduler that has waited longest for a slot of partition `number`, if any."""
        if self.waiters:
            slots = sum(node.offer.slots for node in self.nodes.values())
            self.world.publish(
                f"{channel}:{self.waiters.pop(0)}", f"freed {number} {self._free()} {slots}"
            )

    def _write_bits(self, node: NodeRecord) -> None:
        for slot in range(node.span):
            self._set(node.first + slot, node.usable(slot) and (node.name, slot) not in self.leases)

    def _set(self, bit: int, free: bool) -> None:
        byte = bit >> 3
        mask = 128 >> (bit & 7)
        if byte >= len(self.bits):
            self.bits.extend(bytes(byte + 1 - len(self.bits)))
        if free:
            self.bits[byte] |= mask
        else:
            self.bits[byte] &= ~mask

    def _get(self, bit: int) -> bool:
        return bit >> 3 < len(self.bits) and bool(self.bits[bit >> 3] & 128 >> (bit & 7))

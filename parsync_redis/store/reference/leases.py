"""The state of a partition of the store in memory: nodes, leases, bits, amounts."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...model.needs import Resources
from ...model.place import Place
from .records import World


@dataclass(slots=True)
class NodeRecord:
    """A node's record, counter and doorbells; its bits are first .. first + span - 1."""

    name: str
    inc: int
    score: str
    offer: Resources
    first: int = 0
    span: int = 0
    state: str = "up"
    drain: int = 0
    left: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    inbox: "deque[LeaseRecord]" = field(default_factory=deque)  # doorbells, the newest first

    def usable(self, slot: int) -> bool:
        """Return whether the slot may be claimed when it has no lease."""
        return self.state == "up" and not self.drain and slot < self.offer.slots


@dataclass(slots=True)
class LeaseRecord:
    """The holder of a slot; of a task's several slots the first is the lead, and has the amounts."""

    task: str
    attempt: str
    inc: int
    since_ms: int
    slots: tuple[int, ...]
    amounts: tuple[tuple[str, int], ...]
    lead: int

    def line(self, slot: int) -> str:
        """Return the lease as Redis has it."""
        head = f"{self.task} attempt={self.attempt} inc={self.inc} since={self.since_ms} "
        if slot != self.lead:
            return f"{head}lead={self.lead}"
        return " ".join([f"{head}slots={','.join(map(str, self.slots))}", *(f"{n}={a}" for n, a in self.amounts)])


def amounts_text(amounts: dict[str, int]) -> str:
    """Return amounts as Redis has them."""
    return " ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


class Leases:
    """The nodes, leases and bits of one partition."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, NodeRecord] = {}
        self.leases: dict[tuple[str, int], LeaseRecord] = {}
        self.bits = bytearray()
        self.version = self.epoch = self.inc = 0
        self._with_amounts: list[NodeRecord] = []
        self.lost: set[str] = set()
        self.notes: dict[str, str] = {}
        self.waiters: list[str] = []

    def is_free(self, node: NodeRecord, slot: int) -> bool:
        """Return whether a claim on the slot would win."""
        return self._get(node.first + slot)

    def _lease_at(self, place: Place) -> LeaseRecord | None:
        """Return the lease that a place names, if it exists and this is its lead."""
        lease = self.leases.get((place.node, place.slot))
        if lease is None or lease.task != place.task or lease.attempt != place.attempt:
            return None
        return lease if (lease.lead, lease.inc) == (place.slot, place.inc) else None

    def _leases_of(self, node: NodeRecord) -> Iterator[tuple[int, LeaseRecord]]:
        for slot in range(node.span):
            if lease := self.leases.get((node.name, slot)):
                yield slot, lease

    def _give(self, node: NodeRecord, amounts: Sequence[tuple[str, int]], factor: int) -> None:
        for name, amount in amounts:
            if name in node.left:
                node.left[name] += factor * amount

    def _changed_nodes(self) -> None:
        self.version += 1
        self.epoch += 1
        self._with_amounts = [node for node in self.nodes.values() if node.left]

    def _write_bits(self, node: NodeRecord) -> None:
        for slot in range(node.span):
            self._set(node.first + slot, node.usable(slot) and (node.name, slot) not in self.leases)

    def _set(self, at: int, free: bool) -> None:
        byte, mask = at >> 3, 128 >> (at & 7)
        if byte >= len(self.bits):
            self.bits.extend(bytes(byte + 1 - len(self.bits)))
        if free:
            self.bits[byte] |= mask
        else:
            self.bits[byte] &= ~mask

    def _get(self, at: int) -> bool:
        return at >> 3 < len(self.bits) and bool(self.bits[at >> 3] & 128 >> (at & 7))

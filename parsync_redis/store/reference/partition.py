"""A partition of the store in memory: nodes, leases, bits, amounts. See lua/ for the contract of each script.

A method with `keys` and `args` is a script; those that the simulator calls a thousand times a second are a shell around
one that takes and gives values (judge_claims, free_leases, read), so that there is one ledger and no text on its way.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...model.claim import Claim, ClaimOutcome, Verdict
from ...model.needs import Resources, parse_resources
from ...model.place import Place
from ...model.replies import Snapshot
from ...placement.fits import fits
from .queue import Args, World


@dataclass(slots=True)
class Node:
    """A node's record, its counter and its messages; its bits are first .. first + span - 1."""

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
    inbox: "deque[Lease]" = field(default_factory=deque)  # doorbells, the newest first

    def usable(self, slot: int) -> bool:
        """Whether the slot may be claimed when it has no lease."""
        return self.state == "up" and not self.drain and slot < self.offer.slots


@dataclass(slots=True)
class Lease:
    """Who holds a slot; of several slots that go together the first is the lead, and has the amounts."""

    task: str
    attempt: str
    inc: int
    since_ms: int
    slots: tuple[int, ...]
    amounts: tuple[tuple[str, int], ...]
    lead: int

    def line(self, slot: int) -> str:
        """The lease as Redis has it."""
        head = f"{self.task} attempt={self.attempt} inc={self.inc} since={self.since_ms} "
        if slot != self.lead:
            return f"{head}lead={self.lead}"
        return " ".join([f"{head}slots={','.join(map(str, self.slots))}", *(f"{n}={a}" for n, a in self.amounts)])


def amounts_text(amounts: dict[str, int]) -> str:
    """Amounts as Redis has them."""
    return " ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


class Partition:
    """The nodes and leases of one partition."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, Node] = {}
        self.leases: dict[tuple[str, int], Lease] = {}
        self.bits = bytearray()
        self.version = self.epoch = self.inc = 0
        self._with_amounts: list[Node] = []
        self.lost: set[str] = set()
        self.notes: dict[str, str] = {}
        self.waiters: list[str] = []

    # -- scripts -----------------------------------------------------------------------------------------------------

    def register_node(self, keys: Sequence[str], args: Args) -> list[int]:
        """A process takes a node's name under a new incarnation."""
        name = args.node
        old, offer = self.nodes.get(name), parse_resources(args.offer)
        held = dict(self._leases_of(old)) if old else {}
        self.inc = max(self.inc, int(args.known_inc)) + 1
        node = Node(name, self.inc, args.score, offer, drain=old.drain if old else 0, left=dict(offer.amounts))
        for slot, lease in held.items():
            if slot == lease.lead:
                self._give(node, lease.amounts, -1)
        node.span = max([offer.slots, *(slot + 1 for slot in held)])
        if old:
            for slot in range(old.span):
                self._set(old.first + slot, False)
        node.first = old.first if old and node.span <= old.span else self._gap(node)
        self.nodes[name] = node
        self._write_bits(node)
        if held:
            self.lost.add(name)
        self._changed_nodes()
        return [node.inc, node.first]

    def commit(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Each claim is judged by itself; the first claim wins."""
        claims = [
            Claim(r.task, r.attempt, 0, r.node, int(r.inc), tuple(map(int, r.slots.split(","))), r.needs)
            for r in args.rows
        ]
        verdicts = self.judge_claims(claims)
        return [self.version, str(self.world.now_ms), *(part for v in verdicts for part in (v.word.value, v.detail))]

    def judge_claims(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Commit: a verdict on each claim; what is won is held."""
        verdicts = [self.judge(claim) or self._hold(claim) for claim in claims]
        self.version += any(verdict.word is ClaimOutcome.HELD for verdict in verdicts)
        return verdicts

    def judge(self, claim: Claim) -> Verdict | None:
        """Why a claim gets nothing anew; None if it would be held."""
        node = self.nodes.get(claim.node)
        if node is None:
            return Verdict(ClaimOutcome.GONE, "")
        for slot in claim.slots:
            if slot >= node.span or not self._get(node.first + slot):
                lease = self.leases.get((claim.node, slot))
                if lease and (lease.task, lease.attempt, lease.inc) == (claim.task, claim.attempt, node.inc):
                    return Verdict(ClaimOutcome.YOURS, str(lease.since_ms))
                return Verdict(ClaimOutcome.CONFLICT, lease.task if lease else "")
        if node.inc != claim.inc:
            return Verdict(ClaimOutcome.CHANGED, str(node.inc))
        needs = parse_resources(claim.needs)
        if not fits(node.offer, needs):
            return Verdict(ClaimOutcome.SHORT, node.offer.text)
        if any(node.left.get(resource, 0) < amount for resource, amount in needs.amounts):
            return Verdict(ClaimOutcome.SHORT, amounts_text(node.left))
        return None

    def _hold(self, claim: Claim) -> Verdict:
        node, amounts = self.nodes[claim.node], parse_resources(claim.needs).amounts
        since_ms = self.world.now_ms
        lease = Lease(claim.task, claim.attempt, claim.inc, since_ms, claim.slots, amounts, claim.slots[0])
        for slot in claim.slots:
            self._set(node.first + slot, False)
            self.leases[claim.node, slot] = lease
        self._give(node, amounts, -1)
        node.inbox.appendleft(lease)
        return Verdict(ClaimOutcome.HELD, str(since_ms))

    def release(self, keys: Sequence[str], args: Args) -> list[str]:
        """Frees exactly the lease that is meant."""
        places = [Place(r.task, r.attempt, 0, r.node, int(r.slot), int(r.inc), 0) for r in args.rows]
        return ["freed" if freed else "none" for freed in self.free_leases(places, args.channel, args.partition)]

    def free_leases(self, places: Sequence[Place], channel: str, number: str) -> list[bool]:
        """Release: whether each lease stood and is freed; who waits for this partition, `number`, hears of it."""
        done, freed = [], 0
        for place in places:
            lease = self._lease_at(place)
            done.append(lease is not None)
            if lease is None:
                continue
            node = self.nodes[place.node]
            for slot in lease.slots:
                del self.leases[place.node, slot]
                usable = node.usable(slot)
                self._set(node.first + slot, usable)
                freed += usable
            self._give(node, lease.amounts, 1)
        self.version += any(done)
        if freed and self.waiters:
            free = sum(byte.bit_count() for byte in self.bits)
            slots = sum(node.offer.slots for node in self.nodes.values())
            self.world.publish(f"{channel}:{self.waiters.pop(0)}", f"freed {number} {free} {slots}")
        return done

    def read_partition(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Bits and amounts, if anything changed."""
        found = self.read(0, int(args.version), args.waiter)
        reply: list[Any] = [found.version, found.epoch]
        if found.bits is not None:
            reply += (found.bits, *(word for pair in found.left.items() for word in pair))
        return reply

    def read(self, number: int, version: int, waiter: str = "") -> Snapshot:
        """Read_partition: the snapshot of this partition, `number`."""
        if waiter and waiter not in self.waiters:
            self.waiters.append(waiter)
        if self.version == version:
            return Snapshot(number, version, self.epoch, None, {})
        left = {node.name: amounts_text(node.left) for node in self._with_amounts}
        return Snapshot(number, self.version, self.epoch, bytes(self.bits), left)

    def renew(self, keys: Sequence[str], args: Args) -> list[str]:
        """The present process of a node moves its counter."""
        node, inc = self.nodes.get(args.node), int(args.inc)
        if node and node.inc > inc:
            return ["superseded", str(node.inc)]
        if node is None or node.inc != inc or node.state == "down":
            return ["lapsed"]
        node.moved += 1
        return ["ok", str(node.moved), node.state, str(node.drain)]

    def reclaim(self, keys: Sequence[str], args: Args) -> list[str]:
        """A node that stood still is down; the leases that nobody looks after are listed."""
        name, moved = args.node, args.moved
        node, word = self.nodes.get(name), "listed"
        if node is None:
            self.lost.discard(name)
            return [word]
        if moved:
            word = "moved"
            if node.inc == int(args.inc) and node.state != "down" and node.moved == int(moved):
                word = node.state = "down"
                self._write_bits(node)
                self._changed_nodes()
        lost = [
            (slot, lease)
            for slot, lease in self._leases_of(node)
            if slot == lease.lead and (node.state == "down" or lease.inc != node.inc)
        ]
        (self.lost.add if lost else self.lost.discard)(name)
        return [word, *(w for slot, lease in lost[: int(args.limit)] for w in (str(slot), lease.line(slot)))]

    def set_node(self, keys: Sequence[str], args: Args) -> list[str]:
        """Whether new claims may go to a node."""
        name, inc, word, note = args.node, args.inc, args.word, args.note
        node = self.nodes.get(name)
        if node is None or inc not in ("", str(node.inc)):
            return ["gone"]
        before, told = (node.state, node.drain), self.notes.get(name, "")
        if word == "drain" and (node.drain, told) != (2, f"drain over {note}"):
            node.drain, told = 1, f"drain {note}"
        elif word == "over" and (node.drain, told) == (1, f"drain {note}"):
            node.drain, told = 2, f"drain over {note}"
        elif word == "undrain" or (word == "trust" and told.startswith("suspect ")):
            node.drain, told = 0 if word == "undrain" else node.drain, ""
        elif word == "suspect" and before == ("up", 0):
            node.state, told = "suspect", f"suspect {note}"
        if before[0] == "suspect" and word != "suspect":
            node.state = "up"
        if word == "leaving" and node.state == "up":
            node.state = "leaving"
        self.notes[name] = told
        if (node.state, node.drain) != before:
            self._write_bits(node)
            self._changed_nodes()
        return ["ok", node.state, str(node.drain)]

    def ring(self, keys: Sequence[str], args: Args) -> str:
        """The doorbell of a lease that stands, again, if there is nothing to read."""
        lease = self._lease_at(Place(args.task, args.attempt, 0, args.node, int(args.slot), int(args.inc), 0))
        if lease is None:
            return "none"
        if self.nodes[args.node].inbox:
            return "waiting"
        self.nodes[args.node].inbox.appendleft(lease)
        return "rung"

    def forget_node(self, keys: Sequence[str], args: Args) -> str:
        """The record of a node that is down and holds nothing goes."""
        node = self.nodes.get(args.node)
        if node is None:
            return "gone"
        if node.state != "down" or node.inc != int(args.inc):
            return "up"
        if any(True for _ in self._leases_of(node)):
            return "held"
        del self.nodes[node.name]
        self.lost.discard(node.name)
        self.notes.pop(node.name, None)
        self._changed_nodes()
        return "forgotten"

    def is_free(self, node: Node, slot: int) -> bool:
        """Whether a claim on the slot would win."""
        return self._get(node.first + slot)

    # -- what they share ---------------------------------------------------------------------------------------------

    def _lease_at(self, place: Place) -> Lease | None:
        """The lease that a place names, if it stands and this is its lead."""
        lease = self.leases.get((place.node, place.slot))
        if lease is None or lease.task != place.task or lease.attempt != place.attempt:
            return None
        return lease if (lease.lead, lease.inc) == (place.slot, place.inc) else None

    def _leases_of(self, node: Node) -> Iterator[tuple[int, Lease]]:
        for slot in range(node.span):
            if lease := self.leases.get((node.name, slot)):
                yield slot, lease

    def _give(self, node: Node, amounts: Sequence[tuple[str, int]], factor: int) -> None:
        for name, amount in amounts:
            if name in node.left:
                node.left[name] += factor * amount

    def _gap(self, node: Node) -> int:
        """The first run of bits that no other node has."""
        first = 0
        for other in sorted((n for n in self.nodes.values() if n.name != node.name), key=lambda n: n.first):
            if other.first - first >= node.span:
                break
            first = max(first, other.first + other.span)
        return first

    def _changed_nodes(self) -> None:
        self.version += 1
        self.epoch += 1
        self._with_amounts = [node for node in self.nodes.values() if node.left]

    def _write_bits(self, node: Node) -> None:
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

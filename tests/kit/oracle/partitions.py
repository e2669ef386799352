"""The audit of one partition: bits, leases, amounts and counts must agree.

The audit is pure: it judges records that were read before.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from parsync_redis.model.apart import undeclared
from parsync_redis.model.capacity import amounts_given
from parsync_redis.model.needs import amounts_text, read_amounts
from parsync_redis.model.node import Lease, Node
from parsync_redis.model.text import TERMS


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The records of a partition, as they were read.

    bits: the bitmap of free slots.
    free_amounts: node -> the amounts that it has left, as text.
    alive: node -> its counter.
    lost: nodes with lost leases.
    inboxes: nodes with an inbox.
    bad: a sentence for each record that cannot be parsed.
    """

    number: int
    meta: Mapping[str, str]
    nodes: Mapping[str, Node]
    leases: Mapping[tuple[str, int], Lease]
    bits: bytes
    free_amounts: Mapping[str, str]
    changed: Mapping[str, float]
    alive: Mapping[str, str]
    notes: Mapping[str, str]
    lost: Set[str]
    inboxes: Set[str]
    bad: Sequence[str]


def audit_partition(state: PartitionState) -> list[str]:
    """Return a sentence for each fault of the partition."""
    faults = [*state.bad]
    for check in (_bits, _leases, _amounts, _changes, _nodes, _counts):
        faults += check(state)
    return [f"p{state.number}: {fault}" for fault in faults]


def usable(node: Node, slot: int) -> bool:
    """Return whether a slot or waiting seat without a lease may be claimed."""
    return node.state == "up" and not node.draining and slot < node.offer.slots + (node.ahead or 0)


def _bit(bits: bytes, position: int) -> int:
    return bits[position // 8] >> (7 - position % 8) & 1 if position // 8 < len(bits) else 0


def _bits(state: PartitionState) -> Iterator[str]:
    """Check that a bit is 1 exactly if its slot is usable and has no lease.

    A bit that belongs to no node must be 0.
    """
    owner: dict[int, str] = {}
    for name, node in state.nodes.items():
        for slot in range(node.span):
            position = node.first + slot
            if position in owner:
                yield f"bit {position} is of {owner[position]} and of {name}"
            owner[position] = name
            lease = state.leases.get((name, slot))
            expected = int(usable(node, slot) and lease is None)
            if _bit(state.bits, position) != expected:
                why = "usable and without a lease" if expected else "not usable and without a lease"
                if lease:
                    why = f"leased to {lease.place.task}"
                yield f"slot {name}/{slot} has the free bit {1 - expected}, but is {why}"
    for position in range(len(state.bits) * 8):
        if position not in owner and _bit(state.bits, position):
            yield f"bit {position} is 1, but is of no node"


def _leases(state: PartitionState) -> Iterator[str]:
    """Check that each lease is for a slot of its node.

    All slots that a lease names must have that lease.
    """
    for (name, slot), lease in state.leases.items():
        node = state.nodes.get(name)
        if node is None or slot >= node.span:
            yield f"slot {name}/{slot} is leased to {lease.place.task}, but nobody would look there"
        elif lease.place.inc > node.inc:
            yield (
                f"slot {name}/{slot} has a lease of incarnation {lease.place.inc}, but the node is "
                f"at {node.inc}"
            )
        elif (lease.place.inc != node.inc or node.state == "down") and name not in state.lost:
            yield f"slot {name}/{slot} has a lost lease, but {name} is not listed as lost"
        if lease.place.partition != state.number:
            yield f"slot {name}/{slot} has a lease of partition {lease.place.partition}"
        for further_slot in lease.place.slots:
            further_lease = state.leases.get((name, further_slot))
            if further_lease is None or further_lease.place != lease.place:
                yield (
                    f"slot {name}/{slot} has a lease of {name}/{further_slot} as well, which has "
                    "another"
                )


def number(text: str) -> int:
    """Return a count as Redis stores it: 0 for "", -1 if the text is no count."""
    if not text:
        return 0
    return int(text) if text.isdecimal() and len(text) < 16 else -1


def _amounts(state: PartitionState) -> Iterator[str]:
    """Check that free amounts and leased amounts add up to what the node declares."""
    for name, node in state.nodes.items():
        leased = [
            read_amounts(lease.place.asked)
            for (owner, _), lease in state.leases.items()
            if owner == name and lease.leads
        ]
        apart = {word for amounts in leased for word in amounts if undeclared(word)}
        expected = dict(amounts_given(node.offer, node.capacity)) | {
            word: undeclared(word) for word in sorted(apart)
        }
        for resource in expected:
            expected[resource] -= sum(amounts.get(resource, 0) for amounts in leased)
        free_amounts = state.free_amounts.get(name, "")
        if read_amounts(free_amounts) != expected:
            by_leases = amounts_text(expected.items())
            yield f"node {name} has {free_amounts!r} left, but by its leases {by_leases!r}"
    yield from (
        f"amounts are left of {name}, which is no node"
        for name in state.free_amounts.keys() - state.nodes.keys()
    )


def _changes(state: PartitionState) -> Iterator[str]:
    """Check that each noted change names a node and a version that existed.

    The partition must also note since when changes are noted.
    """
    latest = number(state.meta.get("version", ""))
    for name, version in sorted(state.changed.items()):
        if name and name not in state.nodes:
            yield f"a change of {name} is noted, which is no node"
        if not 0 <= version <= latest or version % 1:
            yield (
                f"a change of {name or 'all nodes'} is noted at version {version:g}, the partition "
                f"is at {latest}"
            )
    if state.nodes and "" not in state.changed:
        yield "it is not known since when changes of its nodes are noted"


def _nodes(state: PartitionState) -> Iterator[str]:
    """Check that each node has a counter of its incarnation, and the note of its state.

    A drained node has a note with the terms of the drain, a suspect node has any note.
    """
    for name, node in state.nodes.items():
        if state.alive.get(name, "").split(" ")[0] != f"inc={node.inc}":
            yield (
                f"node {name} is at incarnation {node.inc}, its counter says "
                f"{state.alive.get(name)!r}"
            )
        elif state.alive[name].endswith(" down") != (node.state == "down"):
            yield f"node {name} is {node.state}, its counter says {state.alive[name]!r}"
        note = state.notes.get(name, "")
        if (node.drain != 0) != (TERMS.read(note) is not None) or (
            node.state == "suspect" and not note
        ):
            drained = "drained" if node.drain else "not drained"
            yield f"node {name} is {node.state} and {drained}, its note says {note!r}"
        if node.inc > number(state.meta.get("inc", "")):
            yield (
                f"node {name} is at incarnation {node.inc}, the partition's highest is "
                f"{state.meta.get('inc')}"
            )
    kinds = (
        ("a counter", state.alive.keys()),
        ("a note", state.notes.keys()),
        ("an inbox", state.inboxes),
    )
    for kind, names in kinds:
        yield from (
            f"there is {kind} of {name}, which is no node"
            for name in sorted(names - state.nodes.keys())
        )


def _counts(state: PartitionState) -> Iterator[str]:
    """Check that `meta` has the numbers of slots and of free slots."""
    slots = sum(node.offer.slots for node in state.nodes.values())
    free = sum(byte.bit_count() for byte in state.bits)
    for field, expected in (("slots", slots), ("free", free)):
        if number(state.meta.get(field, "")) != expected:
            yield f"meta says {field} {state.meta.get(field, 0)}, counted {expected}"

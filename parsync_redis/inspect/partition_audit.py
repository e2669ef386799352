"""The audit of one partition: compare bits, leases, amounts and counts.

It is pure: it judges values that were read.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from ..model.apart import undeclared
from ..model.needs import amounts_text, read_amounts
from ..model.node import Lease, Node
from ..model.text import TERMS


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The records read from a partition. bad: a sentence for each record that cannot be read."""

    number: int
    meta: Mapping[str, str]
    nodes: Mapping[str, Node]
    leases: Mapping[tuple[str, int], Lease]
    bits: bytes
    left: Mapping[str, str]
    changed: Mapping[str, float]
    alive: Mapping[str, str]
    notes: Mapping[str, str]
    lost: Set[str]
    inboxes: Set[str]
    bad: Sequence[str]


def audit_partition(state: PartitionState) -> list[str]:
    """Return a sentence for each fault of the partition."""
    found = [*state.bad]
    for check in (_bits, _leases, _amounts, _changes, _nodes, _counts):
        found += check(state)
    return [f"p{state.number}: {fact}" for fact in found]


def usable(node: Node, slot: int) -> bool:
    """Return True if a slot or waiting seat may be claimed when it has no lease."""
    return node.state == "up" and not node.draining and slot < node.offer.slots + (node.ahead or 0)


def _bit(bits: bytes, at: int) -> int:
    return bits[at // 8] >> (7 - at % 8) & 1 if at // 8 < len(bits) else 0


def _bits(state: PartitionState) -> Iterator[str]:
    """Check that a bit is 1 exactly if its slot is usable and has no lease, and that bits of no
    node are 0.
    """
    owner: dict[int, str] = {}
    for name, node in state.nodes.items():
        for slot in range(node.span):
            at = node.first + slot
            if at in owner:
                yield f"bit {at} is of {owner[at]} and of {name}"
            owner[at] = name
            held = state.leases.get((name, slot))
            right = int(usable(node, slot) and held is None)
            if _bit(state.bits, at) != right:
                why = (
                    f"leased to {held.place.task}"
                    if held
                    else f"{'' if right else 'not '}usable and without a lease"
                )
                yield f"slot {name}/{slot} has the free bit {1 - right}, but is {why}"
    for at in range(len(state.bits) * 8):
        if at not in owner and _bit(state.bits, at):
            yield f"bit {at} is 1, but is of no node"


def _leases(state: PartitionState) -> Iterator[str]:
    """Check that every lease is of a slot in its node's span, and that all slots that it names have
    it.
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
        for other in lease.place.slots:
            led = state.leases.get((name, other))
            if led is None or led.place != lease.place:
                yield f"slot {name}/{slot} has a lease of {name}/{other} as well, which has another"


def number(text: str) -> int:
    """Return a count as Redis has it, 0 for no text; -1 if it is no count."""
    return int(text) if text.isdecimal() and len(text) < 16 else 0 if not text else -1


def _amounts(state: PartitionState) -> Iterator[str]:
    """Check that what is left and what leases hold add up to what the node declares."""
    for name, node in state.nodes.items():
        held = [
            read_amounts(lease.place.asked)
            for (of, _), lease in state.leases.items()
            if of == name and lease.leads
        ]
        apart = {name for amounts in held for name in amounts if undeclared(name)}
        right = {
            resource: amount - sum(amounts.get(resource, 0) for amounts in held)
            for resource, amount in [
                *node.offer.amounts,
                *((name, undeclared(name)) for name in sorted(apart)),
            ]
        }
        left = state.left.get(name, "")
        if read_amounts(left) != right:
            by_leases = amounts_text(right.items())
            yield f"node {name} has {left!r} left, but by its leases {by_leases!r}"
    yield from (
        f"amounts are left of {name}, which is no node"
        for name in state.left.keys() - state.nodes.keys()
    )


def _changes(state: PartitionState) -> Iterator[str]:
    """Check that each change is of a node and of a version that there was, and that it is known
    since when they are.
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
    """Check that every node has a counter of its incarnation, and a note: terms exactly if drained,
    any if suspect.
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
        if node.draining != (TERMS.read(note) is not None) or (
            node.state == "suspect" and not note
        ):
            drained = "drained" if node.draining else "not drained"
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
    slots = sum(node.offer.slots for node in state.nodes.values())
    free = sum(byte.bit_count() for byte in state.bits)
    for field, right in (("slots", slots), ("free", free)):
        if number(state.meta.get(field, "")) != right:
            yield f"meta says {field} {state.meta.get(field, 0)}, counted {right}"

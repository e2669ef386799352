"""A node as its record in Redis says, and a lease."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidInput
from .ids import check_name, readable, shown
from .needs import Resources, parse_resources

_NODE: Final = re.compile(
    r"(up|suspect|leaving|down) inc=(\d{1,15}) drain=(\d) first=(\d{1,8}) span=(\d{1,5}) score=([\d.e+-]+) (slots=.*)",
    re.ASCII,
)
_DEADLINE: Final = re.compile(r"drain deadline_s=(\d{1,9}(?:\.\d{1,9})?)(?::|$)", re.ASCII)
_LEASE: Final = re.compile(r"(\S+) attempt=(\S+) inc=(\d{1,15}) since=(\d{1,15}) (slots=\d[\d,]*.*|lead=\d+)", re.ASCII)


STANDS_STILL: Final = "its event loop stands still"
"""How a node's agent begins the reason for which the node is suspect; the agent itself ends that."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node; its slots' bits are first .. first + span - 1 of its partition's bitmap.

    state: up, suspect (alive, but it did not start what it was given), leaving or down.
    """

    name: str
    state: str
    inc: int
    draining: bool
    first: int
    span: int
    score: float
    offer: Resources

    @classmethod
    def of(cls, name: str, record: str) -> "Node":
        """Reads the line that lua/lib/node.lua writes."""
        match = _NODE.fullmatch(record)
        if not match:
            raise ValueError(f"node {name}: not a node record: {record!r}")
        state, inc, drain, first, span, score, offer = match.groups()
        return cls(name, state, int(inc), drain != "0", int(first), int(span), float(score), parse_resources(offer))


MAX_DEADLINE_S: Final = 1_000_000
MAX_REASON: Final = 200


def drain_note(deadline_s: float | None, reason: str) -> str:
    """What set_node is told of a drain, 'deadline_s=600: a new disk' or 'no deadline'; raises InvalidInput."""
    if deadline_s is not None and not (type(deadline_s) in (int, float) and 0 <= deadline_s <= MAX_DEADLINE_S):
        raise InvalidInput(
            f"deadline_s={shown(deadline_s)} is not valid: it must be a number of seconds from 0 to {MAX_DEADLINE_S:,}"
        )
    if not reason.isprintable() or len(reason) > MAX_REASON:
        raise InvalidInput(f"reason={shown(reason)} is not valid: it must be a line of at most {MAX_REASON} characters")
    head = "no deadline" if deadline_s is None else f"deadline_s={deadline_s:.3f}".rstrip("0").rstrip(".")
    return f"{head}: {reason}" if reason else head


def deadline_s(note: str) -> float | None:
    """After how many seconds the drain that a node's note tells of is over; None if it has no deadline."""
    match = _DEADLINE.match(note)
    return float(match[1]) if match else None


def read_nodes(records: Mapping[bytes, bytes]) -> tuple[dict[str, Node], bool]:
    """The nodes of a partition by name, as Redis has their records, and whether some could not be read."""
    found: dict[str, Node] = {}
    damaged = False
    for raw, record in records.items():
        try:
            name = check_name("node name", readable(raw))
            found[name] = Node.of(name, readable(record))
        except ValueError:
            damaged = True
    return found, damaged


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds a slot, since when (ms, server time).

    slots: all slots of the task, and asked: the amounts that it holds ('gpu=1'), both in its lead's lease only.
    """

    node: str
    slot: int
    task: str
    attempt: str
    inc: int
    since_ms: int
    slots: tuple[int, ...]
    asked: str = ""

    @classmethod
    def of(cls, node: str, slot: int, record: str) -> "Lease":
        """Reads the line that lua/lib/lease.lua writes."""
        match = _LEASE.fullmatch(record)
        if not match:
            raise ValueError(f"slot {node}/{slot}: not a lease: {record!r}")
        task, attempt, inc, since, rest = match.groups()
        word, _, asked = rest.partition(" ")
        slots = tuple(int(n) for n in word[6:].split(",") if n) if word.startswith("slots=") else ()
        return cls(node, slot, task, attempt, int(inc), int(since), slots, asked)

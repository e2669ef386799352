"""A node as its record in Redis says, and a lease."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .ids import check_name, readable
from .needs import Bundle, parse_bundle

_NODE: Final = re.compile(
    r"(up|leaving|down) inc=(\d{1,15}) drain=(\d) first=(\d{1,8}) span=(\d{1,5}) score=([\d.e+-]+) (slots=.*)", re.ASCII
)
_LEASE: Final = re.compile(r"(\S+) attempt=(\S+) inc=(\d{1,15}) since=(\d{1,15}) (slots=\d[\d,]*.*|lead=\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """A node; its slots' bits are first .. first + span - 1 of its partition's bitmap."""

    name: str
    state: str
    inc: int
    draining: bool
    first: int
    span: int
    score: float
    offer: Bundle

    @classmethod
    def of(cls, name: str, record: str) -> "Node":
        """Reads the line that lua/lib/node.lua writes."""
        match = _NODE.fullmatch(record)
        if not match:
            raise ValueError(f"node {name}: not a node record: {record!r}")
        state, inc, drain, first, span, score, offer = match.groups()
        return cls(name, state, int(inc), drain == "1", int(first), int(span), float(score), parse_bundle(offer))


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
    """Who holds a slot, since when (ms, server time). `slots`: all slots of the task, in its lead's lease only."""

    node: str
    slot: int
    task: str
    attempt: str
    inc: int
    since_ms: int
    slots: tuple[int, ...]

    @classmethod
    def of(cls, node: str, slot: int, record: str) -> "Lease":
        """Reads the line that lua/lib/lease.lua writes."""
        match = _LEASE.fullmatch(record)
        if not match:
            raise ValueError(f"slot {node}/{slot}: not a lease: {record!r}")
        task, attempt, inc, since, rest = match.groups()
        word = rest.partition(" ")[0]
        slots = tuple(int(n) for n in word[6:].split(",") if n) if word.startswith("slots=") else ()
        return cls(node, slot, task, attempt, int(inc), int(since), slots)

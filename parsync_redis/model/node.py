"""Nodes as their records in Redis say, terms of drains, and leases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ..errors import InvalidInput
from .capacity import capacity_shown, given_by, limits_slots, slots_given, source_fails
from .ids import check_name, readable, shown
from .needs import Resources, parse_resources
from .place import Place
from .text import NODE_LINE, TERMS

MAX_RECORD: Final = 140_000
"""The maximum number of characters of a node's record.

An offer and a capacity have 65,536 bytes each at most.
"""

STANDS_STILL: Final = "its event loop stands still"
NO_SIGN: Final = "its worker stands still"
NO_PROCESS: Final = "its pool has no process"
BY_ITSELF: Final = (STANDS_STILL, NO_SIGN, NO_PROCESS)
"""The beginnings of the reasons of a suspicion that the node's own worker raises and ends."""


_TRIAL: Final = re.compile(r"; after (\d{1,9}) s it gets a task on trial\Z", re.ASCII)


def trial_note(reason: str, pause_s: float) -> str:
    """Return the note of a suspect node that gets a task on trial after a pause."""
    return f"{reason}; after {pause_s:.0f} s it gets a task on trial"


def trial_s(note: str) -> float | None:
    """Return the seconds until a suspect node gets a trial; None if the note has no trial."""
    match = _TRIAL.search(note)
    return float(match[1]) if match else None


class NodeState(StrEnum):
    """The state of a node.

    up: the node gets tasks.
    draining: the node is up, but an operator keeps new tasks away, or it is about to leave.
    suspect: the node is alive, but its tasks fail or did not start, or its pool has no process.
    leaving: the node shuts down.
    down: the node's lease has ended, or the node has left.
    """

    UP = "up"
    DRAINING = "draining"
    SUSPECT = "suspect"
    LEAVING = "leaving"
    DOWN = "down"


def trust_remedy(node: str, note: str) -> str:
    """Return the command that lets a suspect node with this note take tasks for good.

    `parsync nodes undrain` alone may help for a moment only.
    """
    if trial_s(note) is not None:
        return (
            f"mend why tasks fail on {node} (parsync events --event failed --node {node}), then "
            f"parsync nodes undrain {node}"
        )
    if note.startswith(NO_PROCESS):
        return (
            f"give the pool of node {node} a process: celery control pool_grow 1, or autoscale if "
            "it has an autoscaler"
        )
    if note.startswith(BY_ITSELF):
        return f"restart the worker of node {node}, or end what blocks it: its log says where"
    return f"parsync nodes undrain {node}"


NOTICE_GRACE_LEASES: Final = 0.55
NOTICE_GRACE_S: Final = 2.0
"""The leader ends the remaining runs so many leases, and seconds more, before a node leaves.

The leader acts eight times a lease, the node's agent learns of it five times a lease, and a second
later kills the runs that go on with its next renewal.
"""


class Notice(NamedTuple):
    """The notice that a node leaves.

    at_ms: when it leaves (server time).
    of_process: the node's process told it, so its next incarnation forgets it; else an operator.
    over: the time has come: the node takes no claims, and its agent ends its runs.
    """

    at_ms: int
    of_process: bool = False
    over: bool = False

    @classmethod
    def of(cls, text: str) -> "Notice":
        """Read the word `until` of a record."""
        at_ms, *words = text.split(",")
        return cls(int(at_ms), "own" in words, "over" in words)

    @property
    def text(self) -> str:
        """Return the word `until` of a record."""
        return f"{self.at_ms}{',own' * self.of_process}{',over' * self.over}"

    def end_ms(self, lease_s: float) -> float:
        """Return when the runs that remain are ended (server time)."""
        return self.at_ms - 1000 * (NOTICE_GRACE_LEASES * lease_s + NOTICE_GRACE_S)


@dataclass(frozen=True, slots=True)
class Node:
    """A node; its slots have the bits first .. first + span - 1 of its partition's bitmap.

    state: up, suspect, leaving or down.
    drain: 0; 1 while an operator drains the node; 2 when the deadline of the drain has passed.
    ahead: the number of open waiting seats behind the slots; None without such seats. A negative
        number counts closed slots: the pool or the capacity has no room for them, or tasks behind
        the slots use it.
    capacity: the capacity as the record has it, '' if the node can give what it offers.
    notice: when the node leaves; None if nobody said that it will.
    """

    name: str
    state: str
    inc: int
    drain: int
    first: int
    span: int
    score: float
    offer: Resources
    ahead: int | None = None
    capacity: str = ""
    notice: Notice | None = None

    @property
    def has_waiting_seats(self) -> bool:
        """Return True if waiting seats, open or closed, are behind the node's slots."""
        return self.ahead is not None and self.ahead >= 0

    @property
    def waiting_seats(self) -> int:
        """Return the number of open waiting seats."""
        return max(0, self.ahead or 0)

    @property
    def shut_slots(self) -> int:
        """Return the number of the last slots that are closed."""
        return max(0, -(self.ahead or 0))

    @property
    def given(self) -> Resources:
        """Return what the node, when it is empty, can give now of its offer."""
        return given_by(self.offer, self.capacity)

    @property
    def gives(self) -> str:
        """Return what the node gives now, for people; '' if it gives what it offers."""
        amounts = capacity_shown(self.offer, self.capacity)
        parts = [f"gives {amounts} now"] if amounts else []
        if source_fails(self.capacity):
            parts.append("the source of its capacity fails")
        return "; ".join(parts)

    @property
    def draining(self) -> bool:
        """Return True if the node is drained, or its time to leave has come: it gets no claims."""
        return self.drain != 0 or (self.notice is not None and self.notice.over)

    @property
    def state_shown(self) -> NodeState:
        """Return the state for users: a node that is up and drained is draining."""
        return NodeState.DRAINING if self.state == "up" and self.draining else NodeState(self.state)

    @classmethod
    def of(cls, name: str, record: str) -> "Node":
        """Read the line that lua/lib/node/record.lua writes; raises ValueError."""
        fields = NODE_LINE.read(record) if len(record) <= MAX_RECORD else None
        if fields is None:
            raise ValueError(f"node {name}: not a node record: {record!r}")
        offer = parse_resources(fields["offer"])
        span = int(fields["span"])
        ahead = int(fields["ahead"]) if "ahead" in fields else None
        if max(0, ahead or 0) + offer.slots > span:
            raise ValueError(f"node {name}: more slots and waiting seats than its span: {record!r}")
        if offer.slots + (ahead or 0) < 0:
            raise ValueError(f"node {name}: more slots are shut than it has: {record!r}")
        inc = int(fields["inc"])
        drain = int(fields["drain"])
        first = int(fields["first"])
        score = float(fields["score"])
        capacity = fields.get("capacity", "")
        open_slots = offer.slots + (ahead or 0)
        if limits_slots(capacity) and open_slots > slots_given(offer, capacity):
            raise ValueError(f"node {name}: more slots are open than it gives: {record!r}")
        notice = Notice.of(fields["until"]) if "until" in fields else None
        return cls(
            name, fields["state"], inc, drain, first, span, score, offer, ahead, capacity, notice
        )


MAX_DEADLINE_S: Final = 1_000_000
MAX_REASON: Final = 200


def drain_terms(deadline_s: float | None, reason: str) -> str:
    """Return the terms of a drain, 'deadline_s=600: a new disk' or 'no deadline'.

    deadline_s: seconds, None for no deadline.

    Raises InvalidInput.
    """
    if deadline_s is not None and not (
        type(deadline_s) in (int, float) and 0 <= deadline_s <= MAX_DEADLINE_S
    ):
        raise InvalidInput(
            f"deadline_s={shown(deadline_s)} is not valid: it must be a number of seconds from 0 "
            f"to {MAX_DEADLINE_S:,}"
        )
    if not reason.isprintable() or len(reason) > MAX_REASON:
        raise InvalidInput(
            f"reason={shown(reason)} is not valid: it must be a line of at most {MAX_REASON} "
            "characters"
        )
    deadline = (
        "no deadline"
        if deadline_s is None
        else f"deadline_s={deadline_s:.3f}".rstrip("0").rstrip(".")
    )
    return TERMS.write(deadline=deadline, reason=reason or None)


MAX_LEAVING_S: Final = 366 * 86_400


def leaving_time(leaves_ms: float, now_ms: float) -> str:
    """Return the note of the word `until` for a node that leaves at a time (server time, ms).

    Raises InvalidInput for a time that is over, or more than a year ahead.
    """
    ahead_s = (leaves_ms - now_ms) / 1000
    if not 0 < ahead_s <= MAX_LEAVING_S:
        raise InvalidInput(
            f"a node cannot leave {ahead_s:.0f} s from now: the time must be ahead, by a year at "
            "most"
        )
    return str(round(leaves_ms))


def has_terms(note: str) -> bool:
    """Return whether the note of a node has the terms of a drain, whose deadline may be over."""
    return TERMS.read(note.removeprefix("over ")) is not None


def deadline_s(terms: str) -> float | None:
    """Return the seconds until the deadline of a drain; None if the terms have no deadline."""
    number = (TERMS.read(terms) or {"deadline": ""})["deadline"].removeprefix("deadline_s=")
    return float(number) if number[:1].isdigit() else None


def drain_reason(terms: str) -> str:
    """Return the operator's reason for a drain; '' without one."""
    return (TERMS.read(terms) or {}).get("reason", "")


def read_nodes(records: Mapping[bytes, bytes]) -> tuple[dict[str, Node], bool]:
    """Return a partition's nodes by name, and whether a record could not be read."""
    nodes: dict[str, Node] = {}
    damaged = False
    for raw, record in records.items():
        try:
            name = check_name("node name", readable(raw))
            nodes[name] = Node.of(name, readable(record))
        except ValueError:
            damaged = True
    return nodes, damaged


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a slot, with the place of the task that holds the slot."""

    slot: int
    place: Place

    @classmethod
    def of(cls, node: str, slot: int, record: str) -> "Lease":
        """Read a slot's field in `slots`; raises ValueError."""
        try:
            place = Place.of(record)
        except ValueError:
            raise ValueError(f"slot {node}/{slot}: not a lease: {record!r}") from None
        if place.node != node or slot not in place.slots:
            raise ValueError(f"slot {node}/{slot}: the lease of other slots: {record!r}")
        return cls(slot, place)

    @property
    def leads(self) -> bool:
        """Return True if the slot is the first of its place: that lease leads the others."""
        return self.slot == self.place.slot

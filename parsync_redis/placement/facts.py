"""Facts about a node that a task is judged by, and about the tasks that hold the node."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.capacity import given_by
from ..model.devices import kind_of
from ..model.needs import Resources


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts about a node by which a task is judged.

    The facts are the node's record, its free slots and amounts, and whether it knows the task's
    name.

    free: number of free slots.
    amounts_left: by resource, in thousandths.
    note: the terms of the drain, or why the node is suspect.
    down_ms: when the node was found down (server time).
    booked: the task that the node is kept for, if this keeps the judged task away; else ''.
    held_back: the node holds back the task's name, because such tasks fail there.
    leaves: the sentence about a node that leaves, if this keeps the judged task away; else ''.
    has_notice: somebody said that the node leaves.
    capacity: the capacity as the node's record has it, '' if the node gives what it offers.
    gives: what the node gives now, if that is less than it offers: 'gives 6 of its 10 slots now'.
    score: of the node, see Node.
    """

    name: str
    state: str
    draining: bool
    offer: Resources
    free: int
    amounts_left: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    down_ms: int | None = None
    knows: bool = True
    booked: str = ""
    held_back: bool = False
    leaves: str = ""
    has_notice: bool = False
    gives: str = ""
    score: float = 1.0
    capacity: str = ""

    @property
    def given(self) -> Resources:
        """The part of its offer that the empty node can give now."""
        return given_by(self.offer, self.capacity)

    @property
    def open(self) -> bool:
        """True if the node takes claims."""
        return self.state == "up" and not self.draining

    @property
    def open_to_task(self) -> bool:
        """True if the node takes claims of the judged task."""
        return self.open and not (self.booked or self.held_back or self.leaves)


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that holds slots of a node, and amounts of its resources in thousandths.

    slots: number of slots.
    since_ms: when the claim was committed (server time).
    attempt: the attempt that holds them.
    ended: the attempt is over, but its slots are not free yet.
    """

    node: str
    task: str
    resources: Mapping[str, int]
    slots: int = 1
    since_ms: int = 0
    attempt: str = ""
    ended: bool = False

    def holds(self, name: str) -> bool:
        """Return whether the task holds some of a resource, or of a kind of devices."""
        return any(
            amount and name in (resource, kind_of(resource))
            for resource, amount in self.resources.items()
        )

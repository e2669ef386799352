"""What is known of a node when a task is judged, and who holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.devices import kind_of
from ..model.needs import Resources


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts that decide if a node can take a task now: its record, what is free, and whether it
    knows the task's name.

    left: by resource, in thousandths. note: the terms of its drain, or why it is suspect. down_ms:
    when it was found to be down (server time). booked: for whom it is kept, if the task may not go
    there for that; else ''. held: it holds back the task's name, because such tasks fail there.
    """

    name: str
    state: str
    draining: bool
    offer: Resources
    free: int
    left: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    down_ms: int | None = None
    knows: bool = True
    booked: str = ""
    held: bool = False

    @property
    def open(self) -> bool:
        """True if claims may go there."""
        return self.state == "up" and not self.draining


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that holds slots of a node, and amounts (thousandths) of its resources.

    slots: how many. since_ms: when its claim was committed (server time). attempt: which attempt of
    the task holds them. ended: that attempt is over, and only its slots are not free yet.
    """

    node: str
    task: str
    resources: Mapping[str, int]
    slots: int = 1
    since_ms: int = 0
    attempt: str = ""
    ended: bool = False

    def holds(self, name: str) -> bool:
        """Return whether it holds some of a resource, or of devices of that kind."""
        return any(
            amount and name in (held, kind_of(held)) for held, amount in self.resources.items()
        )

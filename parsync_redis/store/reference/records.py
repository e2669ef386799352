"""Records of the queue of the store in memory."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ...model.place import Place
from ...model.task import StoredState

Args = Any
PENDING = StoredState.PENDING
TAKEN = StoredState.TAKEN
PLACED = StoredState.PLACED
RUNNING = StoredState.RUNNING
KEEP_OUTBOX: Final = 10_000
KEEP_DEAD: Final = 10_000
LOOK_AGAIN_MS: Final = 60_000


class World(Protocol):
    """The surroundings of a script: a clock for timestamps, and listeners."""

    now_ms: int

    def publish(self, channel: str, text: str) -> int:
        """Send a text to a channel; return the number of listeners."""


class Job(NamedTuple):
    """The work of an attempt."""

    kind: str
    message: bytes
    priority: int = 0
    max_starts: int | None = None
    publication: str = ""
    avoid_last: bool = True

    def options(self, **more: int | str | None) -> str:
        """Return the options of a line: those of the job and more."""
        words = {
            **more,
            "max": self.max_starts,
            "any": None if self.avoid_last else 1,
            "pub": self.publication or None,
        }
        return (
            ",".join(f"{name}={value}" for name, value in words.items() if value is not None) or "-"
        )


class Successor(NamedTuple):
    """The work that follows under the same id after the running attempt.

    None: due at once, never expires.
    """

    job: Job
    due_ms: int | None
    expires_ms: int | None

    @property
    def text(self) -> str:
        """The field `next` of its rare fields."""
        due = "-" if self.due_ms is None else self.due_ms
        return (
            f"{self.job.priority} {due} {self.job.options(expires=self.expires_ms)} {self.job.kind}"
        )


@dataclass(slots=True)
class Task:
    """The record of a task."""

    job: Job
    order: int
    life: int  # the number of its submission
    submitted_ms: int
    ready_ms: int = 0
    takes: int = 0  # before it last began to wait
    state: StoredState = PENDING
    attempt: str = ""  # while it is held, or dead
    place: Place | None = None  # an ended task keeps its last one
    started_ms: int | None = None  # at this place
    last: str | None = None  # the node that it ran on last, if it should rather go to another
    # since when it is ready, while it is due later because a run did not begin
    since_ms: int | None = None
    ran_ms: int | None = None  # its last start in this life before it went back
    redelivered: bool = False  # a run of its message had begun before it last began to wait
    starts: int = 0  # accepted starts that were lost
    expires_ms: int | None = None
    ended_ms: int | None = None
    ended_why: str = ""
    why: str | None = None  # of its last setback, or of its death
    cancel: str | None = None
    next: Successor | None = None
    history: list[str] = field(default_factory=list)
    told: bool = False  # it ended where no worker saw it, so its message is kept

    @property
    def has_run(self) -> bool:
        """True if it has started in this life."""
        return self.started_ms is not None or self.ran_ms is not None

    def come_due(self) -> None:
        """Let it be ready since it was first, if a run of it that did not begin was put off."""
        self.ready_ms = self.ready_ms if self.since_ms is None else self.since_ms
        self.since_ms = None

    def note_last(self) -> None:
        """Note on which node it ran last, unless it may as well go back there."""
        if self.place and self.job.avoid_last:
            self.last = self.place.node

    @property
    def line(self) -> str:
        """Its line, without the mark for rare fields."""
        options = self.job.options(
            starts=self.starts or None,
            ran=self.ran_ms,
            redelivered=int(self.redelivered) or None,
            last=self.last,
            since=self.since_ms,
            expires=self.expires_ms,
        )
        return (
            f"{self.takes}@{self.life} {self.order} {self.ready_ms} {self.submitted_ms} {options} "
            f"{self.job.kind}"
        )

    @property
    def run(self) -> str:
        """Its entry of `running`, the last one of a task that has ended; '' if it has no place."""
        started = "" if self.started_ms is None else f" started={self.started_ms}"
        return f"{self.place.text}{started}" if self.place else ""

    @property
    def rare(self) -> dict[str, str]:
        """Its rare fields, without messages."""
        dead = self.state == StoredState.DEAD
        fields = {
            "why": self.why,
            "history": "\n".join(self.history) or None,
            "cancel": self.cancel,
            "next": self.next.text if self.next else None,
            "ended_ms": str(self.ended_ms) if dead else None,
            "run": self.run if dead else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

"""Records of the queue of the store in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ...model.kind import Kind
from ...model.options import DEFAULT_OPTIONS, STORED
from ...model.task import TaskState

Args = Any
PENDING, TAKEN, PLACED, RUNNING = TaskState.PENDING, TaskState.TAKEN, TaskState.PLACED, TaskState.RUNNING
KEEP_OUTBOX: Final = 10_000
KEEP_DEAD: Final = 10_000
LOOK_AGAIN_MS: Final = 60_000
NO_OPTIONS: Final = {name: str(value) for name, value in zip(STORED, DEFAULT_OPTIONS.record(), strict=True)}


class World(Protocol):
    """The surroundings of a script: a clock for timestamps, and listeners."""

    now_ms: int

    def publish(self, channel: str, text: str) -> int:
        """Send a text to a channel; return the number of listeners."""


class Seat(NamedTuple):
    """A slot of one process of a node: where an attempt is."""

    node: str
    slot: int
    inc: int


class Job(NamedTuple):
    """The work of an attempt."""

    name: str
    needs: str
    message: bytes
    publication: str = ""
    options: Mapping[str, str] = NO_OPTIONS  # STORED, '' for what was not asked for

    @property
    def kind(self) -> str:
        """The kind of the task."""
        return Kind(self.name, self.needs, self.options["strategy"]).text


@dataclass(slots=True)
class Task:
    """The record of a task."""

    job: Job
    order: int
    life: int  # the number of its submission: with `number` the fence
    number: int = 0
    salt: str = ""
    state: TaskState = PENDING
    starts: int = 0
    scheduler: str | None = None
    partition: int | None = None
    seat: Seat | None = None
    why: str | None = None
    cancel: str | None = None
    next: tuple[Job, int | None, int | None] | None = None  # what its running attempt wants next; when; until when
    expires_ms: int | None = None  # when it expires
    kept_s: int | None = None  # for how long the record is kept; None for good
    history: list[str] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)

    @property
    def attempt(self) -> str:
        """The attempt as text; it is the fence."""
        return f"{self.number}@{self.life}{self.salt}"

    def at(self, attempt: str, seat: Seat) -> bool:
        """Return whether the task is at this attempt and seat."""
        return self.attempt == attempt and self.seat == seat

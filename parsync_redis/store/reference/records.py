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
MAX_OUTBOX: Final = 10_000
MAX_DEAD: Final = 10_000
EXPIRY_RECHECK_MS: Final = 60_000


class World(Protocol):
    """The surroundings of a script: a clock, and listeners on channels."""

    now_ms: int

    def publish(self, channel: str, text: str) -> int:
        """Send a text to a channel; return the number of listeners."""


class Job(NamedTuple):
    """The work of an attempt, and the wishes of its submitter.

    kind: name, needs, routing and strategy as text. publication: which publish of the id this is,
    if Celery published it, else ''. avoid_last: a further attempt prefers another node.
    """

    kind: str
    message: bytes
    priority: int = 0
    max_starts: int | None = None
    publication: str = ""
    avoid_last: bool = True

    def options(self, **further: int | str | None) -> str:
        """Return the options of a task's line: the options of the job and `further` ones."""
        words = {
            **further,
            "max": self.max_starts,
            "any": None if self.avoid_last else 1,
            "pub": self.publication or None,
        }
        texts = [f"{name}={value}" for name, value in words.items() if value is not None]
        return ",".join(texts) or "-"


class Successor(NamedTuple):
    """A job that follows under the same id, after the running attempt.

    due_ms: None for at once. expires_ms: None for never. order: None for the order of the task.
    """

    job: Job
    due_ms: int | None
    expires_ms: int | None
    order: int | None = None

    @property
    def text(self) -> str:
        """The rare field `next` of the task."""
        due = "-" if self.due_ms is None else self.due_ms
        options = self.job.options(expires=self.expires_ms, order=self.order)
        return f"{self.job.priority} {due} {options} {self.job.kind}"


@dataclass(slots=True)
class Task:
    """The record of a task.

    order: its place in the queue of its kind. life: the number of its submission. ready_ms: since
    when it can be taken. takes: how often it was taken, before its present wait. attempt: '' while
    it waits. place: its place; an ended task keeps its last place. started_ms: when its attempt
    started at that place. last: the node of its last run, if another node should be preferred.

    since_ms: the earlier ready_ms, while the task is due later because a run did not begin. ran_ms:
    its last start in this life, before it went back to the queue. redelivered: a run of its message
    had begun before its present wait. starts: accepted starts that were lost. why: the reason of
    its last setback, or of its death. cancel: how a cancel asked to end it. end_unseen: no worker
    saw its end, so its message is kept.
    """

    job: Job
    order: int
    life: int
    submitted_ms: int
    ready_ms: int = 0
    takes: int = 0
    state: StoredState = PENDING
    attempt: str = ""
    place: Place | None = None
    started_ms: int | None = None
    last: str | None = None
    since_ms: int | None = None
    ran_ms: int | None = None
    redelivered: bool = False
    starts: int = 0
    expires_ms: int | None = None
    ended_ms: int | None = None
    ended_why: str = ""
    why: str | None = None
    cancel: str | None = None
    next: Successor | None = None
    history: list[str] = field(default_factory=list)
    end_unseen: bool = False

    @property
    def has_run(self) -> bool:
        """True if the task has started in this life."""
        return self.started_ms is not None or self.ran_ms is not None

    def come_due(self) -> None:
        """Mark the task as ready; after a run that was put off, its first ready time counts."""
        self.ready_ms = self.ready_ms if self.since_ms is None else self.since_ms
        self.since_ms = None

    def note_last(self) -> None:
        """Record on which node the task ran last, unless it may go back to that node."""
        if self.place and self.job.avoid_last:
            self.last = self.place.node

    @property
    def line(self) -> str:
        """The task's line, without the mark for rare fields."""
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
        """The task's entry of `running` ('' without a place); the last entry of an ended task."""
        started = "" if self.started_ms is None else f" started={self.started_ms}"
        return f"{self.place.text}{started}" if self.place else ""

    @property
    def rare(self) -> dict[str, str]:
        """The task's rare fields, without messages."""
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

"""A task: its states, how it is submitted, and what a scheduler takes of it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from .kind import Kind
from .options import DEFAULT_OPTIONS, TaskOptions


class TaskState(StrEnum):
    """The state of a task; `gone` is that of an id of which nothing is known."""

    PENDING = "pending"
    TAKEN = "taken"
    PLACED = "placed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"
    GONE = "gone"

    @property
    def final(self) -> bool:
        """True if the task has ended: its state changes no more, unless an operator revives a dead
        task.
        """
        return self in FINAL


WAITING: Final = "waiting"
"""States that people call waiting: the task has no place yet."""

FINAL: Final = frozenset(
    (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD)
)

TRANSITIONS: Final[Mapping[tuple[TaskState, str], frozenset[TaskState]]] = {
    (TaskState.GONE, "submit"): frozenset((TaskState.PENDING,)),
    # Celery publishes the id again
    **{(state, "submit"): frozenset((TaskState.PENDING,)) for state in FINAL},
    (TaskState.PENDING, "take"): frozenset((TaskState.TAKEN, TaskState.CANCELLED)),
    (TaskState.TAKEN, "give_back"): frozenset((TaskState.PENDING,)),
    (TaskState.TAKEN, "confirm"): frozenset((TaskState.PLACED,)),
    (TaskState.TAKEN, "start"): frozenset((TaskState.RUNNING,)),
    (TaskState.PLACED, "start"): frozenset((TaskState.RUNNING,)),
    (TaskState.RUNNING, "finish"): frozenset(
        (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.PENDING)
    ),
    (TaskState.TAKEN, "requeue"): frozenset((TaskState.PENDING, TaskState.CANCELLED)),
    (TaskState.PLACED, "requeue"): frozenset((TaskState.PENDING, TaskState.CANCELLED)),
    (TaskState.RUNNING, "requeue"): frozenset(
        (TaskState.PENDING, TaskState.CANCELLED, TaskState.DEAD)
    ),
    (TaskState.DEAD, "revive"): frozenset((TaskState.PENDING,)),
    (TaskState.PENDING, "expire"): frozenset((TaskState.CANCELLED,)),
    (TaskState.TAKEN, "expire"): frozenset((TaskState.CANCELLED,)),
    (TaskState.PENDING, "cancel"): frozenset((TaskState.CANCELLED,)),
    (TaskState.TAKEN, "cancel"): frozenset((TaskState.CANCELLED,)),
    (TaskState.PLACED, "cancel"): frozenset((TaskState.CANCELLED,)),
}
"""(State, verb) -> the states that may follow.

Nothing else changes a state; a test holds the scripts to it.

A task whose record is damaged may fail in any state: take and repair_task say so.
"""


class Submission(NamedTuple):
    """One task as `submit` takes it; `message` is the Celery message as kombu would put it on a
    list.

    delay_ms, expiry_ms: for how long after the submit it must not be taken, and after how long it
    expires. after: '' or the running attempt that submits what the same id does next. publication:
    '' if the id is one task for ever, else the name of this publish of the id.
    """

    id: str
    name: str
    message: bytes
    options: TaskOptions = DEFAULT_OPTIONS
    delay_ms: int | None = None
    after: str = ""
    expiry_ms: int | None = None
    publication: str = ""

    @property
    def kind(self) -> Kind:
        """Return the kind of the task."""
        return Kind(self.name, self.options.needs.text, self.options.strategy)


class Taken(NamedTuple):
    """A task that a scheduler has taken; `attempt` is the fence ('2@17': the second attempt of
    submission 17).

    ready_ms: since when it could be taken (server time): submitted, due, or put back. last: the
    node that it ran on last, if it should rather go to another.
    """

    id: str
    attempt: str
    kind: Kind
    ready_ms: int
    last: str = ""

    @classmethod
    def of(cls, id: str, attempt: str, kind: Kind, since: str) -> "Taken":
        """Read what take says: READY_MS, and behind a space the last node."""
        ready_ms, _, last = since.partition(" ")
        return cls(id, attempt, kind, int(ready_ms), last)

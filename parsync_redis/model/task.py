"""Tasks: their states, their submission, and what a scheduler takes of them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from .kind import Kind
from .options import DEFAULT_OPTIONS, TaskOptions
from .preferences import with_key


class TaskState(StrEnum):
    """The state of a task for users.

    waiting: the task has no place yet. gone: nothing is known of the id.
    """

    WAITING = "waiting"
    PLACED = "placed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"
    GONE = "gone"

    @property
    def final(self) -> bool:
        """Return True if the task has ended.

        Only an operator who requeues a dead task changes such a state.
        """
        return self in FINAL


class StoredState(StrEnum):
    """The state of a task in the scripts.

    A task that waits is pending, or taken by a scheduler.
    """

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
        """Return True if the task has ended."""
        return self.value in FINAL


FINAL: Final = frozenset(
    (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD)
)

TRANSITIONS: Final[Mapping[tuple[StoredState, str], frozenset[StoredState]]] = {
    (StoredState.GONE, "submit"): frozenset((StoredState.PENDING,)),
    **{
        (state, "submit"): frozenset((StoredState.PENDING,)) for state in StoredState if state.final
    },  # Celery publishes the id again
    (StoredState.PENDING, "take"): frozenset((StoredState.TAKEN, StoredState.CANCELLED)),
    (StoredState.TAKEN, "give_back"): frozenset((StoredState.PENDING,)),
    (StoredState.TAKEN, "confirm"): frozenset((StoredState.PLACED,)),
    (StoredState.TAKEN, "start"): frozenset((StoredState.RUNNING,)),
    (StoredState.PLACED, "start"): frozenset((StoredState.RUNNING,)),
    (StoredState.RUNNING, "finish"): frozenset(
        (StoredState.SUCCEEDED, StoredState.FAILED, StoredState.CANCELLED, StoredState.PENDING)
    ),
    (StoredState.TAKEN, "requeue"): frozenset((StoredState.PENDING, StoredState.CANCELLED)),
    (StoredState.PLACED, "requeue"): frozenset((StoredState.PENDING, StoredState.CANCELLED)),
    (StoredState.RUNNING, "requeue"): frozenset(
        (StoredState.PENDING, StoredState.CANCELLED, StoredState.DEAD)
    ),
    (StoredState.DEAD, "revive"): frozenset((StoredState.PENDING,)),
    (StoredState.PENDING, "expire"): frozenset((StoredState.CANCELLED,)),
    (StoredState.TAKEN, "expire"): frozenset((StoredState.CANCELLED,)),
    (StoredState.PENDING, "cancel"): frozenset((StoredState.CANCELLED,)),
    (StoredState.TAKEN, "cancel"): frozenset((StoredState.CANCELLED,)),
    (StoredState.PLACED, "cancel"): frozenset((StoredState.CANCELLED,)),
}
"""(State, verb) -> the states that may follow.

Nothing else changes a state; a test holds the scripts to it.

A task whose record is damaged may fail in any state: take and repair_task say so.
"""


def state_word(word: str) -> str:
    """Return `waiting` for each stored state of a waiting task; other words stay unchanged."""
    return TaskState.WAITING if word in (StoredState.PENDING, StoredState.TAKEN) else word


class Submission(NamedTuple):
    """A task as `submit` takes it.

    message: the Celery message as kombu would put it on a list.
    delay_ms: how long after the submit the task must not be taken.
    expiry_ms: how long after the submit the task expires.
    after: '' or the running attempt that submits the successor under the same id.
    publication: '' if an id is one task for ever, else the name of this publish of the id.
    start_ms: how long after the submit the task should start, at most a day before the submit or a
        year after it; None for the usual patience.
    declares_limits: whether the app that submits the task declares all of its limits; the task then
        waits while the shards do not know them.
    """

    id: str
    name: str
    message: bytes
    options: TaskOptions = DEFAULT_OPTIONS
    delay_ms: int | None = None
    after: str = ""
    expiry_ms: int | None = None
    publication: str = ""
    start_ms: int | None = None
    declares_limits: bool = False

    @property
    def kind(self) -> Kind:
        """Return the kind of the task."""
        options = self.options
        return Kind(
            self.name,
            options.needs.text,
            options.strategy,
            options.tenant,
            options.limits,
            with_key(options.prefer, self.name),
        )


class Taken(NamedTuple):
    """A task that a scheduler has taken.

    attempt: the fence, '2@17' is the second attempt of submission 17.
    ready_ms: since when the task could be taken (server time): submitted, due, or put back.
    last: the node of the last run, if the task should rather go to another node.
    """

    id: str
    attempt: str
    kind: Kind
    ready_ms: int
    last: str = ""

    @classmethod
    def of(cls, id: str, attempt: str, kind: Kind, since: str) -> "Taken":
        """Read a task of a reply of `take`: READY_MS, then the last node if there is one."""
        ready_ms, _, last = since.partition(" ")
        return cls(id, attempt, kind, int(ready_ms), last)

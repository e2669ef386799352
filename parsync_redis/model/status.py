"""The status of a task, for people and programs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .ids import decode_id
from .kind import kind_text
from .needs import parse_resources
from .options import DEFAULT_OPTIONS, STORED, TaskOptions
from .task import WAITING, TaskState

_STATES: Final = frozenset(TaskState)
_STEPS: Final = ("submitted", "ready", "taken", "placed", "started", "finished")

FIELDS: Final = (
    "state",
    "name",
    "attempt",
    "starts",
    "partition",
    "node",
    "slot",
    "scheduler",
    "needs",
    "why",
    "cancel",
    "expires_ms",
    "history",
    *STORED,
    *(f"{step}_ms" for step in _STEPS),
)
"""The fields of a task's record that a status is read from: all but its messages."""
_SETBACK: Final = re.compile(
    r"^(\S+) (taken|placed|running) (\S+)/(\d+) inc=(\d+) since=(\d+) until=(\d+) (.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Setback:
    """A lost attempt: how far it had come (taken, placed, running), where, from when until when, and why it was lost.

    Times are the server's, in milliseconds since 1970.
    """

    attempt: str
    state: TaskState
    node: str
    slot: int
    inc: int
    since_ms: int
    until_ms: int
    why: str

    @classmethod
    def read(cls, history: str) -> Iterator["Setback"]:
        """Read the lines that requeue.lua writes, '2@17 running n1/3 inc=3 since=... until=... why'; skip others."""
        for match in _SETBACK.finditer(history):
            attempt, state, node, slot, inc, since, until, why = match.groups()
            yield cls(attempt, TaskState(state), node, int(slot), int(inc), int(since), int(until), why)


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task. Times are the server's, in milliseconds since 1970, None for steps not reached.

    history: its last ten attempts that were lost, the oldest first.
    """

    id: str
    state: TaskState
    name: str = ""
    attempt: int = 0
    starts: int = 0
    partition: int | None = None
    node: str | None = None
    slot: int | None = None
    scheduler: str | None = None
    needs: str = ""
    priority: int = 0
    strategy: str = ""
    why: str = ""
    cancel_asked: bool = False
    times: Mapping[str, int | None] = field(default_factory=dict)
    expires_ms: int | None = None
    history: tuple[Setback, ...] = ()
    max_starts: int | None = None

    @property
    def phase(self) -> str:
        """Return the state as people say it: waiting (pending or taken), else its name."""
        return WAITING if self.state in (TaskState.PENDING, TaskState.TAKEN) else self.state.value

    @property
    def kind(self) -> str:
        """Return the kind of the task as text."""
        return kind_text(self.name, self.needs, self.strategy)

    @classmethod
    def of(cls, id: str, record: Mapping[str, str]) -> "TaskStatus":
        """Read the record of a task by its encoded id; the task of an empty record is gone.

        So is one whose state cannot be read; `why` says that. Any other field that cannot be read is None or 0.
        """
        id, state = decode_id(id), record.get("state")
        if not state:
            return cls(id, TaskState.GONE, times={})
        if state not in _STATES:
            return cls(id, TaskState.GONE, record.get("name", ""), why=f"its record is damaged: state={state!r:.80}")

        def number(name: str) -> int | None:
            try:
                return int(float(record.get(name, "").partition("@")[0]))
            except (ValueError, OverflowError):
                return None

        return cls(
            id,
            TaskState(state),
            record.get("name", ""),
            number("attempt") or 0,
            number("starts") or 0,
            number("partition"),
            record.get("node"),
            number("slot"),
            record.get("scheduler"),
            record.get("needs", ""),
            number("priority") or 0,
            record.get("strategy", ""),
            record.get("why", ""),
            "cancel" in record,
            {step: number(f"{step}_ms") for step in _STEPS},
            number("expires_ms"),
            tuple(Setback.read(record.get("history", ""))),
            number("max_starts"),
        )


def kept_options(status: TaskStatus) -> TaskOptions:
    """Return the options that the task's record keeps; the default ones of a task that is gone."""
    return TaskOptions.stored(parse_resources(status.needs), status) if status.needs else DEFAULT_OPTIONS

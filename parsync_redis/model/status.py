"""The status of a task, for people and programs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .ids import decode_id
from .kind import kind_text, read_why, split_kind
from .needs import parse_needs
from .options import DEFAULT_OPTIONS, TaskOptions
from .record import Record, TaskLine
from .task import StoredState, TaskState, state_word

_STORED_STATES: Final = frozenset(StoredState)
_STEPS: Final = ("submitted", "ready", "placed", "started", "finished")

_SETBACK: Final = re.compile(
    r"^(\S+) (taken|placed|running) (\S+)/(\d+) inc=(\d+) since=(\d+) until=(\d+) "
    r"(.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Setback:
    """A lost attempt: its state (waiting, placed, running), place, begin, end and reason.

    Times are the server's, in ms since 1970.
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
        """Read the lines that requeue.lua writes; skip other lines.

        A line: '2@17 running n1/3 inc=3 since=... until=... why'.
        """
        for match in _SETBACK.finditer(history):
            attempt, state, node, slot, inc, since, until, why = match.groups()
            yield cls(
                attempt,
                TaskState(state_word(state)),
                node,
                int(slot),
                int(inc),
                int(since),
                int(until),
                why,
            )


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task; times are the server's, in ms since 1970, None for steps not reached.

    history: the last ten lost attempts, the oldest first.
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
    avoid_last: bool = True
    tenant: str = ""
    limits: str = ""
    prefer: str = ""

    @property
    def kind(self) -> str:
        """Return the stored text of the task's kind."""
        return kind_text(
            self.name, self.needs, self.strategy, self.tenant, self.limits, self.prefer
        )

    @classmethod
    def of(cls, record: Record) -> "TaskStatus":
        """Return the status that a record gives.

        If the task's line cannot be read, `why` says so, and the fields of the line are missing.
        """
        id = decode_id(record.id)
        line = record.line
        place = record.place
        if record.state not in _STORED_STATES or record.state == StoredState.GONE:
            why = (
                f"its record is damaged: state={record.state!r:.80}"
                if record.state != StoredState.GONE
                else ""
            )
            return cls(id, TaskState.GONE, why=why, times={})
        state = TaskState(state_word(record.state))
        if line is None:
            damaged = f"its record is damaged: {record.text!r:.80}"
            return cls(id, state, why=record.why or damaged, times=dict.fromkeys(_STEPS))
        kind = split_kind(line.kind)
        started_ms = record.started_ms or line.number("ran")
        # a dead task's line counts the last start
        runs = record.started_ms is not None and state is not TaskState.DEAD
        number = record.attempt.partition("@")[0]
        return cls(
            id,
            state,
            kind.name,
            int(number) if number.isdecimal() else line.takes,
            (line.number("starts") or 0) + runs,
            place.partition if place else None,
            place.node if place else None,
            place.slot if place else None,
            record.scheduler,
            kind.needs,
            line.priority,
            kind.strategy,
            _why(record, line),
            "cancel" in record.extra,
            {
                "submitted": line.submitted_ms,
                "ready": line.ready_ms,
                "placed": place.since_ms if place else None,
                "started": started_ms,
                "finished": record.ended_ms,
            },
            line.number("expires"),
            tuple(Setback.read(record.extra.get("history", ""))),
            line.number("max"),
            "any" not in line.options,
            kind.tenant,
            kind.limits,
            kind.prefer,
        )


def _why(record: Record, line: TaskLine) -> str:
    """Return why a task waits, or why it ended.

    A pending task that is due has the reason of its kind, or else of its last setback. A pending
    task that is not due has the reason of its last setback, because a worker may have put it off.
    """
    if record.state != StoredState.PENDING:
        return record.why
    is_due = line.ready_ms <= record.now_ms
    return (is_due and read_why(record.kind_line)) or record.extra.get("why", "")


def kept_options(status: TaskStatus) -> TaskOptions:
    """Return the options that the task's record keeps, the default options for a gone task."""
    return (
        TaskOptions.stored(parse_needs(status.needs), status) if status.needs else DEFAULT_OPTIONS
    )

"""A task: its states, what may be asked for it, and what is known of it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ..errors import InvalidInput
from .ids import decode_id, shown
from .needs import Resources, queue_label


class TaskState(StrEnum):
    """Where a task is on its way; `gone` is for an id of which nothing is known."""

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
        """Whether the task has ended: the state changes no more, unless an operator revives what is dead."""
        return self in FINAL


WAITING: Final = "waiting"
"""What people call a task that is pending or taken: it has no place yet."""

FINAL: Final = frozenset((TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD))

TRANSITIONS: Final[Mapping[tuple[TaskState, str], frozenset[TaskState]]] = {
    (TaskState.GONE, "submit"): frozenset((TaskState.PENDING,)),
    **{(state, "submit"): frozenset((TaskState.PENDING,)) for state in FINAL},  # Celery publishes the id again
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
    (TaskState.RUNNING, "requeue"): frozenset((TaskState.PENDING, TaskState.CANCELLED, TaskState.DEAD)),
    (TaskState.DEAD, "revive"): frozenset((TaskState.PENDING,)),
    (TaskState.PENDING, "expire"): frozenset((TaskState.CANCELLED,)),
    (TaskState.TAKEN, "expire"): frozenset((TaskState.CANCELLED,)),
    (TaskState.PENDING, "cancel"): frozenset((TaskState.CANCELLED,)),
    (TaskState.TAKEN, "cancel"): frozenset((TaskState.CANCELLED,)),
    (TaskState.PLACED, "cancel"): frozenset((TaskState.CANCELLED,)),
}
"""Which verb takes a task from which state to which; nothing else changes a state. A test holds the scripts to it.

A task whose record is damaged may fail in any state: take and repair_task say so.
"""


class Strategy(StrEnum):
    """How a scheduler weighs freshness against score; see placement/strategy.py."""

    LATENCY = "latency"
    QUALITY = "quality"
    ADAPTIVE = "adaptive"


ONE_SLOT: Final = Resources.of()

MAX_SECONDS: Final = 3e11
"""Seconds beyond which no countdown or expiry reaches: some 9,500 years, where Celery's datetimes end."""

CELERY_OPTIONS: Final = (
    "expires",
    "time_limit",
    "soft_time_limit",
    "ignore_result",
    "shadow",
    "serializer",
    "headers",
    "link",
    "link_error",
    "reply_to",
    "root_id",
    "parent_id",
)
"""The options of Celery that a message made here can carry. Not countdown: the task queue holds what is not due."""

_KNOWN: Final = ("slots", "resources", "require", "priority", "strategy", "wait_for_capacity", "max_starts", "expires")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What may be asked for a task: `parsync={...}` in Celery, keyword arguments of the client, flags of the CLI.

    slots: slots of one node that the task holds (1 to 10,000).
    resources: amounts of the node's declared resources that it holds, {"mem": "4GiB", "gpu": 1}.
    require: labels that the node must have, {"gpu_model": "a100"}.
    priority: 0 to 9; larger goes first; default 0.
    strategy: "latency", "quality" or "adaptive" for this task, instead of the schedulers' own.
    wait_for_capacity: wait for a node that could hold it, instead of being refused when none is known.
    max_starts: lost starts after which the task is dead (1 to 1,000); 1 starts it at most once; default the cluster's.
    expires: seconds after which it is not placed any more, but cancelled; only for a Celery task's own options:
    everybody else says `expires` as Celery does.
    """

    needs: Resources = ONE_SLOT
    priority: int = 0
    strategy: str = ""
    wait_for_capacity: bool = False
    expires_s: float | None = None
    max_starts: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, queue: str = "") -> "TaskOptions":
        """Checks a mapping of options; raises InvalidInput naming what is known.

        queue: the Celery queue that the task was routed to; only nodes that consume it are candidates.
        """
        if not options and not queue:
            return DEFAULT_OPTIONS
        options = options or {}
        if not isinstance(options, Mapping):
            raise InvalidInput(f"parsync options must be a mapping, not {type(options).__name__}")
        for name in options:
            if name not in _KNOWN:
                raise InvalidInput(f"unknown parsync option {shown(name)}: known are {', '.join(_KNOWN)}")
        for name in ("resources", "require"):
            if not isinstance(options.get(name, {}), Mapping):
                raise InvalidInput(f"parsync option {name} must be a mapping, not {shown(options[name])}")
        priority = options.get("priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= 9:
            raise InvalidInput(
                f"priority={shown(priority)} is not valid: it must be a whole number from 0 to 9, larger first"
            )
        strategy = options.get("strategy", "")
        if strategy not in ("", None, *Strategy):
            raise InvalidInput(f"strategy={shown(strategy)} is not known: known are {', '.join(Strategy)}")
        wait = options.get("wait_for_capacity", False)
        if not isinstance(wait, bool):
            raise InvalidInput(f"wait_for_capacity={shown(wait)} is not valid: it must be True or False")
        expires = options.get("expires")
        if expires is not None and not is_seconds(expires):
            raise InvalidInput(f"expires={shown(expires)} is not valid: it must be a number of seconds above 0")
        max_starts = options.get("max_starts")
        if max_starts is not None and (type(max_starts) is not int or not 1 <= max_starts <= 1000):
            raise InvalidInput(f"max_starts={shown(max_starts)} is not valid: it must be a whole number from 1 to 1000")
        reserved = [queue_label(queue)] if queue else []
        needs = Resources.of(options.get("slots", 1), options.get("resources"), options.get("require"), reserved)
        return cls(needs, int(priority), str(strategy or ""), wait, expires, max_starts)


def is_seconds(value: object) -> bool:
    """True if a value is a number of seconds above 0 and below MAX_SECONDS."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MAX_SECONDS


DEFAULT_OPTIONS: Final = TaskOptions()
_STATES: Final = frozenset(TaskState)


@dataclass(frozen=True, slots=True)
class Submission:
    """One task as `submit` takes it; `message` is the Celery message as kombu would put it on a list.

    From the submit on: delay_ms, how long it must not be taken; expiry_ms, after how long it is not taken any more.
    publication: '' if the id is a task once, for ever; else what tells one publish of the id from the next.
    """

    id: str
    name: str
    message: bytes
    options: TaskOptions = DEFAULT_OPTIONS
    delay_ms: int | None = None
    after: str = ""
    expiry_ms: int | None = None
    publication: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """A task as a scheduler has it: `attempt` is the fence ('2@17': the second attempt of submission 17).

    `ready_ms` is since when it could be taken (server time): submitted, due, or put back.
    """

    id: str
    attempt: str
    needs: str
    strategy: str
    ready_ms: int
    name: str = ""


_SETBACK: Final = re.compile(
    r"^(\S+) (taken|placed|running) (\S+)/(\d+) inc=(\d+) since=(\d+) until=(\d+) (.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Setback:
    """An attempt that was lost: how far it had come (taken, placed, running), where, from when until when, and why.

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
        """Reads the lines that requeue.lua writes, '2@17 running n1/3 inc=3 since=... until=... why'; skips others."""
        for match in _SETBACK.finditer(history):
            attempt, state, node, slot, inc, since, until, why = match.groups()
            yield cls(attempt, TaskState(state), node, int(slot), int(inc), int(since), int(until), why)


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """What is known of a task. Times are the server's, in milliseconds since 1970, None for steps not reached.

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
        """The state as people say it: waiting (pending or taken), else its name."""
        return WAITING if self.state in (TaskState.PENDING, TaskState.TAKEN) else self.state.value

    @classmethod
    def of(cls, id: str, record: Mapping[str, str]) -> "TaskStatus":
        """Reads the record of a task by its encoded id; an empty one is a task that is gone.

        So is one whose state cannot be read, and it says why; other fields that cannot be read are None or 0.
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
            {step: number(f"{step}_ms") for step in ("submitted", "ready", "taken", "placed", "started", "finished")},
            number("expires_ms"),
            tuple(Setback.read(record.get("history", ""))),
            number("max_starts"),
        )

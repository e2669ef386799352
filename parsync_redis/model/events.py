"""Events: unusual things that happened in the cluster, as scripts record them in capped streams.

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..errors import InvalidInput
from .ids import check_name, decode_id, encode_id, readable, shown
from .status import TaskStatus
from .task import FINAL, TaskState

OF_TASKS: Final[Mapping[str, str]] = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "expired": "expired before it started",
    "requeued": "lost its attempt",
    "retried": "is to run again",
    "dead": "died",
    "revived": "waits again",
}
OF_NODES: Final[Mapping[str, str]] = {
    "registered": "registered",
    "leaving": "shuts down",
    "down": "is down",
    "drained": "is drained",
    "drain_over": "has reached the end of its drain: its runs are ended",
    "undrained": "takes tasks again",
    "noticed": "leaves",
    "notice_over": "is about to leave: its runs are ended",
    "stays": "stays after all",
    "suspect": "is suspect and gets no tasks",
    "trusted": "is trusted again",
    "shrank": "gives less than it offers",
    "grew": "gives all that it offers again",
    "forgotten": "was forgotten",
    "booked": "is reserved",
}
OF_SCHEDULERS: Final[Mapping[str, str]] = {
    "joined": "joined",
    "left": "left",
    "lost": "was lost: it did not renew its lease",
    "leads": "leads now",
}
OF_CLUSTER: Final[Mapping[str, str]] = {
    "writes_lost": "the server lost writes",
    "damage": "damage was found",
    "policy": "the policy was changed",
}
EVENT_IN_WORDS: Final[Mapping[str, str]] = {**OF_TASKS, **OF_NODES, **OF_SCHEDULERS, **OF_CLUSTER}
"""The sentence of each event by its word; lua/lib/cluster/events.lua writes the words."""

STEP_IN_WORDS: Final[Mapping[str, str]] = {
    "submitted": "was submitted",
    "placed": "was placed",
    "started": "started",
    "succeeded": "succeeded",
}
"""The steps of a task that goes well.

These steps are no events: the task's record has their times.
"""

EVENT_FIELDS: Final = ("task", "name", "node", "attempt", "scheduler", "why", "by")
MAX_EVENT_BYTES: Final = 4096
MAX_MS_AHEAD: Final = 3_600_000
"""The limit of an entry's time ahead of the clock; a later entry is damaged."""

SAME_MS: Final = 1000
"""The longest difference between a task's end in its record and the event of that end."""


@dataclass(frozen=True, slots=True)
class Event:
    """A thing that happened.

    at_ms: server time.
    event: a word of EVENT_IN_WORDS. task, name, node, ...: what the event is about; '' if unknown.
    id: stream and entry, 'q0/1795631551378-0'; '' for a step of a task, which comes from the task's
        record.
    by: who caused or saw the event.
    """

    id: str
    at_ms: int
    event: str
    task: str = ""
    name: str = ""
    node: str = ""
    attempt: str = ""
    scheduler: str = ""
    why: str = ""
    by: str = ""

    @classmethod
    def read(
        cls, stream: str, entry: bytes, fields: Mapping[bytes, bytes], now_ms: int
    ) -> "Event | None":
        """Read an entry of a stream; None for one that no script writes."""
        ms, _, number = readable(entry).partition("-")
        words = {readable(name): readable(value) for name, value in fields.items()}
        event = words.pop("event", "")
        if not (
            ms.isdecimal()
            and number.isdecimal()
            and int(ms) <= now_ms + MAX_MS_AHEAD
            and event in EVENT_IN_WORDS
        ):
            return None
        if not words.keys() <= {*EVENT_FIELDS} or any(
            len(value) > MAX_EVENT_BYTES for value in fields.values()
        ):
            return None
        if "task" in words:
            words["task"] = decode_id(words["task"])
        return cls(f"{stream}/{ms}-{number}", int(ms), event, **words)

    @property
    def stream(self) -> str:
        """Return the stream: 'q0' (a shard), 'p3' (a partition), or 'c' (the cluster)."""
        return self.id.partition("/")[0]

    @property
    def entry(self) -> str:
        """Return the id within the stream."""
        return self.id.partition("/")[2]

    @property
    def order(self) -> tuple[int, str, int]:
        """Return the key to sort events by: time, then order within the stream."""
        return self.at_ms, self.stream, int(self.entry.partition("-")[2] or 0)

    @property
    def text(self) -> str:
        """Return the event as a sentence for people."""
        words = {**EVENT_IN_WORDS, **STEP_IN_WORDS}[self.event]
        if self.event in OF_NODES:
            sentence = f"node {self.node} {words}" + (f" for task {self.task}" if self.task else "")
        elif self.event in OF_SCHEDULERS:
            sentence = f"scheduler {self.scheduler} {words}"
        elif self.event in OF_CLUSTER:
            sentence = words
        else:
            name = f" ({self.name})" if self.name else ""
            on = f" on {self.node}" if self.node else ""
            sentence = f"task {self.task}{name}{on} {words}"
        return (
            sentence
            + (f": {self.why}" if self.why else "")
            + (f" ({'seen ' * (self.event != 'policy')}by {self.by})" if self.by else "")
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of events.

    since_ms, until_ms: server time.
    task, node: '' selects all.
    events: words of EVENT_IN_WORDS; () selects all.
    """

    since_ms: int = 0
    until_ms: int | None = None
    task: str = ""
    node: str = ""
    events: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        since_ms: int | None,
        until_ms: int | None,
        task: str | None,
        node: str | None,
        events: Iterable[str],
    ) -> "Wanted":
        """Return the checked selection; raises InvalidInput."""
        words = tuple(dict.fromkeys(events))
        if unknown := [word for word in words if word not in EVENT_IN_WORDS]:
            raise InvalidInput(
                f"no event {shown(unknown[0])}: known are {', '.join(EVENT_IN_WORDS)}"
            )
        if since_ms is not None and until_ms is not None and until_ms < since_ms:
            raise InvalidInput("the end of the time that is asked for is before its beginning")
        if task is not None:
            encode_id(task)
        if node is not None:
            check_name("node name", node)
        return cls(since_ms or 0, until_ms, task or "", node or "", words)

    def has(self, event: Event) -> bool:
        """Return True if the selection has this event."""
        return (
            self.since_ms <= event.at_ms
            and (self.until_ms is None or event.at_ms <= self.until_ms)
            and self.task in ("", event.task)
            and self.node in ("", event.node)
            and (not self.events or event.event in self.events)
        )


def time_line(task: TaskStatus, events: Sequence[Event]) -> list[Event]:
    """Return a task's events and the steps from its record, in order of time."""
    blank = Event("", 0, "", task.id, task.name)
    steps = [
        replace(
            blank, at_ms=at_ms, event=step, node=(task.node or "") if step != "submitted" else ""
        )
        for step in ("submitted", "placed", "started")
        if (at_ms := task.times.get(step)) is not None
    ]
    for lost in task.history:
        if lost.state in (TaskState.PLACED, TaskState.RUNNING):
            step = "started" if lost.state is TaskState.RUNNING else "placed"
            steps.append(
                replace(
                    blank, at_ms=lost.since_ms, event=step, node=lost.node, attempt=lost.attempt
                )
            )
        reached = replace(
            blank, at_ms=lost.until_ms, event="requeued", node=lost.node, attempt=lost.attempt
        )
        steps.append(replace(reached, why=lost.why))
    if (ended_ms := task.times.get("finished")) is not None and task.state in FINAL:
        steps.append(
            replace(
                blank, at_ms=ended_ms, event=task.state.value, node=task.node or "", why=task.why
            )
        )
    attempts = {event.attempt for event in events if event.event in ("requeued", "dead")}
    ends = [event.at_ms for event in events if event.event in (task.state.value, "expired")]

    def is_event(step: Event) -> bool:
        if step.event == "requeued":
            return step.attempt in attempts
        is_end = step.event == task.state.value
        return is_end and any(abs(end_ms - step.at_ms) < SAME_MS for end_ms in ends)

    fresh = {(step.event, step.at_ms): step for step in steps if not is_event(step)}
    return sorted([*events, *fresh.values()], key=lambda event: (event.at_ms, bool(event.id)))

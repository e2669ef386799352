"""The record of a task, read from its texts: line, run and end.

lua/lib/task/line.lua and lua/lib/task/record.lua read the same.

line  [+]TAKES@LIFE ORDER READY_MS SUBMITTED_MS OPTIONS KIND
run   PLACE[ started=MS]
end   STATE MS[ WHY]
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from .ids import readable
from .order import priority_of
from .place import Place
from .task import Submission

_TASK_LINE: Final = re.compile(
    r"(?P<mark>\+?)(?P<takes>\d{1,9})@(?P<life>\d{1,15}) (?P<order>\d{1,16}) (?P<ready>\d{1,15}) "
    r"(?P<submitted>\d{1,15}) (?P<options>\S+) (?P<kind>\S+ slots=\d.*)",
    re.ASCII,
)
MAX_LINE: Final = 20_000
"""The maximum number of characters of a line; a kind has at most 12,000 bytes."""
_RUN_TEXT: Final = re.compile(r"(.*? since=\d{1,15})(?: started=(\d{1,15}))?", re.ASCII)
_END_TEXT: Final = re.compile(r"[a-z]+ (\d{1,15})(?: (.*))?", re.ASCII | re.DOTALL)
_ATTEMPT_OWNER: Final = re.compile(r"\d{1,9}@\d{1,15}\.(.+)\.\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class TaskLine:
    """The line of a task in `tasks`; times are the server's, in ms.

    takes: how often the task was taken before it last began to wait.
    marked: whether the task has rare fields.
    """

    takes: int
    life: int
    order: int
    ready_ms: int
    submitted_ms: int
    options: Mapping[str, str]
    kind: str
    marked: bool = False

    @classmethod
    def of(cls, line: str) -> "TaskLine":
        """Read a line; raises ValueError for any other text."""
        match = _TASK_LINE.fullmatch(line) if len(line) <= MAX_LINE else None
        if match is None:
            raise ValueError(f"not the line of a task: {line!r:.80}")
        words = (word.partition("=") for word in match["options"].split(",") if word != "-")
        names = ("takes", "life", "order", "ready", "submitted")
        takes, life, order, ready_ms, submitted_ms = (int(match[name]) for name in names)
        options = {name: value for name, _, value in words}
        return cls(
            takes, life, order, ready_ms, submitted_ms, options, match["kind"], bool(match["mark"])
        )

    @property
    def priority(self) -> int:
        """Return the priority, 0 to 9."""
        return priority_of(self.order)

    def number(self, option: str) -> int | None:
        """Return a stored option as a number; None if the line lacks the option."""
        value = self.options.get(option, "")
        return int(value) if value.isdecimal() and value.isascii() and len(value) < 16 else None


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a task at one moment.

    state: `gone` without a record.
    now_ms: the server's time of the read.
    text: the line as stored.
    line: the parsed line; None if missing or damaged.
    place, started_ms: of its run, or of the last run if the task has ended.
    ended_ms, why: of its end.
    kind_line: the line of its kind if the task is pending.
    extra: its rare fields.
    """

    id: str
    state: str
    now_ms: int = 0
    text: str = ""
    line: TaskLine | None = None
    attempt: str = ""
    place: Place | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    why: str = ""
    kind_line: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, id: str, now_ms: int, row: Sequence[Any]) -> Self:
        """Read the seven values that the script read_tasks returns for a task."""
        state, line, attempt, run, end, kind_line = (readable(_raw(word)) for word in row[:6])
        try:
            task_line = TaskLine.of(line)
        except ValueError:
            task_line = None
        place, started_ms = read_run(run)
        ended = _END_TEXT.fullmatch(end)
        words = [readable(_raw(word)) for word in row[6]]
        extra = dict(zip(words[::2], words[1::2], strict=True))
        return cls(
            id,
            state,
            now_ms,
            line,
            task_line,
            attempt or (place.attempt if place else ""),
            place,
            started_ms,
            int(ended[1]) if ended else None,
            (ended[2] or "") if ended else end,
            kind_line,
            extra,
        )

    @property
    def scheduler(self) -> str | None:
        """Return the scheduler that took the task last, None if unknown."""
        return owner_of(self.attempt) or None


def read_run(text: str) -> tuple[Place | None, int | None]:
    """Return the place and the start (ms) of an entry of `running`, None if not readable."""
    match = _RUN_TEXT.fullmatch(text)
    if match is None:
        return None, None
    try:
        return Place.of(match[1]), int(match[2]) if match[2] else None
    except ValueError:
        return None, None


def place_text(run: str) -> str:
    """Return the text of the place in an entry of `running`."""
    return run.partition(" started=")[0]


def owner_of(attempt: str) -> str:
    """Return the scheduler that an attempt names, '' if it names none."""
    match = _ATTEMPT_OWNER.fullmatch(attempt)
    return match[1] if match else ""


def options_text(task: Submission) -> str:
    """Return a task's options for its row of `submit`: words NAME=VALUE."""
    options = task.options
    waits_for_limits = "limits" if task.declares_limits and options.limits else None
    if (
        task.delay_ms is None
        and task.expiry_ms is None
        and task.start_ms is None
        and not (task.after or task.publication or options.wait_for_capacity or options.max_starts)
        and not waits_for_limits
        and options.avoid_last
    ):
        return ""
    words = (
        ("delay", task.delay_ms),
        ("expiry", task.expiry_ms),
        ("start", task.start_ms),
        ("max", options.max_starts),
        ("any", None if options.avoid_last else 1),
        ("wait", 1 if options.wait_for_capacity else waits_for_limits),
        ("after", task.after or None),
        ("pub", task.publication or None),
    )
    return " ".join(f"{name}={value}" for name, value in words if value is not None)


def _raw(word: Any) -> bytes:  # Any: a reply's value
    return word if isinstance(word, bytes) else str(word).encode()

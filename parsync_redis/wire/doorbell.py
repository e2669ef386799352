"""A doorbell: the entry of a node's inbox that tells its worker to look at a lease. lua/lib/doorbell.lua writes it.

task attempt slots incarnation since        of which slots is "3" or "3,4": the first is the lead
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from ..model.limits import MAX_MESSAGE

_DOORBELL: Final = re.compile(
    rb"([A-Za-z0-9%][A-Za-z0-9%_.:@+-]{0,3059}) (\d{1,9}@[\w.]{1,40}) (\d{1,4}(?:,\d{1,4})*) (\d{1,15}) (\d{1,15})"
)


@dataclass(frozen=True, slots=True)
class Doorbell:
    """The lease that a node's worker is to look at; `since_ms` is when it was committed, by the server's clock."""

    task: str
    attempt: str
    slots: tuple[int, ...]
    inc: int
    since_ms: int

    @classmethod
    def of(cls, data: bytes) -> "Doorbell":
        """Read one; raises ValueError that says what it is instead."""
        if (found := _DOORBELL.fullmatch(data)) is None:
            raise ValueError(_what_else(data))
        task, attempt, slots, inc, since = found.groups()
        return cls(task.decode(), attempt.decode(), tuple(map(int, slots.split(b","))), int(inc), int(since))


def _what_else(data: bytes) -> str:
    """Say for people what is not a doorbell; raises nothing."""
    try:
        payload: Any = json.loads(data) if len(data) <= MAX_MESSAGE else None
    except (ValueError, RecursionError):
        return f"not a doorbell: {data[:60]!r}"
    if isinstance(payload, dict) and isinstance(payload.get("headers"), dict):
        return f"not a doorbell: a message of task {payload['headers'].get('task')!r:.80}, which nobody may send here"
    return f"not a doorbell: {type(payload).__name__} {payload!r:.60}"

"""Rate limits of placed tasks: a task that its node may not start yet holds no slot there.

Celery keeps such a task in the worker until its token bucket has a token. A placed task would hold its slot meanwhile.
So the task goes back to the cluster's queue, and this node books a token for it: the task comes back when it is due.
Celery's own bucket is not waited for: it loses what its timers are late by, a third of the tokens at 100 a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

LONGEST_S: Final = 30.0
"""A task waits no longer before it is placed again: another node may have a token, or this one may be gone."""
MOMENT_S: Final = 0.1
"""A task may come so long after its token was due, and run at once. A worker that stood still runs no more at once."""
SHORT_S: Final = 0.005
"""A token that is due so soon is as good as there: to go back and to be placed again takes longer."""
LATE_S: Final = 2.0
"""How long a booked token is kept for a task that does not come: it may be cancelled, or run on another node."""
_SPREAD: Final = 0.618
"""Multiples of the golden ratio, modulo 1, spread evenly, however many they are."""


@dataclass(slots=True)
class _Line:
    """The tasks of one name that this node has sent back, and the token that each of them has booked.

    booked: the time of each task's token, the earliest first. There are no more of them than tokens in LONGEST_S and
    LATE_S. next_s: when the first token comes that nobody has booked.
    """

    bucket: Any
    booked: dict[str, float] = field(default_factory=dict)
    next_s: float = 0.0
    turned_away: count[int] = field(default_factory=count)

    def hold_s(self, id: str, now_s: float) -> float:
        """Seconds until this task may come again; 0 if it may run now: it has taken a token."""
        self._forget_late(now_s)
        bucket, own_s = self.bucket, self.booked.get(id)
        if own_s is not None and own_s > now_s + SHORT_S:
            return own_s - now_s
        self.booked.pop(id, None)
        if (own_s is not None and own_s >= now_s - MOMENT_S) or self._take_over(now_s):
            bucket.can_consume(1)  # ordinary tasks of that name take their tokens from it
            return 0.0
        self.next_s = max(self.next_s, now_s + float(bucket.expected_time(1)))
        if self.next_s <= now_s + SHORT_S:
            bucket.can_consume(1)
            self.next_s += 1 / bucket.fill_rate
            return 0.0
        if self.next_s > now_s + LONGEST_S:
            return LONGEST_S * (2 + next(self.turned_away) * _SPREAD % 1) / 3
        self.booked[id] = self.next_s
        self.next_s += 1 / bucket.fill_rate
        return self.booked[id] - now_s

    def _take_over(self, now_s: float) -> bool:
        """Takes the booking of a task whose token is there and that is not: it may run on another node by now."""
        due = (id for id, at_s in self.booked.items() if now_s - MOMENT_S <= at_s <= now_s)
        if (first := next(due, None)) is None:
            return False
        del self.booked[first]
        return True

    def _forget_late(self, now_s: float) -> None:
        while (first := next(iter(self.booked), None)) is not None and self.booked[first] < now_s - LATE_S:
            del self.booked[first]


class RateLimits:
    """The lines of one node, by the name of the task."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    def hold_s(self, name: str, id: str, consumer: Any) -> float:
        """Seconds for which a task has to go back; 0 if it may run now, and Celery need not ask its bucket again."""
        bucket = None if consumer.disable_rate_limits else consumer.task_buckets[name]
        if bucket is None:
            self._lines.pop(name, None)
            return 0.0
        line = self._lines.get(name)
        if line is None or line.bucket is not bucket:  # its limit was changed
            line = self._lines[name] = _Line(bucket)
        return line.hold_s(id, self._clock())


@contextmanager
def without_bucket(name: str, consumer: Any) -> Iterator[None]:
    """While Celery takes over a task that has its token, there is no rate limit for its name."""
    bucket, consumer.task_buckets[name] = consumer.task_buckets[name], None
    try:
        yield
    finally:
        if consumer.task_buckets[name] is None:  # else the limit was changed meanwhile
            consumer.task_buckets[name] = bucket

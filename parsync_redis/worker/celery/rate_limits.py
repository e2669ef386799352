"""Rate limits of placed tasks: a task that may not start yet holds no slot of its node.

Celery keeps such a task in the worker until its token bucket has a token. A placed task would hold
its slots meanwhile. So the task goes back to the cluster's queue, and this node books a token for
the task, which comes back when the token is due. Celery's own bucket is too slow: it loses the time
by which its timers are late, a third of the tokens at 100 a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from .celery_types import Bucket, Limited

LONGEST_HOLD_S: Final = 30.0
"""The longest wait before a task is placed again.

Another node may have a token, or this node may be gone.
"""
MOMENT_S: Final = 0.1
"""A task that comes at most this late after its token was due runs at once.

This limit bounds the burst after a standstill.
"""
NEARLY_DUE_S: Final = 0.005
"""A token that is due this soon counts as due, because placing a task again takes longer."""
TOKEN_KEPT_S: Final = 2.0
"""Seconds for which a token is kept for a task that does not come.

The task may be cancelled, or run on another node.
"""
_SPREAD: Final = 0.618
"""Multiples of the golden ratio, modulo 1, spread evenly, however many there are."""


@dataclass(slots=True)
class _Line:
    """The tasks of one name that this node has sent back, and the tokens that they have booked.

    booked: the time of each task's token, earliest first; at most the tokens of LONGEST_HOLD_S +
        TOKEN_KEPT_S.
    next_s: the time of the first token that no task has booked.
    """

    bucket: Bucket
    booked: dict[str, float] = field(default_factory=dict)
    next_s: float = 0.0
    turned_away: count[int] = field(default_factory=count)

    def hold_s(self, id: str, now_s: float) -> float:
        """Return the seconds until this task may come again, 0 if it may run now.

        A task that may run has taken its token.
        """
        self._forget_late(now_s)
        bucket = self.bucket
        own_s = self.booked.get(id)
        if own_s is not None and own_s > now_s + NEARLY_DUE_S:
            return own_s - now_s
        self.booked.pop(id, None)
        if (own_s is not None and own_s >= now_s - MOMENT_S) or self._take_over(now_s):
            bucket.can_consume(1)  # ordinary tasks of that name take their tokens from it
            return 0.0
        self.next_s = max(self.next_s, now_s + float(bucket.expected_time(1)))
        if self.next_s <= now_s + NEARLY_DUE_S:
            bucket.can_consume(1)
            self.next_s += 1 / bucket.fill_rate
            return 0.0
        if self.next_s > now_s + LONGEST_HOLD_S:
            return LONGEST_HOLD_S * (2 + next(self.turned_away) * _SPREAD % 1) / 3
        self.booked[id] = self.next_s
        self.next_s += 1 / bucket.fill_rate
        return self.booked[id] - now_s

    def _take_over(self, now_s: float) -> bool:
        """Take the token of a task that has not come: it may run on another node by now."""
        due = (id for id, at_s in self.booked.items() if now_s - MOMENT_S <= at_s <= now_s)
        if (first := next(due, None)) is None:
            return False
        del self.booked[first]
        return True

    def _forget_late(self, now_s: float) -> None:
        while self.booked:
            first = next(iter(self.booked))
            if self.booked[first] >= now_s - TOKEN_KEPT_S:
                break
            del self.booked[first]


class RateLimits:
    """The rate limits of one node, by the name of the task."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    def hold_s(self, name: str, id: str, consumer: Limited) -> float:
        """Return the seconds for which a task must go back, 0 if it may run now.

        A task that may run has taken its token, so that Celery need not ask again.
        """
        bucket = None if consumer.disable_rate_limits else consumer.task_buckets[name]
        if bucket is None:
            self._lines.pop(name, None)
            return 0.0
        line = self._lines.get(name)
        if line is None or line.bucket is not bucket:  # the rate limit of the name was changed
            line = self._lines[name] = _Line(bucket)
        return line.hold_s(id, self._clock())


@contextmanager
def without_bucket(name: str, consumer: Limited) -> Iterator[None]:
    """Lift the rate limit of a name while Celery takes over a task that has its token."""
    bucket = consumer.task_buckets[name]
    consumer.task_buckets[name] = None
    try:
        yield
    finally:
        if consumer.task_buckets[name] is None:  # otherwise the limit was changed meanwhile
            consumer.task_buckets[name] = bucket

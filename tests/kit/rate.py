"""Take tasks under a rate as soon as it lets them start, and compare what was taken with the rate.

Only the server's clock counts, so a taker that a busy machine holds up changes no judgement.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.store.store import Store

LIMIT: Final = "rated"
KIND: Final = f"work slots=1 under={LIMIT}"
SUBMITTED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Rate:
    """`number` tasks in `period_ms`, of which `burst` may start at once."""

    number: int
    period_ms: int
    burst: int

    @property
    def interval_ms(self) -> float:
        """Return the time from one task to the next."""
        return self.period_ms / self.number

    @property
    def ceiling(self) -> str:
        """Return the entry of the policy."""
        return f"rate={self.number}/{self.period_ms} burst={self.burst}"


@dataclass(frozen=True, slots=True)
class RateTake:
    """A take that gave tasks: when (server ms), how many, and when it was due (server ms)."""

    at_ms: int
    count: int
    due_ms: int


def take_at_rate(store: Store, rate: Rate, seconds: float) -> list[RateTake]:
    """Take tasks whenever the last reply said, for so long, while tasks wait all the time."""
    commands = store.commands
    store.run(commands.set_policy([(LIMIT, rate.ceiling)]))
    needed = int(seconds * 1000 / rate.interval_ms * 1.5) + 2 * rate.burst + 1
    options = TaskOptions(limits=LIMIT)
    for start in range(0, needed, SUBMITTED_AT_ONCE):
        numbers = range(start, min(start + SUBMITTED_AT_ONCE, needed))
        store.run(commands.submit([Submission(f"r{n}", "work", b"", options) for n in numbers]))
    takes: list[RateTake] = []
    due_ms = 0
    while not takes or takes[-1].at_ms < takes[0].at_ms + 1000 * seconds:
        took: Any = store.run(commands.take("taker", [(KIND, 1000)]))
        if took.tasks:
            takes.append(RateTake(took.now_ms, len(took.tasks), due_ms or took.now_ms))
        assert took.due_ms is not None, "a rate with waiting tasks says when the next may start"
        due_ms = took.due_ms
        time.sleep(max(0, due_ms - took.now_ms) / 1000)
    return takes


def most_above(takes: Sequence[RateTake], rate: Rate) -> float:
    """Return by how many tasks the window with the most was above burst + rate * its length.

    0 or less: the rate held in every window.
    """
    # A window is from take i to take j: the sum up to j minus the sum before i, minus the time
    # between. So for each j only the least value before counts.
    most = -float("inf")
    least_before = float("inf")
    total = 0
    for take in takes:
        least_before = min(least_before, total - take.at_ms / rate.interval_ms)
        total += take.count
        most = max(most, total - take.at_ms / rate.interval_ms - least_before - rate.burst)
    return most


def part_of_rate(takes: Sequence[RateTake], rate: Rate) -> float:
    """Return which part of the rate was taken, from the first take on, without its burst.

    Time that the taker lost counts not: what it came too late, beyond what the burst holds.
    """
    spare_ms = (rate.burst - 1) * rate.interval_ms
    lost_ms = sum(max(0.0, take.at_ms - take.due_ms - spare_ms) for take in takes[1:])
    length_ms = takes[-1].at_ms - takes[0].at_ms - lost_ms
    return sum(take.count for take in takes[1:]) * rate.interval_ms / length_ms

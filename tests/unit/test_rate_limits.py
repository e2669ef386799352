"""Rate limits, on Celery's own token buckets and a clock that the test moves: how fast, how often,
how evenly.
"""

import heapq
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from kombu.utils import limits
from kombu.utils.limits import TokenBucket

from parsync_redis.worker.celery.rate_limits import (
    LONGEST_HOLD_S,
    MOMENT_S,
    TOKEN_KEPT_S,
    RateLimits,
)

PLACED_S = 0.004
"""Seconds that one placement takes: tasks that come at once are placed one after the other."""


class Node:
    """A node with one limit.

    A task that it gives back comes again when it is due, up to 40 ms late.
    """

    def __init__(self, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(limits, "monotonic", lambda: self.now_s)
        self.bucket = TokenBucket(rate)
        self.consumer = SimpleNamespace(disable_rate_limits=False, task_buckets={"f": self.bucket})
        self.limits = RateLimits(lambda: self.now_s)
        self.rng = random.Random(9)
        self.placed: Counter[str] = Counter()
        self.held: list[float] = []
        self.returns: list[float] = []
        self.ran: dict[str, float] = {}
        self.events: list[tuple[float, int, str]] = []
        self.count = 0

    def at(self, when_s: float, id: str) -> None:
        """Let a task come at this time."""
        self.count += 1
        heapq.heappush(self.events, (when_s, self.count, id))

    def run(self, until_s: float = 1e9) -> None:
        """Let everything happen that happens until then."""
        while self.events and self.events[0][0] <= until_s:
            when_s, _, id = heapq.heappop(self.events)
            self.now_s = max(self.now_s, when_s)
            self.come(id)

    def come(self, id: str) -> None:
        """Place a task here."""
        self.now_s += PLACED_S
        self.placed[id] += 1
        hold_s = self.limits.hold_s("f", id, self.consumer)
        self.held.append(hold_s)
        if hold_s > 0:
            self.returns.append(self.now_s)
            self.at(self.now_s + hold_s + self.rng.uniform(0, 0.04), id)
        else:
            self.ran[id] = self.now_s


@pytest.mark.parametrize(
    ("rate", "tasks", "placements"),
    [(10, 300, 2.2), (10, 700, 3.2), (100, 1000, 2.6), (2, 20, 2.2), (10, 3000, 9.0)],
)
def test_tasks_run_as_fast_as_their_limit_allows_and_none(
    rate: float, tasks: int, placements: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(rate, monkeypatch)
    for number in range(tasks):
        node.at(1000.0, str(number))
    node.run()
    took_s = max(node.ran.values()) - 1000.0
    assert len(node.ran) == tasks
    assert tasks / took_s >= 0.85 * rate, f"{tasks} took {took_s:.1f} s"
    times = sorted(node.ran.values())
    for window_s in (0.5, 1.0, 5.0):
        most = max(sum(at_s <= time_s < at_s + window_s for time_s in times) for at_s in times[::7])
        assert most <= (window_s + MOMENT_S) * rate + 1, (
            f"faster than the limit, within {window_s} s"
        )
    assert node.placed.total() / tasks <= placements
    assert max(node.held) <= LONGEST_HOLD_S


def test_tasks_without_a_token_within_the_horizon_come_back_spread_over_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(1 / 60, monkeypatch)
    for number in range(900):
        node.at(1000.0, str(number))
    node.run(1100.0)
    a_second = Counter(int(at_s) for at_s in node.returns if at_s > 1005)
    assert max(a_second.values()) <= 150
    assert max(node.held) <= LONGEST_HOLD_S


def test_the_token_of_an_absent_task_goes_to_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(1, monkeypatch)
    holds = [node.limits.hold_s("f", id, node.consumer) for id in ("first", "second", "third")]
    node.bucket.can_consume(1)
    assert holds == [0.0, 1.0, 2.0]
    node.now_s += 1.001
    assert node.limits.hold_s("f", "another", node.consumer) == 0.0
    node.bucket.can_consume(1)
    assert node.limits.hold_s("f", "second", node.consumer) == pytest.approx(2 - 0.001), (
        "after the third"
    )
    node.now_s += 2 + TOKEN_KEPT_S
    assert node.limits.hold_s("f", "fourth", node.consumer) == 0.0
    line = node.limits._lines["f"]
    assert "third" not in line.booked, "a booking that passed is forgotten"


def test_a_task_that_comes_too_early_keeps_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(1, monkeypatch)
    for id in ("first", "second", "third"):
        node.limits.hold_s("f", id, node.consumer)
    node.bucket.can_consume(1)
    node.now_s += 0.5
    assert node.limits.hold_s("f", "third", node.consumer) == pytest.approx(1.5)
    assert node.limits.hold_s("f", "second", node.consumer) == pytest.approx(0.5)


def test_a_limit_that_changes_makes_new_bookings(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(1 / 3600, monkeypatch)
    node.limits.hold_s("f", "first", node.consumer)
    node.bucket.can_consume(1)
    assert node.limits.hold_s("f", "second", node.consumer) > LONGEST_HOLD_S / 2
    node.consumer.task_buckets["f"] = TokenBucket(10)
    assert node.limits.hold_s("f", "second", node.consumer) == 0.0
    node.consumer.task_buckets["f"] = None
    assert node.limits.hold_s("f", "third", node.consumer) == 0.0

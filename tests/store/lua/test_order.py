"""The order of a task: its priority, and the time by which it should start."""

from itertools import pairwise
from typing import Any

import pytest

from parsync_redis.model.order import (
    EARLIEST_START_MS,
    LATEST_START_MS,
    MAX_ORDER,
    PATIENCE_MS,
    order_of,
)
from parsync_redis.model.task import Submission
from tests.kit.driver import NEVER_MS, Driver

HOUR = 360_000_000
"""An hour in hundredths of a ms."""


def start_by(drive: Driver, id: str) -> int:
    """Return the time by which a task of priority 0 should start, hundredths of a ms since 1970."""
    return drive.line(id).order - order_of(0, 0)


def score(drive: Driver, id: str) -> float:
    """Return the score of a waiting task in the queue of its kind."""
    client: Any = drive.store.client
    return client.zscore(drive.keys.pending(drive.line(id).kind), id)


@pytest.mark.parametrize("priority", range(10))
def test_an_order_is_the_priority_and_when_the_patience_ends(drive: Driver, priority: int) -> None:
    drive.submit("a", {"priority": priority})
    line = drive.line("a")
    earliest = order_of(priority, 100 * (line.submitted_ms + PATIENCE_MS))
    assert earliest <= line.order < earliest + 100
    assert line.priority == priority
    assert score(drive, "a") == line.order, "a double has it exactly"


def test_the_orders_of_a_shard_grow_with_each_submission(drive: Driver) -> None:
    ids = [f"t{number}" for number in range(250)]
    for first in range(0, 250, 50):
        drive.run(
            drive.commands.submit(
                [Submission(id, f"f{id[-1]}", b"") for id in ids[first : first + 50]]
            )
        )
    orders = [drive.line(id).order for id in ids]
    assert all(before < after for before, after in pairwise(orders))


def test_a_clock_that_is_set_back_changes_no_order(drive: Driver) -> None:
    drive.submit("a")
    ahead = drive.version() + HOUR
    drive.store.client.hset(drive.keys.queue("meta"), "version", ahead)
    for id in "bcd":
        drive.submit(id, delay_ms=NEVER_MS if id == "c" else None)
    orders = [drive.line(id).order for id in "abcd"]
    assert orders == sorted(set(orders))
    assert start_by(drive, "b") == ahead + 1 + 100 * PATIENCE_MS


def test_a_task_may_say_when_it_should_start(drive: Driver) -> None:
    for id, start_ms in (("usual", None), ("soon", 1000), ("overdue", -1000), ("late", HOUR)):
        drive.submit(id, start_ms=start_ms)
    drive.submit("high", {"priority": 1}, start_ms=LATEST_START_MS)
    assert drive.index("pending") == ["high", "overdue", "soon", "usual", "late"]
    submitted = 100 * drive.line("soon").submitted_ms
    assert submitted <= start_by(drive, "soon") - 100_000 < submitted + 100
    assert drive.line("soon").options == {}, "the order has it"


@pytest.mark.parametrize("start_ms", [EARLIEST_START_MS, 0, LATEST_START_MS])
def test_a_task_should_start_from_a_day_ago_to_a_year_ahead(drive: Driver, start_ms: int) -> None:
    drive.submit("a", {"priority": 9}, start_ms=start_ms)
    assert drive.line("a").priority == 9
    drive.submit("b", {"priority": 0}, start_ms=start_ms)
    assert drive.line("b").priority == 0


def test_a_late_clock_leaves_the_priority_as_it_is(drive: Driver) -> None:
    drive.store.client.hset(drive.keys.queue("meta"), "version", 99 * 10**13 - 500)
    drive.submit("a", {"priority": 0}, start_ms=LATEST_START_MS)
    drive.submit("b", {"priority": 9}, start_ms=LATEST_START_MS)
    assert [drive.line(id).priority for id in "ab"] == [0, 9]
    assert drive.line("a").order <= MAX_ORDER


@pytest.mark.parametrize("renew", [None, 0, 2 * PATIENCE_MS])
def test_a_successor_keeps_the_time_of_its_task_unless_it_says_another(
    drive: Driver, renew: int | None
) -> None:
    place = drive.place("a", drive.taken("a"))
    drive.start(place)
    before = start_by(drive, "a")
    drive.submit("b")
    drive.submit("a", {"priority": 0}, after=place.attempt, start_ms=renew)
    drive.submit("c")
    assert drive.finish(place) == "again"
    assert (start_by(drive, "a") == before) == (renew is None)
    assert "order" not in drive.line("a").options
    after_all = renew is not None and renew > PATIENCE_MS
    assert drive.index("pending") == (["b", "c", "a"] if after_all else ["a", "b", "c"])


def test_a_call_that_only_stores_a_successor_gives_its_order_to_no_other_task(
    drive: Driver,
) -> None:
    place = drive.place("a", drive.taken("a"))
    drive.start(place)
    drive.store.client.hset(drive.keys.queue("meta"), "version", drive.version() + HOUR)
    drive.submit("a", after=place.attempt, start_ms=PATIENCE_MS)
    drive.submit("b")
    drive.finish(place)
    assert drive.line("a").order < drive.line("b").order


def test_the_first_order_of_a_queue_is_found_however_high_the_orders_are(drive: Driver) -> None:
    for id, order in (("a", MAX_ORDER - 2), ("b", MAX_ORDER - 1)):
        drive.submit(id)
        line = drive.record(id).text.split(" ")
        line[1] = str(order)
        drive.store.client.hset(drive.keys.queue("tasks"), id, " ".join(line))
        drive.store.client.zadd(drive.keys.pending("work slots=1"), {id: order})
    drive.store.client.hdel(drive.keys.queue("kinds"), "work slots=1")
    drive.submit("c", start_ms=LATEST_START_MS)
    drive.cancel("c")
    assert drive.kinds()["work slots=1"].split(" ")[:2] == ["2", str(MAX_ORDER - 2)]

"""Moments as people write them, the time line of a task, and where a viewer goes on. All pure."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.model.events import Event, Wanted, time_line
from parsync_redis.model.human import read_moment
from parsync_redis.model.status import Setback, TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.serve.feed import MOST_EVENTS_BEHIND, Viewer, events_after

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 25, 14, 30, tzinfo=ZONE)


def ms(moment: datetime) -> int:
    return round(1000 * moment.timestamp())


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("14:02", NOW.replace(minute=2)),
        ("14:02:31", NOW.replace(minute=2, second=31)),
        ("14:31", NOW.replace(minute=31) - timedelta(days=1)),
        ("10m", NOW - timedelta(minutes=10)),
        ("1.5h", NOW - timedelta(hours=1.5)),
        ("2026-11-24T08:00", datetime(2026, 11, 24, 8, tzinfo=ZONE)),
        ("2026-11-24 08:00Z", datetime(2026, 11, 24, 8, tzinfo=UTC)),
    ],
)
def test_a_moment_is_read(text: str, right: datetime) -> None:
    assert read_moment("--since", text, ms(NOW), ZONE) == ms(right)


def test_the_end_of_a_span_is_the_first_such_time_behind_its_beginning() -> None:
    def until(text: str, since: datetime) -> int:
        return read_moment("--until", text, ms(NOW), ZONE, ms(since))

    assert until("14:03", NOW.replace(minute=2)) == ms(NOW.replace(minute=3))
    assert until("00:10", NOW - timedelta(hours=15)) == ms(NOW.replace(hour=0, minute=10))
    assert until("15:00", NOW) == ms(NOW.replace(hour=15, minute=0))


@pytest.mark.parametrize(
    "text", ["", "noon", "24:00", "14:60", "10", "-5m", "9" * 10 + "d", "2026-13-01", "1" * 5000]
)
def test_a_malformed_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"since .* is not valid: it must be a time of day"):
        read_moment("since", text, ms(NOW))


def event(word: str, at_ms: int, attempt: str = "", id: str = "q0/1-0") -> Event:
    return Event(id, at_ms, word, "a", "work", "n1", attempt)


def test_a_time_line_has_each_step_once() -> None:
    history = (
        Setback("1@1.s1.0", TaskState.RUNNING, "n2", 0, 1, 20, 30, "lost"),
        Setback("2@1.s1.0", TaskState.PLACED, "n3", 0, 1, 40, 50, "late"),
    )
    times = {"submitted": 10, "ready": 50, "placed": 60, "started": 70, "finished": 90}
    task = TaskStatus(
        "a", TaskState.FAILED, "work", node="n1", why="x", times=times, history=history
    )
    told = [event("requeued", 30, "1@1.s1.0"), event("failed", 91, "3@1.s1.0")]
    assert [(one.event, one.at_ms) for one in time_line(task, told)] == [
        *(("submitted", 10), ("started", 20), ("requeued", 30), ("placed", 40), ("requeued", 50)),
        *(("placed", 60), ("started", 70), ("failed", 91)),
    ]
    assert [one.event for one in time_line(task, [])][-1] == "failed", "the stream has forgotten it"
    at_once = TaskStatus("a", TaskState.CANCELLED, "work", times={"submitted": 10, "finished": 10})
    assert [one.event for one in time_line(at_once, [event("cancelled", 10)])] == [
        "submitted",
        "cancelled",
    ]
    assert [one.event for one in time_line(at_once, [event("expired", 11)])] == [
        "submitted",
        "expired",
    ]


def test_a_viewer_goes_on_behind_an_event_or_by_its_time() -> None:
    kept = [event("down", 1000 * at, id=f"p{at % 2}/{1000 * at}-0") for at in range(10)]
    assert events_after(kept, "p1/7000-0") == kept[8:]
    assert events_after(kept, "p9/7000-0") == kept[5:], (
        "two seconds before it, for clocks that differ"
    )
    assert (
        events_after(kept, "")
        == events_after(kept, "nonsense")
        == events_after(kept, "p1/x-y")
        == kept
    )


def test_a_viewer_who_is_too_far_behind_is_dropped() -> None:
    viewer = Viewer(Wanted(), (), 2)
    viewer.tell(0, [event("down", 1)] * 3)
    assert not viewer.over
    assert len(viewer._waiting) == 1, "he had seen two of them"
    viewer.tell(3, [event("down", 1)] * MOST_EVENTS_BEHIND)
    assert viewer.over

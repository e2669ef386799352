"""Histograms of `parsync serve` never fall, whoever reports them; charts draw the last minutes."""

from dataclasses import replace

import pytest

from parsync_redis.model.octaves import TimeHistogram
from parsync_redis.serve.counting import SurveyCounter
from parsync_redis.serve.history import MINUTES, STEP_S, Moment, Ring, charts_of, minutes_of
from parsync_redis.serve.page_values import EMPTY_SURVEY
from parsync_redis.store.reads.schedulers import SchedulerView


def scheduler(name, waits, pid="1", placed=0):
    """Return a scheduler that reports these waits."""
    return SchedulerView(
        name, 0, False, 1, {"pid": pid, "placed": str(placed), "waits": waits}, 0.1, True
    )


def survey(*schedulers, **runs):
    return replace(
        EMPTY_SURVEY,
        schedulers=schedulers,
        runs={name: TimeHistogram.of(text) for name, text in runs.items()},
    )


def counts(histograms):
    return {name: (one.count, one.total_ms) for name, one in histograms.items()}


def test_waits_add_up_over_schedulers_and_their_restarts():
    counting = SurveyCounter()
    assert counts(counting.add(survey(scheduler("s1", "a 50 3:5")), 0).waits) == {}, (
        "that was before"
    )
    found = counting.add(
        survey(scheduler("s1", "a 54 2:1,3:5"), scheduler("s2", "a 1 0:1 b 9 4:1")), 1
    ).waits
    assert counts(found) == {"a": (2, 5), "b": (1, 9)}
    found = counting.add(
        survey(scheduler("s1", "a 2 1:1", pid="2"), scheduler("s2", "b 9 4:1")), 2
    ).waits
    assert counts(found) == {"a": (3, 7), "b": (1, 9)}, "s1 has begun again; s2 tells of a no more"
    found = counting.add(
        survey(scheduler("s1", "odd", pid="2"), scheduler("s2", "a 1 0:1 b 9 4:1")), 3
    ).waits
    assert counts(found) == {"a": (4, 8), "b": (1, 9)}, "a name that comes back counts as a whole"


def test_runs_count_from_the_state_and_one_that_is_not_read_again_counts_once():
    counting = SurveyCounter()
    again = survey(a="10 3:2", b="1 0:1")
    counting.add(survey(a="5 3:1"), 0)
    for second in (1, 2):
        assert counts(counting.add(again, second).runs) == {"a": (1, 5), "b": (1, 1)}
    assert counts(counting.add(survey(a="1 0:1"), 3).runs) == {"a": (2, 6), "b": (1, 1)}, (
        "the server lost its state"
    )


def test_the_ring_keeps_one_moment_in_five_seconds_of_the_last_minutes():
    ring = Ring()
    for second in range(3600):
        found = ring.add(Moment(float(second), {}))
    assert len(found) == MINUTES * 60 / STEP_S + 1
    assert (found[0].at_s, found[-1].at_s) == (3595 - 60 * MINUTES, 3595)


def test_a_chart_has_a_line_for_what_was_counted_and_a_gap_where_nothing_was():
    none, some, more = (TimeHistogram.of(text) for text in ("", "10 2:2", "110 2:2,7:1"))
    moments = [
        Moment(at_s, {"placed": placed, "conflicts": 0}, waits)
        for at_s, placed, waits in (
            (0.0, 0, none),
            (5.0, 2, some),
            (10.0, 2, some),
            (15.0, 3, more),
        )
    ]
    placed, conflicts, delay = charts_of(moments)
    assert placed.text == "0.2 a second now, 0.4 at most"
    assert placed.points == ["250.0,0.0 275.0,60.0 300.0,30.0"]
    assert conflicts.points == ["250.0,60.0 275.0,60.0 300.0,60.0"]
    assert delay.text == "100 ms now, 100 at most"
    assert [len(points.split()) for points in delay.points] == [2, 2], "a single point is a dot"
    assert [chart.text for chart in charts_of(moments[:1])] == ["nothing yet"] * 3


@pytest.mark.parametrize(
    ("known_s", "minutes"), [(0.0, 1), (60.0, 1), (65.0, 2), (600.0, 10), (605.0, 10)]
)
def test_charts_show_the_minutes_that_are_known(known_s, minutes):
    assert minutes_of([Moment(100.0, {}), Moment(100.0 + known_s, {})]) == minutes

"""Histograms: each duration is in the octave whose bound it does not exceed; numbers by name are
bounded, and grow.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.octaves import (
    BOUNDS_S,
    MAX_COUNTED_NAMES,
    OCTAVES,
    OTHER_NAMES,
    TOP_NAMES,
    NamedTimes,
    TimeHistogram,
    octave_of,
    read_named_times,
)


def histogram(*many_ms: float) -> TimeHistogram:
    found = TimeHistogram()
    for ms in many_ms:
        found.add(ms)
    return found


@given(st.floats(0, 1e10))
def test_a_duration_is_in_the_first_octave_that_has_room_for_it(ms: float) -> None:
    within = [octave for octave, bound in enumerate(BOUNDS_S) if ms <= 1000 * bound]
    assert octave_of(ms) == min(within, default=OCTAVES)


@given(st.lists(st.one_of(st.integers(0, 10**9), st.floats(0, 1e6))))
def test_a_histogram_is_read_as_it_was_written(many_ms: list[float]) -> None:
    found = histogram(*many_ms)
    again = TimeHistogram.of(found.text)
    assert again.octaves == found.octaves
    assert again.total_ms == pytest.approx(found.total_ms, abs=1e-3, rel=1e-9)


@pytest.mark.parametrize(
    "text", ["", "odd", "1 2", "1 2:", "1 2:3,", "-1 2:3", "1 2:3 ", "nan 2:3", "1 2:-3"]
)
def test_a_malformed_histogram_reads_as_empty(text: str) -> None:
    assert TimeHistogram.of(text).count == 0


def test_an_octave_that_there_is_not_counts_as_the_last() -> None:
    assert TimeHistogram.of("5 999:2").octaves[OCTAVES] == 2


def test_the_counts_since_a_histogram_are_the_difference_or_all_after_a_restart() -> None:
    assert histogram(1, 5, 5).since(histogram(5)) == histogram(1, 5)
    assert histogram(1).since(histogram(5, 5)) == histogram(1)


def test_names_are_read_as_they_were_written() -> None:
    times = NamedTimes()
    for name, ms in (("proj.a", 3), ("proj.b", 900), ("proj.a", 4)):
        times.add(name, ms)
    assert read_named_times(times.text) == {"proj.a": histogram(3, 4), "proj.b": histogram(900)}
    assert times.all == histogram(3, 4, 900)
    assert read_named_times("") == read_named_times("odd") == {}


def test_the_most_used_names_have_their_own_histograms_and_all_other_names_share_one() -> None:
    times = NamedTimes()
    for number in range(TOP_NAMES + 10):
        for _ in range(1 + number):
            times.add(f"n{number:02d}", 1)
    assert times.by_name()[OTHER_NAMES].count == sum(range(TOP_NAMES + 1, TOP_NAMES + 11))
    before = times.by_name()
    times.choose()
    times.add("n29", 1)
    times.add("n00", 1)
    by_name = times.by_name()
    assert sorted(by_name.keys() - {OTHER_NAMES}) == [f"n{number}" for number in range(10, 30)]
    assert by_name["n29"] == histogram(1), "what came before it was chosen is in the others"
    assert by_name["n15"] == before["n15"], "one that stays goes on"
    assert by_name[OTHER_NAMES].count == before[OTHER_NAMES].count + 1


def test_many_names_that_come_once_take_no_room() -> None:
    times = NamedTimes()
    for number in range(3 * MAX_COUNTED_NAMES):
        times.add(f"n{number}", 1)
    times.choose()
    assert len(times.by_name()) == TOP_NAMES + 1
    assert times.all.count == 3 * MAX_COUNTED_NAMES
    times.choose()
    for _ in range(3):
        times.add("often", 1)
    times.choose()
    assert "often" in times.by_name()

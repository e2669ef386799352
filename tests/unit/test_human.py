"""Texts for people: durations, amounts, needs.

What `exact_text` writes is read back as the same amount.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parsync_redis.cli.common import show_time
from parsync_redis.errors import InvalidInput
from parsync_redis.model.amount import exact_text, parse_amount, shown_amount
from parsync_redis.model.human import age_text, clock_text, local_text, needs_given, needs_shown
from parsync_redis.store.repair.losses import Loss

GIB = 2**30


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0ms"),
        (0.04, "40ms"),
        (0.9994, "999ms"),
        (0.9996, "1.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (60, "1m"),
        (200, "3m20s"),
        (7500, "2h5m"),
        (3 * 86_400 + 4 * 3600 + 59, "3d4h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds, text):
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("amount", "exact", "shown"),
    [
        (0.5, "0.5", "0.5"),
        (4096, "4096", "4096"),
        (4 * GIB, "4GiB", "4GiB"),
        (1.5 * GIB, "1.5GiB", "1.5GiB"),
        (4 * 10**9, "4G", "4G"),
        (8 * GIB - 1, "8589934591", "8GiB"),
        (5 * GIB // 3, "1789569706", "1.667GiB"),
    ],
)
def test_an_amount_of_bytes_has_a_unit(amount, exact, shown):
    assert (exact_text(round(amount * 1000)), shown_amount(round(amount * 1000))) == (exact, shown)


@given(st.integers(0, 10**15))
def test_an_exact_text_is_read_as_the_same_amount(thousandths):
    assert parse_amount("mem", exact_text(thousandths)) == thousandths


def test_a_kind_as_people_read_it_is_the_kind():
    kind = "proj.render slots=2 gpu=0.5 mem=4294967296 vram_gb:>=24 gpu_model:a100 latency"
    shown = needs_shown(kind)
    assert shown == "proj.render slots=2 gpu=0.5 mem=4GiB vram_gb:>=24 gpu_model:a100 latency"
    assert needs_given(shown) == needs_given(kind) == kind
    for accounts in (" for=research/anna under=customer:7,stripe*2", " for=1024 under=1048576"):
        assert needs_shown(kind + accounts) == shown + accounts, "an account is no amount"
        assert needs_given(shown + accounts) == kind + accounts
    with pytest.raises(InvalidInput, match="resource mem='4XiB' is not an amount"):
        needs_given("proj.render slots=1 mem=4XiB")


@example(10**15 - 1)
@given(st.integers(0, 10**15 - 1))
def test_any_time_that_a_record_may_have_can_be_shown(ms: int) -> None:
    texts = [clock_text(ms), show_time(ms)[:19] + " UTC", Loss(ms, "s1", ()).text[3:26]]
    assert texts == [clock_text(ms)] * 3
    assert local_text(ms)


def test_a_time_behind_the_year_9999_is_shown_as_its_last_day() -> None:
    assert clock_text(10**15 - 1) == clock_text(10**14 * 3) == "9999-12-31 00:00:00 UTC"

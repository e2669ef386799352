"""Needs and offers are checked, normalised, and written as text that reads back the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.errors import InvalidInput
from parsync_redis.model.amount import (
    MAX_AMOUNT,
    amount_number,
    amount_text,
    parse_amount,
    read_amount,
)
from parsync_redis.model.needs import Resources, parse_resources


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (0, 0),
        (7, 7),
        ("7", 7),
        (" 64GiB ", 64 * 2**30),
        ("64 GiB", 64 * 2**30),
        ("1.5GB", 1_500_000_000),
        ("2k", 2000),
        ("1M", 10**6),
        ("3TiB", 3 * 2**40),
        ("0.5KiB", 512),
        (0.5, 0.5),
        ("0.5", 0.5),
        ("500m", 0.5),
        ("1.125", 1.125),
        (1.0, 1),
        (MAX_AMOUNT, MAX_AMOUNT),
        (str(MAX_AMOUNT), MAX_AMOUNT),
    ],
)
def test_an_amount_is_kept_in_thousandths(text: object, amount: int | float):
    assert parse_amount("mem", text) == int(amount * 1000)
    assert amount_number(parse_amount("mem", text)) == amount


@given(st.integers(-MAX_AMOUNT * 1000, MAX_AMOUNT * 1000))
def test_an_amount_reads_back_from_its_text(thousandths: int):
    assert read_amount(amount_text(thousandths)) == thousandths


@pytest.mark.parametrize(
    ("thousandths", "text"),
    [(0, "0"), (500, "0.5"), (1000, "1"), (1125, "1.125"), (-500, "-0.5"), (-10_000, "-10")],
)
def test_the_text_of_an_amount_has_no_zeros_at_its_end(thousandths: int, text: str):
    assert amount_text(thousandths) == text


@pytest.mark.parametrize(
    "text",
    [
        -1,
        "-1",
        1.0005,
        "1.0005",
        "0.3333KiB",
        "1m5",
        "0.5m",
        1e-9,
        1e300,
        "1e3",
        "4 GiBs",
        "GiB",
        "",
        "4gib",
        None,
        True,
        [],
        MAX_AMOUNT + 1,
        str(MAX_AMOUNT + 1),
        "9" * 400,
        "9" * 5000,
        "9" * 400 + ".5",
        "0." + "1" * 400,
        "8192TiB",
        float("nan"),
        float("inf"),
        b"4",
    ],
)
def test_a_malformed_amount_is_refused_with_the_units(text: object):
    with pytest.raises(InvalidInput, match=r"resource mem=.* is not an amount: .* units .*GiB"):
        parse_amount("mem", text)


@pytest.mark.parametrize("slots", [0, -1, 10_001, 1.0, "2", None, True])
def test_slots_are_a_whole_number_in_range(slots: object):
    with pytest.raises(InvalidInput, match=r"slots=.* from 1 to 10,000"):
        Resources.of(slots)


def test_the_text_has_slots_first_then_amounts_then_labels_each_in_order():
    needs = Resources.of(2, {"mem": "4KiB", "gpu": 1}, {"zone": "a", "gpu_model": "a100"})
    assert needs.text == "slots=2 gpu=1 mem=4096 gpu_model:a100 zone:a"


def test_the_order_in_which_needs_are_given_does_not_matter():
    assert Resources.of(1, {"a": 1, "b": 2}).text == Resources.of(1, {"b": 2, "a": 1}).text


@pytest.mark.parametrize("names", [{1: 1, "a": 2}, {None: 1}, {("a",): 1}])
def test_a_name_that_is_no_text_is_refused(names: Any):
    with pytest.raises(InvalidInput, match="must be text"):
        Resources.of(1, names)
    with pytest.raises(InvalidInput, match="must be text"):
        Resources.of(1, None, names)


def test_slots_is_no_resource():
    with pytest.raises(InvalidInput, match="use slots=N"):
        Resources.of(1, {"slots": 2})


@pytest.mark.parametrize(
    ("resources", "labels"),
    [({"GPU": 1}, None), ({"a b": 1}, None), (None, {"zone": "a b"}), (None, {"zone": 1})],
)
def test_names_and_values_are_checked(
    resources: dict[str, object] | None, labels: dict[str, object] | None
):
    with pytest.raises(InvalidInput):
        Resources.of(1, resources, labels)


@given(
    st.integers(1, 10_000),
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True).filter(lambda n: n != "slots"),
        st.integers(0, MAX_AMOUNT),
        max_size=4,
    ),
    st.dictionaries(
        st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9_./-]{1,63}", fullmatch=True),
        max_size=4,
    ),
)
def test_a_bundle_reads_back_from_its_text(
    slots: int, resources: dict[str, object], labels: dict[str, object]
):
    found = Resources.of(slots, resources, labels)
    assert parse_resources(found.text) == found
    assert parse_resources(found.text).text == found.text

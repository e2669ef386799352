"""Pacing, quantiles and what a bench refuses: pure."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_lab.bench.figures import Pace, grows, quantiles, rate_within, ratio
from parsync_lab.bench.parameters import BenchParameters
from parsync_redis.errors import InvalidInput

SMALL = BenchParameters(
    schedulers=2, slots=200, partitions=4, rate=100, duration_s=0.5, seconds=2, node_slots=10
)


def test_quantiles_are_by_nearest_rank():
    assert quantiles(np.arange(1.0, 1001.0)) == {
        "p50": 500.0,
        "p95": 950.0,
        "p99": 990.0,
        "p999": 999.0,
    }
    assert quantiles(np.array([7.0])) == {"p50": 7.0, "p95": 7.0, "p99": 7.0, "p999": 7.0}
    assert set(quantiles(np.zeros(0)).values()) == {0.0}


@given(
    rate=st.floats(1, 1e5),
    seconds=st.floats(0.1, 20),
    generators=st.integers(1, 5),
    at=st.floats(0, 30),
)
def test_generators_share_out_each_due_task_once(rate, seconds, generators, at):
    paces = [Pace(rate, seconds, which, generators) for which in range(generators)]
    assert sum(pace.total for pace in paces) == int(rate * seconds)
    elapsed = at * seconds / 30
    for pace in paces:
        due = pace.due(elapsed)
        assert pace.due(-1) == 0 <= due <= pace.total
        if due:
            assert pace.due_s(pace.number(due - 1)) <= elapsed + 1e-6
        if due < pace.total:
            assert pace.due_s(pace.number(due)) > elapsed - 1e-6


def test_a_rate_counts_what_is_inside_the_window():
    assert (
        rate_within(np.array([0.0, 999.0, 1000.0, 1500.0, np.nan, 2000.0]), 1000.0, 2000.0) == 2.0
    )


def test_delays_grow_when_the_last_third_is_far_above_the_first():
    assert grows(np.linspace(0, 3000, 300))
    assert not grows(np.full(300, 900.0))
    assert not grows(np.array([1.0, 40.0]))


def test_a_ratio_to_nothing_is_nothing():
    assert (ratio(1, 4), ratio(1, 0)) == (0.25, 0.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rate": 0}, "--rate 0 is not valid: it must be from 1 to 1,000,000"),
        ({"schedulers": 0}, "--schedulers 0 is not valid: it must be from 1 to 64"),
        ({"duration_s": -1}, "--duration -1 is not valid"),
        ({"gap_s": float("nan")}, "--gap nan is not valid"),
        ({"slots": 205}, "--slots 205 is not valid: it must be a multiple of --node-slots 10"),
        (
            {"slots": 30},
            "must be at least as many as --partitions 4",
        ),
        ({"schedulers": 5}, "--partitions 4 is too few: "),
        (
            {"strategy": "best"},
            "--strategy 'best' is not known: known are latency, quality, adaptive",
        ),
        (
            {"system": "nomad"},
            "--system 'nomad' is not known: known are parsync, state, central, queues",
        ),
        ({"kinds": 7}, "--kinds 7 is not known: known are 1, 50"),
        ({"kinds": 50, "system": "queues"}, "50 kinds would need 50 queues"),
    ],
)
def test_a_setting_that_cannot_be_measured_is_refused(change, says):
    SMALL.check()
    with pytest.raises(InvalidInput, match=r"^--") as refused:
        replace(SMALL, **change).check()
    assert says in str(refused.value)


def test_fifty_kinds_of_task_all_fit_some_node():
    asked = replace(SMALL, kinds=50, slots=1000)
    offers = [dict(plan.offer.labels) for plan in asked.node_plans()]
    kinds = asked.task_kinds()
    assert len({str(kind) for kind in kinds}) == 50
    assert all(any(kind["require"] == labels for labels in offers) for kind in kinds)

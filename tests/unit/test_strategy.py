"""Weighted sampling and the three strategies, as pure functions of score, delay and dice."""

import numpy as np
import pytest

from parsync_redis.model.options import Strategy
from parsync_redis.placement.strategy import (
    EMA_WEIGHT,
    HYSTERESIS,
    SHARPNESS,
    StrategySelector,
    pace,
    sample,
)


def test_a_sample_has_each_candidate_once() -> None:
    rng = np.random.default_rng(1)
    chosen = sample(rng, np.ones(50), 20)
    assert len(chosen) == 20 == len(set(chosen.tolist()))
    assert sorted(sample(rng, np.ones(5), 9).tolist()) == [0, 1, 2, 3, 4]
    assert len(sample(rng, np.ones(0), 3)) == 0


def test_better_candidates_are_more_likely_by_their_weight() -> None:
    rng = np.random.default_rng(2)
    quality = np.array([0.0, 0.25])
    first = np.mean([sample(rng, pace(quality), 1)[0] for _ in range(20_000)])
    expected = np.exp(SHARPNESS * 0.25) / (1 + np.exp(SHARPNESS * 0.25))
    assert first == pytest.approx(expected, abs=0.015)


def test_among_equals_the_choice_is_even() -> None:
    rng = np.random.default_rng(3)
    counts = np.bincount([sample(rng, np.ones(4), 1)[0] for _ in range(8_000)], minlength=4)
    assert counts.min() > 1_800


def test_adaptive_goes_to_latency_above_tau_and_back_only_below_the_hysteresis() -> None:
    selector = StrategySelector(Strategy.ADAPTIVE, tau_s=1.0)
    assert selector.resolve("") is Strategy.QUALITY
    while selector.delay_s <= 1.0:
        assert selector.resolve("") is Strategy.QUALITY
        selector.observe([3.0])
    assert selector.resolve("") is Strategy.LATENCY
    while selector.delay_s > HYSTERESIS:
        assert selector.resolve("") is Strategy.LATENCY
        selector.observe([0.0])
    assert selector.resolve("") is Strategy.QUALITY


def test_the_delay_is_smoothed_exponentially() -> None:
    selector = StrategySelector(Strategy.ADAPTIVE, tau_s=1.0)
    selector.observe([2.0])
    assert selector.delay_s == pytest.approx(2.0 * EMA_WEIGHT)
    selector.observe([2.0])
    assert selector.delay_s == pytest.approx(2.0 * (1 - (1 - EMA_WEIGHT) ** 2))


def test_a_tasks_own_wish_goes_before_the_clusters_strategy() -> None:
    assert StrategySelector(Strategy.LATENCY, 1.0).resolve("quality") is Strategy.QUALITY
    assert StrategySelector(Strategy.QUALITY, 1.0).resolve("latency") is Strategy.LATENCY
    assert StrategySelector(Strategy.LATENCY, 1.0).resolve("adaptive") is Strategy.QUALITY

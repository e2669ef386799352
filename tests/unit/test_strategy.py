"""Weighted sampling and the three strategies, as pure functions of score, delay and dice."""

import numpy as np
import pytest

from parsync_redis.model.task import Strategy
from parsync_redis.placement.strategy import EMA_WEIGHT, HYSTERESIS, SHARPNESS, Mood, pace, sample


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
    mood = Mood(Strategy.ADAPTIVE, tau_s=1.0)
    assert mood.resolve("") is Strategy.QUALITY
    while mood.delay_s <= 1.0:
        assert mood.resolve("") is Strategy.QUALITY
        mood.observe(3.0)
    assert mood.resolve("") is Strategy.LATENCY
    while mood.delay_s > HYSTERESIS:
        assert mood.resolve("") is Strategy.LATENCY
        mood.observe(0.0)
    assert mood.resolve("") is Strategy.QUALITY


def test_the_delay_is_smoothed_exponentially() -> None:
    mood = Mood(Strategy.ADAPTIVE, tau_s=1.0)
    mood.observe(2.0)
    assert mood.delay_s == pytest.approx(2.0 * EMA_WEIGHT)
    mood.observe(2.0)
    assert mood.delay_s == pytest.approx(2.0 * (1 - (1 - EMA_WEIGHT) ** 2))


def test_a_tasks_own_wish_goes_before_the_clusters_strategy() -> None:
    assert Mood(Strategy.LATENCY, 1.0).resolve("quality") is Strategy.QUALITY
    assert Mood(Strategy.QUALITY, 1.0).resolve("latency") is Strategy.LATENCY
    assert Mood(Strategy.LATENCY, 1.0).resolve("adaptive") is Strategy.QUALITY

"""whatif: its prediction, the alternative that it chooses, its refusals; and when a queue grows."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.lab.simulate.measure import SimMeasure
from parsync_redis.lab.simulate.parameters import Parameters, Phase, SimStrategy
from parsync_redis.lab.simulate.whatif import (
    Prediction,
    _alternatives,
    _sized,
    as_result,
    choose,
    play,
)
from parsync_redis.placement.strategy import SHARPNESS

from .test_refusals import refused


def test_whatif_shows_alternatives_and_marks_the_one_to_choose() -> None:
    words = [
        "whatif",
        "--schedulers",
        "2",
        "--partitions",
        "4",
        "--gap",
        "0.1",
        "--rate",
        "200",
        "--duration",
        "0.5",
    ]
    result = CliRunner().invoke(app, [*words, "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    names = [one["name"] for one in found["alternatives"]]
    assert names == [
        "as given",
        "latency",
        "quality",
        "half the schedulers",
        "twice the schedulers",
        "half the gap",
        "twice the gap",
    ]
    assert found["choose"] in names
    given = found["alternatives"][0]
    assert given["keeps_up"]
    assert given["staleness_mean_s"] == pytest.approx(0.05, rel=0.05)
    assert given["reads_per_s"] == 2 * 4 / 0.1
    assert given["oldest_s"] <= 0.1 + 0.05 + 1e-6
    table = CliRunner().invoke(app, [*words, "--jobs", "1"], env={"COLUMNS": "250"}).stdout
    assert f"* {found['choose']}" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "0"], "--rate 0 is not valid"),
        (
            ["--rate", "1000", "--duration", "10", "--slots", "5000"],
            "keep 10,000 slots busy, more than the 5,000 of",
        ),
        (
            ["--rate", "1e7"],
            "keep 50,000,000 slots busy, more than the 10,000,000 of --slots, which may be 10,000,000",
        ),
        (["--rate", "inf"], "--rate inf is not valid"),
        (["--rate", "nan"], "--rate nan is not valid"),
        (
            ["--schedulers", "1000", "--partitions", "1000", "--gap", "0.001"],
            "take fewer --schedulers or --partitions",
        ),
        (["--gap", "3600"], "minutes, and 10 are the most: take a lower --rate or a shorter --gap"),
        (["--decisions", "0"], "--decisions 0 is not valid"),
        (["--schedulers", "9"], "--schedulers 9 is more than --partitions 8"),
        (["--partitions", "-3"], "--partitions -3 is not valid"),
    ],
)
def test_whatif_refuses_what_cannot_be(words: list[str], said: str) -> None:
    assert said in refused("whatif", *words)


def test_alternatives_are_within_what_may_be_given() -> None:
    least = _alternatives(Parameters(schedulers=1, partitions=1, gap_s=0.001))
    assert "twice the gap" in least
    assert "half the gap" not in least
    most = _alternatives(Parameters(schedulers=600, partitions=1300, gap_s=3600, scale=1.0))
    assert "half the gap" in most
    assert not {"twice the gap", "twice the schedulers"} & most.keys()


def test_a_large_cluster_is_scaled_down() -> None:
    large = _sized(Parameters(rate=50.0, duration_s=10_000, slots=1_000_000, scale=1.0), 1000.0)
    assert large.scaled_slots == 100_000
    busy = _sized(Parameters(rate=40_000.0, slots=250_000, scale=1.0), 1000.0)
    assert busy.scaled(busy.rate) == pytest.approx(2000.0)


def prediction(
    name: str, p99_s: float, score: float, calls: float, keeps_up: bool = True
) -> Prediction:
    return Prediction(
        name,
        1,
        1,
        0.5,
        "latency",
        keeps_up,
        p99_s / 2,
        p99_s,
        0.0,
        score,
        0.25,
        0.5,
        1.0,
        1.0,
        calls,
    )


def test_the_choice_keeps_up_then_is_fast_then_good_then_cheap() -> None:
    slow, fast = prediction("slow", 1.0, 11.0, 1), prediction("fast", 0.1, 9.0, 50)
    behind = prediction("behind", 0.05, 12.0, 1, keeps_up=False)
    assert choose([slow, fast, behind])[0] is fast
    better = prediction("better", 0.14, 9.5, 90)
    assert choose([slow, fast, better])[0] is better
    cheaper = prediction("cheaper", 0.12, 9.51, 10)
    assert choose([fast, better, cheaper])[0] is cheaper
    assert choose([behind]) == (None, "none keeps up: it takes more slots or faster schedulers")
    assert as_result({}, [behind])["choose"] is None


def keeps_up(decisions: float, **given: object) -> bool:
    parameters = Parameters(**{**given, "sharpness": SHARPNESS, "scale": 1.0})  # type: ignore[arg-type]
    found = play(
        _sized(parameters, decisions), np.random.SeedSequence(1), lambda done: None, decisions
    )
    return bool(found.summary["keeps_up"])


def test_a_queue_that_comes_in_bursts_keeps_up_and_one_that_grows_does_not() -> None:
    bursts = {"schedulers": 8, "partitions": 32, "gap_s": 0.1, "rate": 5000.0, "slots": 31_250}
    assert keeps_up(1000, **bursts)
    alone = {
        "schedulers": 1,
        "partitions": 1,
        "gap_s": 0.2,
        "rate": 400.0,
        "duration_s": 0.5,
        "slots": 400,
    }
    assert keeps_up(440, **alone, strategy=SimStrategy.LATENCY)
    assert not keeps_up(380, **alone, strategy=SimStrategy.LATENCY)


def test_a_queue_that_adaptive_holds_at_tau_keeps_up() -> None:
    given = {
        "schedulers": 4,
        "partitions": 8,
        "gap_s": 0.1,
        "rate": 400.0,
        "duration_s": 0.5,
        "slots": 250,
        "tau_s": 0.5,
    }
    assert keeps_up(110, **given, strategy=SimStrategy.LATENCY)
    assert keeps_up(110, **given, strategy=SimStrategy.ADAPTIVE)
    assert not keeps_up(110, **given, strategy=SimStrategy.QUALITY)
    assert not keeps_up(90, **given, strategy=SimStrategy.ADAPTIVE)


def test_the_queue_of_a_second_is_the_mean_over_its_ticks() -> None:
    measure = SimMeasure(Parameters(scale=1.0), ["all"])
    for at_s, waiting in ((0.0, 10), (0.5, 30), (1.0, 200)):
        measure.see_load(at_s, [0], [waiting])
    assert measure.series()["all"]["waiting"] == [20.0, 200.0]
    assert measure.summary([Phase("both", 2.0, (1.0,))])["both"]["all"]["waiting"] == 80.0

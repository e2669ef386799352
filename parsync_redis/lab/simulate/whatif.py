"""Predict a cluster of the user's numbers, side by side with alternatives.

Each is simulated for some seconds, from a steady load, with the product's random sampling.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from ...errors import InvalidInput
from ...placement.strategy import SHARPNESS
from .parameters import (
    LEAST_GAP_S,
    MOST_GAP_S,
    MOST_SCHEDULERS,
    MOST_SLOTS,
    NODE_SLOTS,
    Group,
    Parameters,
    Phase,
    SimStrategy,
)
from .runs import Found, SimRun, carry_out, tidy
from .simulation import Progress, Simulation
from .workload import Poisson

CAUTION: Final = (
    "do not rely on these forecasts until their model is redone: in six plausible settings they were 3 to 40 times off "
    "what `parsync bench placement` measured (5.9 ms measured, 259 ms forecast; 'does not keep up' for one that did)"
)
"""A warning printed before each forecast."""

MOST_RATE: Final = 2000.0
SCALED_SLOTS: Final = 100_000
"""Tasks a second and slots that are simulated at most; a larger cluster is scaled down."""

MOST_WORK_S: Final = 600.0
"""Forecasts that take longer than about this on one core are refused."""

GAPS: Final = 24
LEAST_S: Final = 4.0
MOST_DOUBLINGS: Final = 3
"""A run in which it is not clear whether the queue grows is played on, to twice its length, so many times at most."""

GROWN: Final = 0.01
"""A queue that grows by more than this share of what arrives, from half to half, may be one that grows without end."""

LEAST_QUEUE_S: Final = 0.1
MOST_TAU_S: Final = 2.0
CALLS_PER_TASK: Final = 7
"""Submit, take, confirm, the doorbell, start, finish, release: each a call of its own at worst; claims are apart."""

AS_GIVEN: Final = "as given"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one alternative; delays and staleness in seconds, calls and bytes a second of all schedulers.

    keeps_up: the queue does not grow without end. calls_per_s: reads, claims and the calls of tasks, as if none went
    together.
    """

    name: str
    schedulers: int
    partitions: int
    gap_s: float
    strategy: str
    keeps_up: bool
    delay_p50_s: float | None
    delay_p99_s: float | None
    conflict_fraction: float
    score_mean: float | None
    staleness_mean_s: float
    oldest_s: float
    reads_per_s: float
    read_bytes_per_s: float
    calls_per_s: float


def predict(
    given: Mapping[str, Any],
    decisions: float,
    seed: int = 1,
    jobs: int = 0,
    tell: Progress = lambda done: None,
) -> list[Prediction]:
    """Predict the cluster and each alternative; `decisions` is K, claims a second of one scheduler."""
    if not 0 < decisions <= 10**6:
        raise InvalidInput(
            f"--decisions {decisions:g} is not valid: it must be more than 0 and at most 1,000,000"
        )
    base = Parameters(**{**given, "sharpness": SHARPNESS, "scale": 1.0, "seed": seed})
    busy = base.rate * base.duration_s
    if busy > base.slots:
        raise InvalidInput(
            f"--rate {base.rate:g} tasks a second of --duration {base.duration_s:g} s keep {busy:,.0f} slots busy, "
            f"more than the {base.slots:,} of --slots, which may be {MOST_SLOTS:,} at most"
        )
    runs = [
        SimRun(name, play, _sized(one, decisions), (decisions,))
        for name, one in _alternatives(base).items()
    ]
    _check_work([run.parameters for run in runs])
    found = carry_out(runs, [seed], jobs, tell)
    return [_prediction(run, one[0], decisions) for run, one in zip(runs, found, strict=True)]


def choose(predictions: Sequence[Prediction]) -> tuple[Prediction | None, str]:
    """Return the best alternative, or None, and the reason.

    Of those that keep up: the least p99 delay; where others are within half of it again, the best score (a twentieth
    apart is the same); where these are the same, the least calls.
    """
    fit = [one for one in predictions if one.keeps_up and one.delay_p99_s is not None]
    if not fit:
        return None, "none keeps up: it takes more slots or faster schedulers"
    least = min(one.delay_p99_s or 0.0 for one in fit)
    near = [one for one in fit if (one.delay_p99_s or 0.0) <= 1.5 * least]
    best = min(near, key=lambda one: (-round(20 * (one.score_mean or 0.0)), one.calls_per_s))
    why = (
        "the shortest delays"
        if len(near) == 1
        else "delays among the shortest, then score, then calls to Redis"
    )
    return best, why


def _alternatives(base: Parameters) -> dict[str, Parameters]:
    found = {AS_GIVEN: base}
    for strategy in (SimStrategy.LATENCY, SimStrategy.QUALITY, SimStrategy.ADAPTIVE):
        if strategy is not base.strategy:
            found[f"{strategy}"] = base.with_(strategy=strategy)
    if base.schedulers > 1:
        found["half the schedulers"] = base.with_(schedulers=base.schedulers // 2)
    if 2 * base.schedulers <= min(base.partitions, MOST_SCHEDULERS):
        found["twice the schedulers"] = base.with_(schedulers=2 * base.schedulers)
    if base.gap_s / 2 >= LEAST_GAP_S:
        found["half the gap"] = base.with_(gap_s=base.gap_s / 2)
    if base.gap_s * 2 <= MOST_GAP_S:
        found["twice the gap"] = base.with_(gap_s=base.gap_s * 2)
    return found


def _sized(one: Parameters, decisions: float) -> Parameters:
    """At the scale to simulate it, with K as the amplifier says it."""
    least = one.partitions * NODE_SLOTS / one.slots
    scale = min(1.0, max(min(MOST_RATE / one.rate, SCALED_SLOTS / one.slots), least))
    return one.with_(
        scale=scale, amplifier=min(1000.0, max(0.01, decisions * one.schedulers / one.rate))
    )


def _check_work(sized: Sequence[Parameters]) -> None:
    """Raise InvalidInput if the simulation would take too long."""
    schedulers_s, tasks_s = (sum(parts) for parts in zip(*map(_work_s, sized), strict=True))
    work_s = schedulers_s + tasks_s
    if work_s > MOST_WORK_S:
        fewer = "fewer --schedulers or --partitions, or a longer --gap"
        cure = fewer if schedulers_s > tasks_s else "a lower --rate or a shorter --gap"
        raise InvalidInput(
            f"to simulate this would take about {work_s / 60:,.0f} minutes, and {MOST_WORK_S / 60:g} are the most: "
            f"take {cure}"
        )


def _work_s(one: Parameters) -> tuple[float, float]:
    """About how many seconds a core takes for what schedulers read, and for the tasks; as measured, not played on."""
    length_s, rate = _length_s(one), one.scaled(one.rate)
    ticks = length_s / one.tick_s
    ticks_s = ticks * (
        6e-6 * (one.schedulers + one.partitions) + 8e-8 * one.schedulers * one.partitions
    )
    return ticks_s + 2e-6 * one.scaled_slots * (1 + one.schedulers), 8e-5 * rate * (
        length_s + one.duration_s
    )


def play(
    parameters: Parameters, dice: np.random.SeedSequence, progress: Progress, decisions: float
) -> Found:
    """Play some gaps from a settled load and measure the second half; go on until it is clear what keeps up."""
    load, fill, own = dice.spawn(3)
    rate = parameters.scaled(parameters.rate)
    arrivals = Poisson(np.random.default_rng(load), [(0.0, rate)], parameters.duration_s)
    simulation = Simulation(parameters, [Group("all", parameters.schedulers)], [arrivals], own)
    simulation.cluster.fill(
        round(rate * parameters.duration_s), parameters.duration_s, np.random.default_rng(fill)
    )
    length_s, ticks = _length_s(parameters), 0
    for _ in range(1 + MOST_DOUBLINGS):
        ticks = _play_on(simulation, ticks, round(length_s / parameters.tick_s), progress)
        halves = Phase("first", length_s / 2, (1.0,)), Phase("second", length_s / 2, (1.0,))
        phases = simulation.measure.summary(halves)
        first, second = phases["first"]["all"], phases["second"]["all"]
        waited = [(half["waiting"] or 0.0) / rate for half in (first, second)]
        grows, is_long = (
            waited[1] - waited[0] > GROWN * length_s / 2,
            waited[1] > _bound_s(parameters),
        )
        if is_long or not grows:
            break
        length_s *= 2
    return Found({}, {**second, "keeps_up": not (grows and is_long)}, simulation.measure.placements)


def _play_on(simulation: Simulation, begin: int, end: int, progress: Progress) -> int:
    """Play the ticks from `begin` to `end`; return `end`."""
    for tick in range(begin + 1, end + 1):
        simulation.tick(tick)
        if tick % 100 == 0 or tick == end:
            progress(tick / end)
    return end


def _length_s(parameters: Parameters) -> float:
    """Return the first length of a run; it and its half are whole seconds."""
    return 2.0 * math.ceil(
        max(LEAST_S, GAPS * parameters.gap_s, 1.2 * min(parameters.duration_s, 10.0)) / 2
    )


def _bound_s(parameters: Parameters) -> float:
    """Return the longest queue, in seconds of arrivals, that does not count as growing.

    Bursts make one of about a gap. Adaptive lets it grow until tasks wait for tau, then places them where they do not
    conflict; of a tau beyond what can be seen in a run MOST_TAU_S is waited for.
    """
    adaptive_s = (
        1.2 * min(parameters.tau_s, MOST_TAU_S)
        if parameters.strategy is SimStrategy.ADAPTIVE
        else 0.0
    )
    return max(parameters.gap_s, LEAST_QUEUE_S) + adaptive_s


def _prediction(run: SimRun, found: Found, decisions: float) -> Prediction:
    one, means = run.parameters, found.summary
    reads_per_s = one.schedulers * one.partitions / one.gap_s
    lost = means["conflict_fraction"] or 0.0
    claims_per_s = one.rate / (1 - lost) if lost < 1 else one.schedulers * decisions
    numbers = {
        "delay_p50_s": means["delay_p50_s"],
        "delay_p99_s": means["delay_p99_s"],
        "conflict_fraction": lost,
        "score_mean": means["score_mean"],
        "staleness_mean_s": means["staleness_mean_s"],
        "oldest_s": means["oldest_s"],
        "reads_per_s": reads_per_s,
        "read_bytes_per_s": one.schedulers / one.gap_s * one.slots / 8,
        "calls_per_s": reads_per_s + claims_per_s + CALLS_PER_TASK * one.rate,
    }
    tidied = {
        name: None if value is None else tidy(float(value)) for name, value in numbers.items()
    }
    asked = (run.name, one.schedulers, one.partitions, one.gap_s, one.strategy.value)
    return Prediction(*asked, means["keeps_up"], **tidied)  # type: ignore[arg-type]


def as_result(given: Mapping[str, Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
    """For --json: what was asked, the predictions, the choice."""
    best, why = choose(predictions)
    asked = {
        name: str(value) if isinstance(value, SimStrategy) else value
        for name, value in given.items()
    }
    name = best.name if best else None
    return {
        "caution": CAUTION,
        "given": asked,
        "alternatives": [asdict(one) for one in predictions],
        "choose": name,
        "why": why,
    }

"""A replay of a real trace: its arrivals and running times, with time compressed.

The trace's span becomes one minute of virtual time. The replay draws instances evenly, as many as
load the schedulers to `--load`; the slots are loaded as much, unless `--slots` gives their number.
Tasks longer than a tenth of the span are cut to it, so that the load becomes steady.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from parsync_redis.errors import InvalidInput
from parsync_redis.placement.strategy import Floats

from ..claims import ClaimCheck, above, below, difference, ratio, total
from ..parameters import (
    OF_SIMULATION,
    SIM_NODE_SLOTS,
    Parameters,
    Phase,
    SchedulerGroup,
    SimStrategy,
)
from ..plots import COLOURS, finish_axes, line
from ..runs import RunFigures, SimRun
from ..simulation import Progress, Simulation
from ..trace import TraceRow, read_trace
from ..workload import Arrival, Listed

TITLE = "A real trace, replayed"
DEFAULTS: Final[Mapping[str, Any]] = {}
USES: Final = OF_SIMULATION - {"duration_s"} | {"trace", "load"}
TRACE_GROUP: Final = "all"
TRACE_LENGTH_S: Final = 60.0
MAX_RUN_SHARE: Final = 0.1


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return one run per strategy on the trace at PATH; only the given one if given."""
    if not parameters.trace:
        raise InvalidInput("which trace? parsync simulate trace FILE")
    rows = read_trace(Path(parameters.trace))
    if "slots" not in chosen:
        parameters = parameters.with_(slots=_enough(rows, parameters))
    strategies = (
        [parameters.strategy] if "strategy" in chosen else [s for s in SimStrategy if s.in_paper]
    )
    return [SimRun(s.value, play, parameters.with_(strategy=s), (rows,)) for s in strategies]


def play(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    rows: Sequence[TraceRow],
) -> RunFigures:
    """Play one minute of virtual time."""
    arrivals_seed, simulation_seed = dice.spawn(2)
    length_s = TRACE_LENGTH_S * parameters.length
    arrivals = compress(rows, parameters, length_s, np.random.default_rng(arrivals_seed))
    simulation = Simulation(
        parameters,
        [SchedulerGroup(TRACE_GROUP, parameters.schedulers)],
        [Listed(arrivals)],
        simulation_seed,
    )
    measure = simulation.run(length_s, progress)
    return RunFigures(
        measure.series(),
        measure.summary([Phase("all", length_s, (parameters.load,))]),
        measure.placements,
    )


def compress(
    rows: Sequence[TraceRow], parameters: Parameters, length_s: float, rng: np.random.Generator
) -> list[Arrival]:
    """Draw the tasks of a run of `length_s` seconds.

    Slots and schedulers both have a load; the load that is reached first limits the number of
    tasks.
    """
    begins_s, runs_s, counts, decided = _fitted(rows, parameters, length_s)
    busy = parameters.load * parameters.scaled_slots * length_s / float(counts @ runs_s)
    drawn = rng.binomial(counts.astype(int), min(1.0, busy, decided))
    arrivals = [
        Arrival(float(begin_s), float(max(seconds, 0.001)))
        for begin_s, seconds, count in zip(begins_s, runs_s, drawn.tolist(), strict=True)
        for _ in range(count)
    ]
    if not arrivals:
        raise InvalidInput(
            "at this scale and load not one task of the trace is left: take a larger scale"
        )
    return arrivals


def _fitted(
    rows: Sequence[TraceRow], parameters: Parameters, length_s: float
) -> tuple[Floats, Floats, Floats, float]:
    """Return the rows fitted into `length_s`, and the share that loads the schedulers.

    Returns (begins, running times, instances, share).
    """
    first_s = rows[0].at_s
    factor = length_s / max(rows[-1].at_s - first_s, 1.0)
    begins_s = (np.array([row.at_s for row in rows]) - first_s) * factor
    runs_s = np.minimum(np.array([row.runs_s for row in rows]) * factor, MAX_RUN_SHARE * length_s)
    counts = np.array([row.instances for row in rows], dtype=float)
    decided = (
        parameters.load
        * parameters.decisions
        * parameters.schedulers
        * length_s
        / float(counts.sum())
    )
    return begins_s, runs_s, counts, decided


def _enough(rows: Sequence[TraceRow], parameters: Parameters) -> int:
    """Return the slots, at scale 1, that the drawn tasks keep busy to the load."""
    length_s = TRACE_LENGTH_S * parameters.length
    _, runs_s, counts, decided = _fitted(rows, parameters, length_s)
    busy = min(1.0, decided) * float(counts @ runs_s) / length_s
    least = parameters.partitions * SIM_NODE_SLOTS / parameters.scale
    return min(10**7, max(round(busy / parameters.load / parameters.scale), math.ceil(least)))


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check that the claims about strategies hold under a real load."""
    if not {"latency", "quality"} <= set(series):
        return []

    def of(name: str, metric: str) -> float | None:
        value: float | None = summary[name]["all"][TRACE_GROUP][metric]["mean"]
        return value

    return [
        below(
            "trace.conflicts",
            "latency-first / quality-first: conflicts of the claims",
            "less than 1",
            1.0,
            ratio(of("latency", "conflict_fraction"), of("quality", "conflict_fraction")),
        ),
        below(
            "trace.delay",
            "latency-first / quality-first: mean delay",
            "less than 1",
            1.0,
            ratio(of("latency", "delay_mean_s"), of("quality", "delay_mean_s")),
        ),
        above(
            "trace.score",
            "quality-first less latency-first: mean score",
            "more than 0",
            0.0,
            difference(of("quality", "score_mean"), of("latency", "score_mean")),
        ),
    ]


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw arrivals, placements, delay, utilisation and score over time, one line per strategy."""
    axes = figure.subplots(2, 2, sharex=True)
    figure.set_size_inches(11, 7)
    for name, groups in series.items():
        table = groups[TRACE_GROUP]
        colour = COLOURS.get(name, "black")
        line(axes[0][0], table["delay_p50_s"], f"{name}, p50", colour)
        line(axes[0][0], table["delay_p99_s"], f"{name}, p99", colour, ":")
        line(axes[0][1], table["score_mean"], name, colour)
        line(
            axes[1][0],
            [None if v is None else 100 * v for v in table["conflict_fraction"]],
            name,
            colour,
        )
        busy = total(groups, "utilisation")["utilisation"]
        line(axes[1][1], [None if value is None else 100 * value for value in busy], name, colour)
    axes[0][0].set_yscale("log")
    labels = (
        "scheduling delay, s",
        "mean score of placements",
        "conflicts, % of the claims",
        "utilisation, %",
    )
    for axis, label in zip(axes.flat, labels, strict=True):
        axis.set_ylabel(label)
    for axis in axes[1]:
        axis.set_xlabel("compressed time, s")
    finish_axes(*axes.flat)

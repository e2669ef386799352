"""Experiment 2: ParSync with each strategy against StateSync, over five phases of load.

StateSync reads the whole state once a gap, each scheduler at its own tick, and samples the whole
view by score, as quality-first does. The loads are shares of the load that the schedulers can
decide.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from ..claims import ClaimCheck, about, above, difference, mean_over, ratio, slope, total
from ..parameters import OF_SIMULATION, Parameters, Phase, SchedulerGroup, SimStrategy, Sync
from ..plots import COLOURS, finish_axes, line
from ..runs import SimRun, run_phases

TITLE = "ParSync with three strategies against StateSync (the paper's experiment 2)"
DEFAULTS: Final[Mapping[str, Any]] = {}
USES: Final = OF_SIMULATION
LOADS: Final = (0.5, 0.8, 0.95, 0.8, 0.5)
ONLY_GROUP: Final = "all"
RUN_ORDER: Final = ("latency", "adaptive", "quality", "statesync")


def phases(parameters: Parameters) -> list[Phase]:
    """Return the five phases, of a minute each."""
    return [
        Phase(f"phase {i + 1}: {load:.0%}", 60 * parameters.length, (load,))
        for i, load in enumerate(LOADS)
    ]


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return one run per strategy, and StateSync; only the given one if given."""
    modes = {name: parameters.with_(strategy=SimStrategy(name)) for name in RUN_ORDER[:3]}
    modes["statesync"] = parameters.with_(strategy=SimStrategy.QUALITY, sync=Sync.STATE)
    if "strategy" in chosen or "sync" in chosen:
        modes = {f"{parameters.strategy}, {parameters.sync}": parameters}
    groups = (SchedulerGroup(ONLY_GROUP, parameters.schedulers),)
    return [
        SimRun(name, run_phases, mode, (groups, phases(parameters))) for name, mode in modes.items()
    ]


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check the order of delays, StateSync's loss of control, and the load's effect on scores."""
    if set(series) != set(RUN_ORDER):
        return []
    length_s = 60 * parameters.length
    delay = {
        name: mean_over(groups[ONLY_GROUP], "delay_mean_s", 0, 5 * length_s)
        for name, groups in series.items()
    }
    claim_checks = []
    for faster, slower in pairwise(RUN_ORDER):
        times = ratio(delay[slower], delay[faster])
        claim_checks.append(
            above(
                f"order.{faster}",
                f"mean delay of {slower} / that of {faster}",
                "more than 1",
                1.0,
                times,
            )
        )
    growth = slope(series["statesync"][ONLY_GROUP], "delay_p50_s", 2 * length_s, 3 * length_s)
    claim_checks.append(
        above(
            "statesync.growth",
            "StateSync at 95 % load: growth of the delay, s/s",
            "out of control",
            0.05,
            growth,
        )
    )
    score = {
        name: [_score(series[name], i, length_s) for i in range(len(LOADS))] for name in RUN_ORDER
    }
    for name in ("latency", "adaptive"):
        fall = difference(score[name][0], score[name][2])
        claim_checks.append(
            above(
                f"score.{name}",
                f"mean score of {name} falls from 50 % to 95 % load by",
                "visibly",
                0.2,
                fall,
            )
        )
    less = difference(score["quality"][2], score["statesync"][2])
    claim_checks.append(
        about(
            "score.quality",
            "mean score of quality less that of StateSync at 95 % load",
            0.0,
            less,
            0.1,
        )
    )
    return claim_checks


def _score(groups: Mapping[str, Any], phase: int, length_s: float) -> float | None:
    return mean_over(
        groups[ONLY_GROUP], "score_mean", (phase + 0.25) * length_s, (phase + 1) * length_s
    )


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw delay, score, conflicts and utilisation over time, with a line per system."""
    axes = figure.subplots(2, 2, sharex=True)
    figure.set_size_inches(11, 7)
    for name, groups in series.items():
        table = groups[ONLY_GROUP]
        colour = COLOURS.get(name, "black")
        line(axes[0][0], table["delay_mean_s"], name, colour)
        line(axes[0][1], table["score_mean"], name, colour)
        line(
            axes[1][0],
            [None if v is None else 100 * v for v in table["conflict_fraction"]],
            name,
            colour,
        )
        utilisation = total(groups, "utilisation")["utilisation"]
        line(
            axes[1][1],
            [None if value is None else 100 * value for value in utilisation],
            name,
            colour,
        )
    axes[0][0].set_yscale("log")
    labels = (
        "mean scheduling delay, s",
        "mean score of placements",
        "conflicts, % of the claims",
        "utilisation, %",
    )
    for axis, label in zip(axes.flat, labels, strict=True):
        axis.set_ylabel(label)
        for i in range(1, len(LOADS)):
            axis.axvline(i * 60 * parameters.length, color="0.85", linewidth=1, zorder=0)
    for axis in axes[1]:
        axis.set_xlabel("time, s (load " + ", ".join(f"{load:.0%}" for load in LOADS) + ")")
    finish_axes(*axes.flat)

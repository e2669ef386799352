"""Unequal nodes: tasks of many names on three classes of nodes, by score and by learnt run times.

The speeds are those of Gavel's 26 job types on three GPU types, or drawn ones without a trace. A
third of the slots is of each class. Each task is of a random name, and runs for `--duration` on the
class on which its name runs fastest, give or take half of it. In a batch all tasks come at once;
else they come at random, at a part of the rate that the slots could do at best.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..claims import ClaimCheck, below, ratio
from ..parameters import OF_ALL, Parameters
from ..runs import RunFigures, SimRun
from ..simulation import Progress
from ..tenant_simulation import TenantTask
from ..throughputs import (
    GPU_CLASSES,
    Throughputs,
    draw_throughputs,
    least_makespan_s,
    read_throughputs,
)
from ..unequal_simulation import POOL_NODE_SLOTS, NodePool, UnequalSimulation

TITLE = "Unequal nodes: 2,000 tasks of 26 names on three classes of nodes"
DEFAULTS: Final[Mapping[str, Any]] = {
    "schedulers": 4,
    "partitions": 8,
    "slots": 108,
    "duration_s": 60.0,
}
USES: Final = OF_ALL - {"scale"} | {
    "schedulers",
    "partitions",
    "gap_s",
    "slots",
    "duration_s",
    "length",
    "trace",
}
UNEQUAL_TASKS: Final = 2000
UNEQUAL_STEP_S: Final = 0.05
ALL_AT_ONCE: Final = "batch"
ARRIVALS: Final = (ALL_AT_ONCE, "1.0", "0.8", "0.6")
"""All tasks at once, or the part of the best rate at which they come."""
FAST_KNOWN: Final = "fast, known"
"""`fast`, where the run times are known at the beginning; else they are learnt as tasks end."""
COMPARED_WISHES: Final = ("score", "fast", "fast,score", FAST_KNOWN)
SPREAD: Final = 0.5
"""A run differs by this part of `--duration` at most."""


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return a run for each pattern of arrivals and each list of preferences, of the same tasks."""
    table = read_throughputs(Path(parameters.trace)) if parameters.trace else None
    return [
        SimRun(f"{wish} at {arrivals}", play, parameters, (table, arrivals, wish))
        for arrivals in ARRIVALS
        for wish in COMPARED_WISHES
    ]


def speeds_of(throughputs: Throughputs) -> Throughputs:
    """Return the speed of each name on each class: 1 on the fastest."""
    return {name: tuple(s / max(steps) for s in steps) for name, steps in throughputs.items()}


def play(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    table: Throughputs | None,
    arrivals: str,
    wish: str,
) -> RunFigures:
    """Play the tasks until all have ended."""
    tasks_seed, table_seed, simulation_seed = dice.spawn(3)
    speeds = speeds_of(table or draw_throughputs(np.random.default_rng(table_seed)))
    nodes = max(1, parameters.scaled_slots // (POOL_NODE_SLOTS * len(GPU_CLASSES)))
    pools = [
        NodePool(gpu, nodes, 1.0 + number, {name: of[number] for name, of in speeds.items()})
        for number, gpu in enumerate(GPU_CLASSES)
    ]
    slots = [pool.nodes * POOL_NODE_SLOTS for pool in pools]
    rng = np.random.default_rng(tasks_seed)
    names = rng.choice(sorted(speeds), max(1, round(UNEQUAL_TASKS * parameters.length))).tolist()
    runs_s = parameters.duration_s * rng.uniform(1 - SPREAD, 1 + SPREAD, len(names))
    work_s: dict[str, float] = defaultdict(float)
    for name, run_s in zip(names, runs_s.tolist(), strict=True):
        work_s[name] += run_s
    least_s = least_makespan_s(work_s, speeds, slots)
    times_s = np.zeros(len(names))
    if arrivals != ALL_AT_ONCE:
        times_s = np.cumsum(rng.exponential(least_s / float(arrivals) / len(names), len(names)))
    tasks = [
        TenantTask(at_s, "", run_s, name=name)
        for at_s, run_s, name in zip(times_s.tolist(), runs_s.tolist(), names, strict=True)
    ]
    prefer = "fast" if wish == FAST_KNOWN else wish
    simulation = UnequalSimulation(
        parameters, tasks, simulation_seed, UNEQUAL_STEP_S, pools, prefer, books=False
    )
    if wish == FAST_KNOWN:
        simulation.know(parameters.duration_s)
    measure = simulation.run(progress)
    waits_s = [wait_s for _, wait_s in measure.waits_s[""]]
    makespan_s = measure.ends_s[""] - tasks[0].at_s
    bound_s = max(least_s, float(np.max(times_s + runs_s)) - tasks[0].at_s)
    counters = [core.counters for core in simulation.cores]
    summary = {
        "makespan_s": makespan_s,
        "of_bound": makespan_s / bound_s,
        "mean_time_s": float(np.mean(waits_s) + np.mean(simulation.runs_s)),
        "mean_wait_s": float(np.mean(waits_s)),
        "longest_wait_s": max(waits_s),
        "mean_run_s": float(np.mean(simulation.runs_s)),
        "lost_claims": sum(c.conflicts for c in counters) / sum(c.claims for c in counters),
    }
    return RunFigures({}, summary, measure.placements)


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check the bar of the makespan, `fast` against `score`, and the mean time of a task."""

    def of(wish: str, arrivals: str, figure: str) -> float:
        return float(summary[f"{wish} at {arrivals}"][figure]["mean"])

    return [
        below(
            f"{figure}.{wish}.{arrivals}",
            f"{arrivals}: {shown}, {wish} / score",
            "0.7",
            0.8,
            ratio(of(wish, arrivals, figure), of("score", arrivals, figure)),
            LAST_TASKS if figure == "makespan_s" else FEW_WAIT,
        )
        for arrivals in ARRIVALS
        for wish in ("fast", FAST_KNOWN)
        for figure, shown in (("makespan_s", "makespan"), ("mean_time_s", "mean time of a task"))
    ]


LAST_TASKS: Final = (
    "a task never waits for a fast node that is busy, so one of the last tasks may run on a slow "
    "node, for up to twelve times as long, and the makespan is when that task ends"
)
FEW_WAIT: Final = (
    "from a cold start the first tasks of each name go by chance, until run times are known"
)


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw the makespans and the mean times, a group of bars for each pattern of arrivals."""
    axes = figure.subplots(1, 2, squeeze=False)[0]
    figure.set_size_inches(9, 3.2)
    places = np.arange(len(ARRIVALS))
    for axis, name, title in zip(
        axes, ("makespan_s", "mean_time_s"), ("makespan, s", "mean time of a task, s"), strict=True
    ):
        for number, wish in enumerate(COMPARED_WISHES):
            values = [summary[f"{wish} at {a}"][name]["mean"] for a in ARRIVALS]
            axis.bar(places + 0.2 * number, values, 0.2, label=wish)
        axis.set_xticks(places + 0.3, ARRIVALS)
        axis.set_title(title)
    axes[0].legend(fontsize="small")

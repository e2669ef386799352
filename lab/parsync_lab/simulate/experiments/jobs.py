"""Jobs: the jobs of a real trace share the slots, by age or as tenants.

Each job of the trace is a tenant. `--scale` is the share of the jobs that are drawn, and of the
slots: so as many jobs compete for a slot at any scale. Jobs of fewer than ten instances are drawn
whole. Of the instances of the other jobs so many are drawn that the slots are busy to `--load`.
Tasks longer than a tenth of the trace's span are cut to it: the trace has the time in which all
instances of a task ran, also if they ran one after the other. Times are those of the trace: the gap
of 20 s is 0.5 s if the trace runs 40 times faster.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from parsync_redis.errors import InvalidInput

from ..claims import ClaimCheck, above, below, ratio
from ..parameters import OF_ALL, Parameters
from ..plots import finish_axes, line
from ..runs import RunFigures, SimRun
from ..simulation import Progress
from ..tenant_simulation import TenantMeasure, TenantSimulation, TenantTask
from ..trace import TraceRow, read_trace

TITLE = "Jobs: the jobs of a real trace share the slots, by age or as tenants"
DEFAULTS: Final[Mapping[str, Any]] = {
    "schedulers": 4,
    "partitions": 8,
    "gap_s": 20.0,
    "slots": 1500,
    "load": 0.95,
}
USES: Final = OF_ALL | {"schedulers", "partitions", "gap_s", "slots", "trace", "load"}
JOB_STEP_S: Final = 1.0
"""The trace's times are whole seconds."""
SMALL_JOB: Final = 10
"""A job is small if it has fewer instances."""
JOB_ORDERS: Final = ("age", "fair")
MAX_TASK_SHARE: Final = 0.1
"""The longest run, as a share of the trace's span."""
SLOWDOWN_QUANTILES: Final = 100


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return the runs by age and by tenants, of the same tasks."""
    if not parameters.trace:
        raise InvalidInput("which trace? parsync simulate jobs FILE")
    rows = read_trace(Path(parameters.trace), of_jobs=True)
    return [SimRun(order, play, parameters, (rows, order == "fair")) for order in JOB_ORDERS]


def play(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    rows: Sequence[TraceRow],
    named: bool,
) -> RunFigures:
    """Play the drawn jobs until all have ended."""
    tasks_seed, simulation_seed = dice.spawn(2)
    jobs = draw_jobs(rows, parameters, np.random.default_rng(tasks_seed))
    tasks = [task for tasks_of_job in jobs.values() for task in tasks_of_job]
    simulation = TenantSimulation(parameters, tasks, simulation_seed, JOB_STEP_S, named)
    measure = simulation.run(progress)
    instances: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        instances[row.job] += row.instances
    slowdowns: dict[str, list[float]] = {"small": [], "large": []}
    for job, tasks_of_job in jobs.items():
        size = "small" if instances[job] < SMALL_JOB else "large"
        slowdowns[size].append(slowdown(tasks_of_job, measure))
    steps = np.linspace(0, 1, SLOWDOWN_QUANTILES + 1)
    series = {
        size: np.quantile(values, steps).tolist() for size, values in slowdowns.items() if values
    }
    return RunFigures(series, _summary(tasks, slowdowns, measure, parameters), measure.placements)


def draw_jobs(
    rows: Sequence[TraceRow], parameters: Parameters, rng: np.random.Generator
) -> dict[str, list[TenantTask]]:
    """Return the tasks of each job, drawn from the rows of a trace."""
    rows_of_jobs: dict[str, list[TraceRow]] = {}
    for row in rows:
        rows_of_jobs.setdefault(row.job, []).append(row)
    drawn = [job for job in rows_of_jobs if rng.random() < parameters.scale]
    large = [job for job in drawn if sum(row.instances for row in rows_of_jobs[job]) >= SMALL_JOB]
    first_s = rows[0].at_s
    span_s = rows[-1].at_s - first_s
    longest_s = MAX_TASK_SHARE * span_s
    work_s = sum(
        row.instances * min(row.runs_s, longest_s) for job in large for row in rows_of_jobs[job]
    )
    wanted_s = parameters.load * parameters.scaled_slots * span_s
    if not 0 < wanted_s <= work_s:
        raise InvalidInput(
            "the trace's jobs of ten and more instances do not keep the slots busy to the load: "
            "take fewer --slots, or a larger --scale"
        )
    shares = dict.fromkeys(large, wanted_s / work_s)
    jobs: dict[str, list[TenantTask]] = {}
    for job in drawn:
        tasks = [
            TenantTask(row.at_s - first_s, job, min(row.runs_s, longest_s))
            for row in rows_of_jobs[job]
            for _ in range(int(row.instances * shares.get(job, 1.0) + rng.random()))
        ]
        if tasks:
            jobs[job] = tasks
    return jobs


def slowdown(tasks: Sequence[TenantTask], measure: TenantMeasure) -> float:
    """Return how many times longer a job took than without a wait."""
    begin_s = min(task.at_s for task in tasks)
    alone_s = max(task.at_s + task.runs_s for task in tasks) - begin_s
    return (measure.ends_s[tasks[0].tenant] - begin_s) / alone_s


def used(measure: TenantMeasure, begin_s: float, end_s: float) -> float:
    """Return the mean number of slots that tasks held between two times."""
    in_use = [(at_s, sum(slots.values())) for at_s, slots in measure.slots_held if at_s < end_s]
    times_s = np.array([begin_s, *(at_s for at_s, _ in in_use), end_s])
    slots = np.array([0, *(count for _, count in in_use)])
    return float(slots @ np.diff(times_s)) / (end_s - begin_s)


def _summary(
    tasks: Sequence[TenantTask],
    slowdowns: Mapping[str, Sequence[float]],
    measure: TenantMeasure,
    parameters: Parameters,
) -> dict[str, float]:
    """Return the figures of a run."""
    waits_s = [wait_s for waits in measure.waits_s.values() for _, wait_s in waits]
    begin_s = min(task.at_s for task in tasks)
    last_s = max(task.at_s for task in tasks)
    work_s = sum(task.runs_s for task in tasks)
    summary = {
        "instances": len(tasks),
        "load": work_s / (parameters.scaled_slots * (last_s - begin_s)),
        "used": used(measure, begin_s, last_s) / parameters.scaled_slots,
        "makespan_s": max(measure.ends_s.values()) - begin_s,
        "waited": float(np.mean(np.array(waits_s) > 0)),
    }
    for size, values in slowdowns.items():
        summary[f"{size}_jobs"] = len(values)
        if values:
            summary[f"{size}_mean"] = float(np.mean(values))
            summary[f"{size}_p50"] = float(np.quantile(values, 0.5))
            summary[f"{size}_p99"] = float(np.quantile(values, 0.99))
    return summary


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check the bars: the slowdown of small jobs by age against that of tenants, the makespan."""

    def of(order: str, figure: str) -> float | None:
        value = summary[order].get(figure)
        return None if value is None else value["mean"]

    return [
        above(
            "jobs.slowdown",
            "mean slowdown of jobs below 10 instances, age / fair",
            "5",
            3.0,
            ratio(of("age", "small_mean"), of("fair", "small_mean")),
        ),
        below(
            "jobs.makespan",
            "makespan, fair / age",
            "1",
            1.03,
            ratio(of("fair", "makespan_s"), of("age", "makespan_s")),
        ),
    ]


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw the slowdown of the jobs of each size, from the least to the largest."""
    axes = figure.subplots(1, 2, squeeze=False, sharey=True)[0]
    figure.set_size_inches(9, 3.2)
    titles = {"small": "jobs below 10 instances", "large": "jobs of 10 and more instances"}
    for axis, (size, title) in zip(axes, titles.items(), strict=True):
        for order, colour in zip(JOB_ORDERS, ("tab:red", "tab:blue"), strict=True):
            line(axis, series[order].get(size, []), order, colour)
        finish_axes(axis)
        axis.set_title(title)
        axis.set_yscale("log")
        axis.set_xlabel("% of the jobs")
    axes[0].set_ylabel("slowdown")

"""Runs of an experiment: each depends on its seed only, so that parallel runs are reproducible."""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from .parameters import Parameters, Phase, SchedulerGroup
from .simulation import Progress, Simulation
from .workload import Load, Poisson, phase_rates

PROGRESS_POLL_S: Final = 0.1
_done: Any = None  # shared with the parent: how much of each run is done


@dataclass(slots=True)
class RunFigures:
    """The result of a run: `series` and `summary` are nested mappings of lists and numbers."""

    series: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    placements: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SimRun:
    """A run: `work(parameters, seed, progress, *args)` in its own process, with its result's name.

    used: the parameters for result.json, if they differ from `parameters`.
    """

    name: str
    work: Callable[..., RunFigures]
    parameters: Parameters
    args: tuple[Any, ...] = ()
    used: Mapping[str, Any] | None = None


def run_phases(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    groups: Sequence[SchedulerGroup],
    phases: Sequence[Phase],
) -> RunFigures:
    """Run the simulation under Poisson loads that change by phases."""
    simulation_seed, *load_seeds = dice.spawn(1 + len(groups))
    full = parameters.scaled(parameters.rate)
    loads: list[Load] = [
        Poisson(
            np.random.default_rng(seed),
            phase_rates(phases, number, full * group.schedulers / parameters.schedulers),
            parameters.duration_s,
        )
        for number, (group, seed) in enumerate(zip(groups, load_seeds, strict=True))
    ]
    measure = Simulation(parameters, groups, loads, simulation_seed).run(
        sum(phase.length_s for phase in phases), progress
    )
    return RunFigures(measure.series(), measure.summary(phases), measure.placements)


def carry_out(
    runs: Sequence[SimRun], seeds: Sequence[int], jobs: int, tell: Progress
) -> list[list[RunFigures]]:
    """Return each run's result with each seed.

    jobs: processes at a time, by default one per core. All runs have the same seeds, so that
    compared runs have the same nodes, scores and arrivals.
    """
    work = [(run, seed) for run in runs for seed in seeds]
    jobs = min(jobs or os.cpu_count() or 1, len(work))
    if jobs == 1:
        outcomes = []
        for position, (run, seed) in enumerate(work):
            outcomes.append(_work(run, seed, partial(_share_of, tell, position, len(work))))
    else:
        outcomes = _side_by_side(work, jobs, tell)
    return [
        outcomes[position : position + len(seeds)]
        for position in range(0, len(outcomes), len(seeds))
    ]


def _side_by_side(
    work: Sequence[tuple[SimRun, int]], jobs: int, tell: Progress
) -> list[RunFigures]:
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", len(work))
    with ProcessPoolExecutor(jobs, context, _share, (shares,)) as pool:
        futures: list[Future[RunFigures]] = [
            pool.submit(_work_and_tell, run, seed, position)
            for position, (run, seed) in enumerate(work)
        ]
        pending = set(futures)
        try:
            while pending:
                _, pending = wait(pending, PROGRESS_POLL_S, FIRST_COMPLETED)
                tell(float(np.mean(shares[:])))
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _share_of(tell: Progress, position: int, runs: int, done: float) -> None:
    tell((position + done) / runs)


def _share(shares: Any) -> None:
    global _done
    _done = shares


def _work_and_tell(run: SimRun, seed: int, position: int) -> RunFigures:
    def tell(done: float) -> None:
        _done[position] = done

    outcome = _work(run, seed, tell)
    tell(1.0)
    return outcome


def _work(run: SimRun, seed: int, progress: Progress) -> RunFigures:
    """Play one run without garbage collection.

    A run makes no cycles, and a scan of 100,000 tasks is slow.
    """
    enabled = gc.isenabled()
    begun_s = time.process_time()
    gc.disable()
    try:
        outcome = run.work(run.parameters, np.random.SeedSequence(seed), progress, *run.args)
        outcome.cpu_s = time.process_time() - begun_s
        return outcome
    finally:
        if enabled:
            gc.enable()


def merge(nested: Sequence[Any]) -> Any:
    """Return the mean of equally nested numbers, leaf by leaf; None if any leaf is None."""
    first = nested[0]
    if isinstance(first, Mapping):
        return {key: merge([mapping[key] for mapping in nested]) for key in first}
    if isinstance(first, (list, tuple)):
        return [merge(row) for row in zip(*nested, strict=False)]
    if isinstance(first, str):
        return first
    return None if None in nested else tidy(sum(nested) / len(nested))


def merge_with_interval(nested: Sequence[Any]) -> Any:
    """Return the same as `merge`, but each leaf as {mean, ci95}.

    ci95: half the width of the 95 % interval of the mean; None for one run.
    """
    first = nested[0]
    if isinstance(first, Mapping):
        return {key: merge_with_interval([mapping[key] for mapping in nested]) for key in first}
    half = None
    if len(nested) > 1 and None not in nested:
        spread = float(np.std(nested, ddof=1)) / len(nested) ** 0.5
        half = tidy(STUDENT[min(len(nested) - 1, len(STUDENT) - 1)] * spread)
    return {"mean": merge(nested), "ci95": half}


STUDENT: Final = (
    0.0,
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.2,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.1,
    2.09,
    2.09,
    2.08,
    2.07,
    2.07,
    2.06,
    2.06,
    2.06,
    2.05,
    2.05,
    2.05,
    1.96,
)
"""The two-sided 95 % quantile of Student's t, by degrees of freedom.

From 30 degrees on it is that of the normal distribution.
"""


def tidy(value: float) -> float:
    """Return a number with six significant digits; whole numbers stay whole."""
    short = float(f"{value:.6g}")
    return int(short) if short == int(short) and isinstance(value, int) else short

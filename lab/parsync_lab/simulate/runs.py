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

from .parameters import Group, Parameters, Phase
from .simulation import Progress, Simulation
from .workload import Load, Poisson, phase_rates

POLL_S: Final = 0.1
_done: Any = None  # shared with the parent: how much of each run is done


@dataclass(slots=True)
class Found:
    """The result of a run: `series` and `summary` are nested mappings of lists and numbers."""

    series: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    placements: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SimRun:
    """One run: `work(parameters, seed, progress, *args)` in a process of its own; its result goes
    under `name`.

    used: what it uses, for result.json, where that is not what the parameters say.
    """

    name: str
    work: Callable[..., Found]
    parameters: Parameters
    args: tuple[Any, ...] = ()
    used: Mapping[str, Any] | None = None


def run_phases(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    groups: Sequence[Group],
    phases: Sequence[Phase],
) -> Found:
    """Run the simulation under Poisson loads that change by phases."""
    own, *of_load = dice.spawn(1 + len(groups))
    full = parameters.scaled(parameters.rate)
    loads: list[Load] = [
        Poisson(
            np.random.default_rng(seed),
            phase_rates(phases, number, full * group.schedulers / parameters.schedulers),
            parameters.duration_s,
        )
        for number, (group, seed) in enumerate(zip(groups, of_load, strict=True))
    ]
    measure = Simulation(parameters, groups, loads, own).run(
        sum(phase.length_s for phase in phases), progress
    )
    return Found(measure.series(), measure.summary(phases), measure.placements)


def carry_out(
    runs: Sequence[SimRun], seeds: Sequence[int], jobs: int, tell: Progress
) -> list[list[Found]]:
    """Return each run's result with each seed; `jobs` processes at a time, by default one per core.

    All runs have the same seeds: what is compared has the same nodes, with the same scores, and the
    same arrivals.
    """
    work = [(run, seed) for run in runs for seed in seeds]
    jobs = min(jobs or os.cpu_count() or 1, len(work))
    if jobs == 1:
        found = []
        for at, (run, seed) in enumerate(work):
            found.append(_work(run, seed, partial(_share_of, tell, at, len(work))))
    else:
        found = _side_by_side(work, jobs, tell)
    return [found[at : at + len(seeds)] for at in range(0, len(found), len(seeds))]


def _side_by_side(work: Sequence[tuple[SimRun, int]], jobs: int, tell: Progress) -> list[Found]:
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", len(work))
    with ProcessPoolExecutor(jobs, context, _share, (shares,)) as pool:
        futures: list[Future[Found]] = [
            pool.submit(_work_and_tell, run, seed, at) for at, (run, seed) in enumerate(work)
        ]
        left = set(futures)
        try:
            while left:
                _, left = wait(left, POLL_S, FIRST_COMPLETED)
                tell(float(np.mean(shares[:])))
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _share_of(tell: Progress, at: int, runs: int, done: float) -> None:
    tell((at + done) / runs)


def _share(shares: Any) -> None:
    global _done
    _done = shares


def _work_and_tell(run: SimRun, seed: int, at: int) -> Found:
    def tell(done: float) -> None:
        _done[at] = done

    found = _work(run, seed, tell)
    tell(1.0)
    return found


def _work(run: SimRun, seed: int, progress: Progress) -> Found:
    """Play one run without garbage collection: it makes no cycles, and a scan of 100,000 tasks is
    slow.
    """
    enabled = gc.isenabled()
    begun_s = time.process_time()
    gc.disable()
    try:
        found = run.work(run.parameters, np.random.SeedSequence(seed), progress, *run.args)
        found.cpu_s = time.process_time() - begun_s
        return found
    finally:
        if enabled:
            gc.enable()


def merge(found: Sequence[Any]) -> Any:
    """Return the mean of equally nested numbers, leaf by leaf; None if any leaf is None."""
    first = found[0]
    if isinstance(first, Mapping):
        return {key: merge([one[key] for one in found]) for key in first}
    if isinstance(first, (list, tuple)):
        return [merge(row) for row in zip(*found, strict=False)]
    if isinstance(first, str):
        return first
    return None if None in found else tidy(sum(found) / len(found))


def merge_with_interval(found: Sequence[Any]) -> Any:
    """Like `merge`, each leaf as {mean, ci95}: half the width of the 95 % interval of the mean,
    None for one run.
    """
    first = found[0]
    if isinstance(first, Mapping):
        return {key: merge_with_interval([one[key] for one in found]) for key in first}
    half = None
    if len(found) > 1 and None not in found:
        spread = float(np.std(found, ddof=1)) / len(found) ** 0.5
        half = tidy(STUDENT[min(len(found) - 1, len(STUDENT) - 1)] * spread)
    return {"mean": merge(found), "ci95": half}


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
"""The two-sided 95 % quantile of Student's t by degrees of freedom; from 30 on that of the normal
distribution.
"""


def tidy(value: float) -> float:
    """Six significant digits; whole numbers stay whole."""
    short = float(f"{value:.6g}")
    return int(short) if short == int(short) and isinstance(value, int) else short

"""Staleness of the views: its mean and range, what is read when, and how many bytes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..claims import ClaimCheck, about, below
from ..parameters import OF_SIMULATION, Parameters, SchedulerGroup, Sync
from ..plots import finish_axes, line
from ..runs import RunFigures, SimRun
from ..simulation import Progress, Simulation
from ..workload import Poisson

TITLE = "Staleness: mean G/2, range G(n-1)/2n to G(n+1)/2n with n rounds a gap"
DEFAULTS: Final[Mapping[str, Any]] = {"schedulers": 1}
USES: Final = OF_SIMULATION - {"length", "prefer"}
STALENESS_SCHEDULERS: Final = (1, 2, 4, 10, 20)
GAPS: Final = 8
STALENESS_LOAD: Final = 0.5


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return runs of several numbers of schedulers, and StateSync; only the given ones if given."""
    members = [n for n in STALENESS_SCHEDULERS if n <= parameters.partitions]
    if "schedulers" in chosen:
        members = [parameters.schedulers]
    simulation_runs = [SimRun(f"N={n}", play, parameters.with_(schedulers=n)) for n in members]
    if "sync" not in chosen:
        simulation_runs.append(
            SimRun("StateSync", play, parameters.with_(schedulers=max(members), sync=Sync.STATE))
        )
    return simulation_runs


def play(parameters: Parameters, dice: np.random.SeedSequence, progress: Progress) -> RunFigures:
    """Play some gaps at half load; record one scheduler's view before and after each read."""
    load_seed, simulation_seed = dice.spawn(2)
    rate = STALENESS_LOAD * parameters.scaled(parameters.rate)
    arrivals = Poisson(np.random.default_rng(load_seed), [(0.0, rate)], parameters.duration_s)
    simulation = Simulation(
        parameters, [SchedulerGroup("all", parameters.schedulers)], [arrivals], simulation_seed
    )
    n = parameters.schedulers
    first = simulation.schedulers[0]
    ages: list[list[float]] = []
    disjoint = True
    covered = True
    read_partitions = [set[int]() for _ in simulation.schedulers]
    read_bytes = []
    for tick in range(1, GAPS * n + 1):
        before_s = tick * parameters.tick_s
        old = [before_s - p.read_s for p in first.core.view.partitions]
        simulation.tick(tick)
        new = [before_s - p.read_s for p in first.core.view.partitions]
        if tick > n:
            ages += [[float(np.mean(old)), float(np.mean(new)), max(old)]]
            read_bytes.append(first.read_bytes)
        reads = [scheduler.read for scheduler in simulation.schedulers]
        disjoint &= sum(map(len, reads)) == len({p for turn in reads for p in turn})
        for partitions, turn in zip(read_partitions, reads, strict=True):
            partitions.update(turn)
        if tick % n == 0:
            covered &= all(
                len(partitions) == parameters.partitions for partitions in read_partitions
            )
            read_partitions = [set() for _ in read_partitions]
        progress(tick / (GAPS * n))
    table = np.array(ages)
    summary = {
        "mean_s": float(table[:, :2].mean()),
        "low_s": float(table[:, 1].min()),
        "high_s": float(table[:, 0].max()),
        "oldest_s": float(table[:, 2].max()),
        "disjoint": int(disjoint),
        "covered": int(covered),
        "bytes_per_gap": sum(read_bytes) / (GAPS - 1),
        "bytes_peak": max(read_bytes),
    }
    series = {
        "before_s": table[:, 0].tolist(),
        "after_s": table[:, 1].tolist(),
        "tick_s": parameters.tick_s,
    }
    return RunFigures(series, summary, simulation.measure.placements)


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check the claims for each number of schedulers."""
    claim_checks = []
    gap_s = parameters.gap_s
    for name, figures in summary.items():
        if not name.startswith("N="):
            continue
        n = int(name[2:])
        means = {key: value["mean"] for key, value in figures.items()}
        tick_s = gap_s / n
        claim_checks += [
            about(
                f"mean.{n}",
                f"{name}: mean staleness, s",
                gap_s / 2,
                means["mean_s"],
                0.05 * gap_s / 2,
            ),
            about(
                f"low.{n}",
                f"{name}: the least mean over the partitions, s",
                gap_s * (n - 1) / (2 * n),
                means["low_s"],
                tick_s,
            ),
            about(
                f"high.{n}",
                f"{name}: the largest mean over the partitions, s",
                gap_s * (n + 1) / (2 * n),
                means["high_s"],
                tick_s,
            ),
            below(
                f"oldest.{n}",
                f"{name}: the oldest partition, s",
                f"{gap_s:g}",
                gap_s + tick_s,
                means["oldest_s"],
            ),
            about(
                f"disjoint.{n}",
                f"{name}: no two schedulers read a partition at the same tick",
                1,
                means["disjoint"],
                0,
            ),
            about(f"covered.{n}", f"{name}: N ticks cover all partitions", 1, means["covered"], 0),
        ]
        if name != "StateSync" and "StateSync" in summary:
            whole = summary["StateSync"]
            claim_checks.append(
                about(
                    f"bytes.{n}",
                    f"{name}: bytes read a gap / those of the whole state",
                    1,
                    means["bytes_per_gap"] / whole["bytes_per_gap"]["mean"],
                    0.05,
                )
            )
            share = -(-parameters.partitions // n) / parameters.partitions
            claim_checks.append(
                about(
                    f"peak.{n}",
                    f"{name}: the most bytes of a tick / those of the whole state",
                    round(share, 4),
                    means["bytes_peak"] / whole["bytes_peak"]["mean"],
                    0.05 * share,
                )
            )
    return claim_checks


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw the mean staleness of one view over time: a saw with smaller teeth for more rounds."""
    axes = figure.subplots(1, len(series), sharey=True, squeeze=False)[0]
    figure.set_size_inches(2.6 * len(series) + 0.6, 3.4)
    for axis, (name, table) in zip(axes, series.items(), strict=True):
        times = []
        values = []
        for i, (before_s, after_s) in enumerate(
            zip(table["before_s"], table["after_s"], strict=True)
        ):
            times += [i * table["tick_s"]] * 2
            values += [before_s, after_s]
        line(axis, values, "mean over the partitions", "tab:blue", xs=times)
        axis.axhline(parameters.gap_s / 2, color="0.6", linestyle=":", label="G/2")
        axis.set_title(name)
        axis.set_xlim(0, 3 * parameters.gap_s)
        axis.set_xlabel("time, s")
    axes[0].set_ylabel("staleness, s")
    finish_axes(axes[-1])

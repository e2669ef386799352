"""The formula of conflicts, compared with a simulation of schedulers that pick at random.

N schedulers each pick K distinct slots of the same S idle slots at once:

    E[conflicts] = N K - S + S (1 - K / S)^N

Without parameters the experiment runs a few fixed cases, with parameters that one case; there a
scheduler makes K = A R G / N claims in a gap. All slots have the same score, so that the core
samples them evenly.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from parsync_redis.errors import InvalidInput
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Took
from parsync_redis.scheduler.core.core import Core
from parsync_redis.store.reference.store import Queue

from ..claims import ClaimCheck, about
from ..cluster import SimCluster
from ..modes import whole_state
from ..parameters import OF_ALL, Parameters
from ..plots import draw_bars, finish_axes
from ..runs import RunFigures, SimRun
from ..simulation import Progress

TITLE = "Conflicts of schedulers that pick at random, against the formula"
DEFAULTS: Final[Mapping[str, Any]] = {"score_variance": 0.0}
USES: Final = OF_ALL | {"schedulers", "partitions", "gap_s", "slots", "rate", "amplifier"}
CONFLICT_CASES: Final = (
    (1, 1000, 4000),
    (2, 1000, 4000),
    (10, 100, 4000),
    (20, 1000, 40_000),
    (20, 1000, 24_000),
    (80, 250, 40_000),
)
"""(N, K, S) of each case at scale 1; a smaller scale shrinks K (to 10 at least) and S."""

CONFLICT_ROUNDS: Final = 30
CASE_PARTITIONS: Final = 4


def expected(n: int, k: int, idle: int) -> float:
    """Return the conflicts per request that the formula predicts."""
    return float((n * k - idle + idle * (1 - k / idle) ** n) / (n * k))


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return one run per case."""
    cases = list(CONFLICT_CASES)
    partitions = CASE_PARTITIONS
    if set(chosen) - OF_ALL:
        cases = [own_case(parameters)]
        partitions = parameters.partitions
    simulation_runs = []
    for n, k, idle in cases:
        scale = min(1.0, max(parameters.scale, 10 / k))
        case = n, round(k * scale), round(idle * scale)
        fitted = parameters.with_(schedulers=1, partitions=partitions, slots=case[2], scale=1.0)
        used = {**fitted.only(OF_ALL | {"partitions", "slots"}), "schedulers": n, "claims": case[1]}
        simulation_runs.append(SimRun(f"N={n} K={case[1]} S={case[2]}", play, fitted, case, used))
    return simulation_runs


def own_case(parameters: Parameters) -> tuple[int, int, int]:
    """Return N, K and S of the parameters at scale 1.

    Raises InvalidInput if there are too few slots for one scheduler.
    """
    k = max(
        1, round(parameters.amplifier * parameters.rate * parameters.gap_s / parameters.schedulers)
    )
    if k > parameters.slots:
        raise InvalidInput(
            f"--slots {parameters.slots} are too few: a scheduler claims {k} of them at once "
            "(--amplifier * --rate * "
            "--gap / --schedulers), each another one"
        )
    return parameters.schedulers, k, parameters.slots


def play(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    n: int,
    k: int,
    idle: int,
) -> RunFigures:
    """Play rounds: every scheduler reads everything, then all claim in a random order.

    No scheduler learns the verdicts on its claims: each round begins anew.
    """
    rng, *scheduler_rngs = (np.random.default_rng(seed) for seed in dice.spawn(1 + n))
    cluster = SimCluster(parameters, 1, rng)
    cores = [
        Core(
            f"s{i}",
            parameters.partitions,
            Strategy.QUALITY,
            1.0,
            dice,
            turn_rule=whole_state,
            asks=False,
        )
        for i, dice in enumerate(scheduler_rngs)
    ]
    lost = []
    for number in range(CONFLICT_ROUNDS):
        lost.append(play_round(cluster, cores, k, rng))
        progress((number + 1) / CONFLICT_ROUNDS)
    fraction = [count / (n * k) for count in lost]
    summary = {
        "requests": n * k,
        "conflict_fraction": float(np.mean(fraction)),
        "formula": expected(n, k, idle),
    }
    return RunFigures({"conflict_fraction": fraction}, summary, n * k * CONFLICT_ROUNDS - sum(lost))


def play_round(cluster: SimCluster, cores: Sequence[Core], k: int, rng: np.random.Generator) -> int:
    """Return the number of lost claims, of `k` by each core; then free the slots again."""
    cluster.queues[0] = Queue(cluster.store)
    for i in range(len(cores) * k):
        cluster.submit(0, f"t{i}", 0.0)
    plans = []
    for core in cores:
        core.on_tick(0)
        while due := core.plan(place=False):
            for p in due.read_nodes:
                core.on_nodes(p, cluster.nodes[p], cluster.partitions[p].epoch)
            for p in due.read:
                core.on_snapshot(cluster.read(p, -1), 0.0)
        core.on_took(Took("1", 0, tasks=cluster.take_all(0, core.name, k)))
        plans.append(core.plan())
    lost = 0
    for i in rng.permutation(len(plans)).tolist():
        for p, claims in plans[i].commit.items():
            verdicts = cluster.commit(p, claims, 0.0)
            lost += sum(not verdict.won for verdict in verdicts)
            for claim, verdict in zip(claims, verdicts, strict=True):
                if verdict.won:
                    cluster.start(0, claim, 0.0, 0.0)
    cluster.finish_until(0.0)
    return lost


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check each case against the formula within 5 %, and one scheduler for no conflict."""
    return [
        about(
            f"formula.{i}",
            f"{name}: conflicts per request",
            round(figures["formula"]["mean"], 4),
            figures["conflict_fraction"]["mean"],
            0.05 * figures["formula"]["mean"],
        )
        for i, (name, figures) in enumerate(summary.items())
    ]


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw formula and simulation, case by case."""
    axes = figure.subplots()
    figure.set_size_inches(8, 4)
    names = [name.replace(" ", "\n") for name in summary]
    draw_bars(
        axes,
        names,
        [figures["formula"]["mean"] for figures in summary.values()],
        "0.7",
        -0.2,
        "formula",
    )
    draw_bars(
        axes,
        names,
        [figures["conflict_fraction"]["mean"] for figures in summary.values()],
        "tab:blue",
        0.2,
        "simulated",
    )
    axes.set_ylabel(f"conflicts per request, mean of {CONFLICT_ROUNDS} rounds")
    finish_axes(axes)

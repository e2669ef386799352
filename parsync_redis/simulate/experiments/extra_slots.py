"""Figure 2: how many slots more than are busy it takes, so that conflicts do not make the delay grow.

For each setting the least number of idle slots is sought with which the mean delay stays below a gap: R * d slots are
busy from the start, and the schedulers, quality-first, see what the synchronisation gives them. What the paper varies
is varied here: the rate R, the gap G, the variance V of the scores, the partitions P and the amplifier A.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...model.claim import Claim
from ..claims import Check, above, below, near
from ..parameters import Group, Parameters, SimStrategy
from ..plots import line
from ..runs import Found, Run
from ..simulation import Progress, Simulation
from ..workload import Poisson

TITLE = "Extra slots that keep the delay unchanged (the paper's figure 2)"
DEFAULTS: Final[Mapping[str, Any]] = {"amplifier": 2.0, "strategy": SimStrategy.QUALITY}
SWEEPS: Final[Mapping[str, Sequence[float]]] = {
    "rate": (10_000, 20_000, 40_000, 80_000), "gap_s": (0.125, 0.25, 0.5, 1.0), "score_variance": (0, 1, 2, 4, 8),
    "partitions": (20, 40, 80, 160), "amplifier": (1.5, 2, 3, 4, 8),
}  # fmt: skip
SHOWN: Final = {"rate": "R, tasks/s", "gap_s": "G, s", "score_variance": "V", "partitions": "P", "amplifier": "A"}
FINER: Final = 0.25
"""The share of the scale that is simulated: there are many runs, and the answer does not depend on it."""

STEPS: Final = 7
SETTLE: Final = 1.6
"""Durations of a task that a trial lasts; the delay is that of the last 0.6."""


def runs(parameters: Parameters, given: Sequence[str]) -> list[Run]:
    """A run a point of a sweep; points that are the same are run once for each sweep that has them."""
    base = parameters.with_(scale=parameters.scale * FINER)
    found = []
    for name, values in SWEEPS.items():
        for value in values:
            if name == "partitions" and value < parameters.schedulers:
                continue
            typed = int(value) if name == "partitions" else value
            found.append(Run(f"{name}={value:g}", seek, base.with_(**{name: typed}), (name, float(value))))
    return found


def seek(
    parameters: Parameters, dice: np.random.SeedSequence, progress: Progress, name: str, value: float
) -> Found:  # fmt: skip
    """The least number of extra slots, by bisection between none and 20 times those that a gap uses up."""
    low, high = 0.0, 20.0
    placements = 0
    for step in range(STEPS + 2):
        middle = (low + high) / 2 if step > 2 else high / 4  # most answers are below a quarter of the range
        steady, placed = _try(parameters, dice, middle)
        placements += placed
        low, high = (low, middle) if steady else (middle, high)
        progress((step + 1) / (STEPS + 2))
    extra = high * parameters.rate * parameters.gap_s
    return Found({"x": value, "extra": extra}, {"x": value, "extra": extra}, placements)


def _try(parameters: Parameters, dice: np.random.SeedSequence, share: float) -> tuple[bool, int]:
    """Whether the delay stays below a gap with `share` times the slots of a gap to spare; and what was placed."""
    nodes, load, own = np.random.SeedSequence(dice.entropy, spawn_key=dice.spawn_key).spawn(3)
    busy = parameters.rate * parameters.duration_s
    slots = round(busy + max(share * parameters.rate * parameters.gap_s, 1))
    sized = parameters.with_(slots=slots)
    rate = parameters.scaled(parameters.rate)
    arrivals = Poisson(np.random.default_rng(load), [(0.0, rate)], parameters.duration_s)
    simulation = Simulation(sized, [Group("all", sized.schedulers)], [arrivals], own)
    _fill(simulation, round(parameters.scaled(busy)), np.random.default_rng(nodes))
    end_s = SETTLE * parameters.duration_s
    last: list[float] = []
    for tick in range(1, round(end_s / sized.tick_s) + 1):
        simulation.tick(tick)
        if tick * sized.tick_s > parameters.duration_s:
            last.append(len(simulation.cluster.queues[0].pending) / rate)
        if last and last[-1] > 4 * parameters.gap_s:
            break  # out of hand
    return bool(np.mean(last) < parameters.gap_s), simulation.measure.placements


def _fill(simulation: Simulation, count: int, rng: np.random.Generator) -> None:
    """As many slots busy as the load keeps busy, drawn evenly, with what is left of their tasks' time."""
    cluster = simulation.cluster
    seats = [(p, node, slot) for p, nodes in enumerate(cluster.nodes) for node in nodes
             for slot in range(node.offer.slots)]  # fmt: skip
    chosen = rng.permutation(len(seats))[:count].tolist()
    for number, i in enumerate(chosen):
        p, node, slot = seats[i]
        cluster.submit(0, f"f{number}", 0.0)
        (task,) = cluster.queues[0].take_tasks("fill", 1)
        claim = Claim(task.id, task.attempt, p, node.name, node.inc, (slot,), task.needs)
        cluster.commit(p, [claim], 0.0)
        cluster.start(0, claim, 0.0, float(rng.uniform(0, simulation.parameters.duration_s)))


V_WHY: Final = (
    "by design: our dice weigh a score in standard deviations from the mean, so that only whether scores differ counts"
)


def checks(parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]) -> list[Check]:
    """The paper's three values, and which way the number goes with each parameter."""
    extra = {name: one["extra"]["mean"] for name, one in summary.items()}
    found = [
        near(f"A{value}", f"extra slots x 10,000 at A={value}", paper, extra[f"amplifier={value}"] / 1e4, 0.3 * paper,
             "how sharply the paper's schedulers prefer good slots, and so how often they collide, is not known")
        for value, paper in ((2, 3.9), (4, 2.4), (8, 2.2))
    ]  # fmt: skip
    for name, why in (("rate", ""), ("gap_s", ""), ("score_variance", V_WHY)):
        low, high = (extra[f"{name}={value:g}"] for value in (SWEEPS[name][1], SWEEPS[name][-1]))
        found.append(above(f"grows.{name}", f"extra slots at {SHOWN[name]} = {SWEEPS[name][-1]:g} / at "
                           f"{SWEEPS[name][1]:g}", "grows", 1.1, high / low, why))  # fmt: skip
    found.append(below("shrinks.amplifier", "extra slots at A = 8 / at A = 2", "0.56", 0.9,
                       extra["amplifier=8"] / extra["amplifier=2"]))  # fmt: skip
    several = [value for name, value in extra.items() if name.startswith("partitions=")]
    found.append(below("steady.partitions", "extra slots: the most / the least over P", "hardly changes", 1.25,
                       max(several) / min(several)))  # fmt: skip
    return found


def draw(figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """A panel a sweep."""
    axes = figure.subplots(1, len(SWEEPS), sharey=True)
    figure.set_size_inches(13, 3.2)
    for one, name in zip(axes, SWEEPS, strict=True):
        points = [value for key, value in series.items() if key.startswith(f"{name}=")]
        line(one, [point["extra"] / 1e4 for point in points], "", "tab:blue", "o-", [point["x"] for point in points])
        one.set_xlabel(SHOWN[name])
        one.set_ylim(bottom=0)
    axes[0].set_ylabel("extra slots, x 10,000")

"""The parameters of a simulation, checked: the paper's names, and their values at a scale."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from parsync_redis.errors import InvalidInput
from parsync_redis.model.preferences import preferences_text
from parsync_redis.placement.strategy import EMA_WEIGHT

from ..flags import check_flag

SIM_NODE_SLOTS: Final = 10
"""The number of slots of a simulated node, which have one score."""

MOST_SLOTS: Final = 10**7
MAX_SIM_SCHEDULERS: Final = 1000
LEAST_GAP_S: Final = 0.001
MOST_GAP_S: Final = 3600.0

PAPER_SHARPNESS: Final = 0.7
"""The sharpness with which the paper's experiments sample slots by score; see decision 0018."""

SIMULATED_RULES: Final = ("pack", "spread", "score", "fresh")
"""The wishes that tell simulated nodes apart."""

OF_ALL: Final = frozenset({"scale", "seed"})
OF_SIMULATION: Final = OF_ALL | {
    "schedulers",
    "partitions",
    "gap_s",
    "slots",
    "rate",
    "duration_s",
    "score_mean",
    "score_variance",
    "strategy",
    "sync",
    "tau_s",
    "ema",
    "amplifier",
    "sharpness",
    "length",
    "prefer",
}
"""Parameters of every experiment and of one run of the simulation (simulation.py)."""


class SimStrategy(StrEnum):
    """The strategies of parsync, and *quality-partition*, which takes the best partition first."""

    LATENCY = "latency"
    QUALITY = "quality"
    QUALITY_PARTITION = "quality-partition"
    ADAPTIVE = "adaptive"

    @property
    def in_paper(self) -> bool:
        """Return True if the paper's plots show the strategy."""
        return self is not SimStrategy.QUALITY_PARTITION


class Sync(StrEnum):
    """The order of reading.

    parsync: at each tick each scheduler reads partitions of its own. same: at each tick all
    schedulers read the same partitions. state: once a gap each scheduler reads all.
    """

    PARSYNC = "parsync"
    STATE = "state"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Parameters:
    """One simulated cluster; `slots` and `rate` are those at scale 1.

    schedulers N, partitions P >= N, gap_s G, slots S, rate R (tasks/s), duration_s d (how long a
    task holds its slot), amplifier A = N * K / R with K the claims that one scheduler can make in a
    second. tau_s and ema are adaptive's, sharpness the dice's (placement/strategy.py). length: the
    share of the experiment's time that is simulated. trace and load are those of a replayed trace:
    a file, and the share of slots and schedulers that is busy. prefer: the wishes of each task,
    of SIMULATED_RULES. Scaling down shrinks S, R and K
    together, and keeps R * d / S, G / d, N, P and A. Raises InvalidInput.
    """

    schedulers: int = 20
    partitions: int = 20
    gap_s: float = 0.5
    slots: int = 200_000
    rate: float = 40_000.0
    duration_s: float = 5.0
    score_mean: float = 9.5
    score_variance: float = 2.0
    strategy: SimStrategy = SimStrategy.ADAPTIVE
    sync: Sync = Sync.PARSYNC
    tau_s: float = 1.5
    ema: float = EMA_WEIGHT
    amplifier: float = 1.0
    sharpness: float = PAPER_SHARPNESS
    length: float = 1.0
    trace: str = ""
    load: float = 0.8
    scale: float = 0.1
    seed: int = 1
    prefer: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_flag(
            "--schedulers", self.schedulers, 1, MAX_SIM_SCHEDULERS, "a whole number from 1 to 1000"
        )
        check_flag("--partitions", self.partitions, 1, 4096, "a whole number from 1 to 4096")
        check_flag(
            "--gap", self.gap_s, LEAST_GAP_S, MOST_GAP_S, "a number of seconds from 0.001 to 3600"
        )
        check_flag("--slots", self.slots, 1, MOST_SLOTS, "a whole number from 1 to 10,000,000")
        check_flag(
            "--rate", self.rate, 1e-3, 10**7, "more than 0 and at most 10,000,000 tasks a second"
        )
        check_flag(
            "--duration",
            self.duration_s,
            0.001,
            10**6,
            "a number of seconds from 0.001 to 1,000,000",
        )
        check_flag("--score-mean", self.score_mean, -1e9, 1e9, "a number")
        check_flag("--score-variance", self.score_variance, 0, 1e9, "a number, 0 or more")
        check_flag("--tau", self.tau_s, 0.001, 3600, "a number of seconds from 0.001 to 3600")
        check_flag("--ema", self.ema, 1e-6, 1, "a weight above 0 and at most 1")
        check_flag("--amplifier", self.amplifier, 0.01, 1000, "from 0.01 to 1000")
        check_flag("--sharpness", self.sharpness, 0, 100, "from 0 to 100")
        check_flag("--length", self.length, 0.001, 100, "from 0.001 to 100")
        check_flag("--load", self.load, 0.001, 10, "above 0 and at most 10")
        check_flag("--scale", self.scale, 0.0001, 1, "above 0 and at most 1")
        check_flag("--seed", self.seed, 0, 2**63 - 1, "a whole number, 0 or more")
        preferences_text(self.prefer)
        for rule in self.prefer:
            if rule not in SIMULATED_RULES:
                raise InvalidInput(
                    f"--prefer {rule} has no meaning here: simulated nodes have slots and a score "
                    f"only, so the rules are {', '.join(SIMULATED_RULES)}"
                )
        if self.partitions < self.schedulers:
            raise InvalidInput(
                f"--schedulers {self.schedulers} is more than --partitions {self.partitions}: each "
                "scheduler reads "
                "other partitions at a tick, so there must be as many partitions as schedulers"
            )
        if self.scaled_slots < self.partitions * SIM_NODE_SLOTS:
            raise InvalidInput(
                f"--slots {self.slots} at --scale {self.scale:g} are {self.scaled_slots}: "
                f"{self.partitions} partitions "
                f"need {SIM_NODE_SLOTS} each, {self.partitions * SIM_NODE_SLOTS} in all; "
                "take more slots or a larger scale"
            )

    def with_(self, **changes: Any) -> "Parameters":
        """Return a checked copy with other values."""
        return replace(self, **changes)

    def only(self, names: Container[str]) -> dict[str, Any]:
        """Return the values of these parameters, by name."""
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name in names
        }

    @property
    def scaled_slots(self) -> int:
        """Return the number of simulated slots."""
        return round(self.slots * self.scale)

    @property
    def tick_s(self) -> float:
        """Return the length of a tick: N ticks per gap."""
        return self.gap_s / self.schedulers

    @property
    def decisions(self) -> float:
        """Return K at this scale: claims per second that one scheduler can make."""
        return self.amplifier * self.rate * self.scale / self.schedulers

    def scaled(self, rate: float) -> float:
        """Return a rate at this scale."""
        return rate * self.scale


@dataclass(frozen=True, slots=True)
class Phase:
    """A period of constant load.

    loads: each group's share of the load that its schedulers can decide.
    """

    name: str
    length_s: float
    loads: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SchedulerGroup:
    """A group of schedulers, which share a queue of tasks."""

    name: str
    schedulers: int


def flag_of(name: str) -> str:
    """Return the command-line flag of a parameter."""
    return "--" + name.removesuffix("_s").replace("_", "-")


def check_groups(parameters: Parameters, groups: Iterable[SchedulerGroup]) -> None:
    """Raise InvalidInput unless the groups have all schedulers together and none is empty."""
    if (
        any(group.schedulers < 1 for group in groups)
        or sum(g.schedulers for g in groups) != parameters.schedulers
    ):
        raise InvalidInput(
            f"--schedulers {parameters.schedulers} cannot be split into the groups of this "
            "experiment"
        )

"""The parameters of a placement bench, and their check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from parsync_redis.errors import InvalidInput
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import Strategy
from parsync_redis.model.preferences import preferences_text

from ..flags import check_flag
from .standins import NodePlan


class System(StrEnum):
    """The contender: parsync, parsync with whole-state reads, one script, or a queue per class."""

    PARSYNC = "parsync"
    STATE = "state"
    CENTRAL = "central"
    QUEUES = "queues"


GPUS = 5
ZONES = 5
MEMORY_SIZES = 2
MAX_TASK_KINDS = GPUS * ZONES * MEMORY_SIZES


@dataclass(frozen=True, slots=True)
class BenchParameters:
    """The parameters of a placement bench; check() raises InvalidInput.

    kinds: 1, or 50 different kinds of task on labelled nodes.
    primaries: of a cluster; 1 is a single server.
    shards: of the queue, 0 is the usual number.
    prefer: the wishes of each task.
    """

    schedulers: int = 20
    slots: int = 200_000
    partitions: int = 20
    gap_s: float = 0.5
    rate: float = 38_000.0
    duration_s: float = 5.0
    seconds: float = 30.0
    strategy: str = Strategy.LATENCY
    system: str = System.PARSYNC
    node_slots: int = 100
    agents: int = 2
    generators: int = 1
    lease_s: float = 10.0
    kinds: int = 1
    aof: bool = False
    primaries: int = 1
    shards: int = 0
    prefer: Sequence[str] = ()

    def check(self) -> None:
        """Check the values; raise InvalidInput with the wrong value and what would be right."""
        for name, least, most in (
            ("schedulers", 1, 64),
            ("slots", 1, 4_000_000),
            ("partitions", 1, 4096),
            ("gap_s", 0.01, 60),
            ("rate", 1, 1_000_000),
            ("duration_s", 0, 600),
            ("seconds", 1, 3600),
            ("node_slots", 1, 10_000),
            ("agents", 1, 64),
            ("generators", 1, 16),
            ("lease_s", 0.5, 3600),
            ("primaries", 1, 16),
            ("shards", 0, 256),
        ):
            check_flag(
                "--" + name.removesuffix("_s").replace("_", "-"), getattr(self, name), least, most
            )
        for flag, value, valid_values in (
            ("--strategy", self.strategy, list(Strategy)),
            ("--system", self.system, list(System)),
            ("--kinds", self.kinds, [1, MAX_TASK_KINDS]),
        ):
            if value not in valid_values:
                raise InvalidInput(
                    f"{flag} {value!r} is not known: known are {', '.join(map(str, valid_values))}"
                )
        if self.slots % self.node_slots:
            raise InvalidInput(
                f"--slots {self.slots} is not valid: it must be a multiple of --node-slots "
                f"{self.node_slots}"
            )
        if self.nodes < max(self.partitions, self.agents):
            raise InvalidInput(
                f"--slots {self.slots} is too few: {self.nodes} nodes of {self.node_slots} "
                "(--node-slots) must be "
                f"at least as many as --partitions {self.partitions} and --agents {self.agents}"
            )
        if self.partitions < self.schedulers:
            raise InvalidInput(
                f"--partitions {self.partitions} is too few: there must be as many as --schedulers "
                f"{self.schedulers}"
            )
        if self.primaries > 1 and self.system in (System.CENTRAL, System.QUEUES):
            raise InvalidInput(
                f"--primaries {self.primaries} does not go with --system {self.system}: it has one "
                "server"
            )
        preferences_text(self.prefer)
        if self.prefer and self.system in (System.CENTRAL, System.QUEUES):
            raise InvalidInput(
                f"--prefer {self.prefer[0]} does not go with --system {self.system}: it knows no "
                "wishes"
            )
        if self.system == System.QUEUES and self.kinds > 1:
            raise InvalidInput(
                "--kinds 50 does not go with --system queues: 50 kinds would need 50 queues, by "
                "hand"
            )

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self.slots // self.node_slots

    @property
    def load(self) -> float:
        """Return the share of the slots that the offered tasks hold."""
        return self.rate * self.duration_s / self.slots

    def node_plans(self) -> list[NodePlan]:
        """Return the nodes; scores are nearly normal (mean 9.5, variance 2).

        With 50 kinds of task the nodes have labels and amounts.
        """
        scores = np.random.default_rng(1).normal(9.5, 2**0.5, self.nodes)
        plans = []
        for number in range(self.nodes):
            labels = dict[str, str]()
            resources = dict[str, object]()
            if self.kinds > 1:
                labels = {"gpu_model": f"g{number % GPUS}", "zone": f"z{number // GPUS % ZONES}"}
                resources = {"mem": 4 * self.node_slots}
            offer = Resources.of(self.node_slots, resources, labels)
            plans.append(NodePlan(f"n{number}", offer, round(float(scores[number]), 3)))
        return plans

    def task_kinds(self) -> Sequence[Mapping[str, Any]]:
        """Return the options of each kind of task.

        They are the wishes and, with 50 kinds, a GPU model, a zone and an amount of memory.
        """
        wishes = {"prefer": [*self.prefer]} if self.prefer else {}
        if self.kinds == 1:
            return [wishes]
        return [
            {
                **wishes,
                "require": {"gpu_model": f"g{gpu}", "zone": f"z{zone}"},
                "resources": {"mem": 2 + 2 * size},
            }
            for gpu in range(GPUS)
            for zone in range(ZONES)
            for size in range(MEMORY_SIZES)
        ]

"""A simulation of nodes of unequal speed: tasks of each name run faster on some node classes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.times import MIN_CLASS_RUNS, RunTimes, field_of
from parsync_redis.scheduler.process.run_time_reader import FastReader
from parsync_redis.store.cluster import DEFAULT_LEASE_S

from .parameters import Parameters
from .tenant_simulation import TenantSimulation, TenantTask

CLASS_LABEL: Final = "gpu"
"""The label that tells the classes of the simulated nodes apart."""
POOL_NODE_SLOTS: Final = 4
"""Number of slots of a node."""


@dataclass(frozen=True, slots=True, eq=False)
class NodePool:
    """The nodes of one class.

    label: the value of their label, 'v100'.
    nodes: how many.
    score: of each, as an operator gives it.
    speeds: by name of tasks, how fast tasks run: a task that takes 60 s at speed 1 takes 120 s at
        speed 0.5.
    """

    label: str
    nodes: int
    score: float
    speeds: Mapping[str, float]

    @property
    def offer(self) -> Resources:
        """Return what a node of the pool offers."""
        return parse_needs(f"slots={POOL_NODE_SLOTS} {CLASS_LABEL}:{self.label}")


class UnequalSimulation(TenantSimulation):
    """Schedulers, and nodes of several classes.

    A task runs for `runs_s` at speed 1. The schedulers learn the run times: nothing is known at the
    beginning, unless `know` is called.

    runs_s: how long each task ran that has started.
    work_s: by tenant, the time at speed 1 of its tasks that have started.
    """

    def __init__(
        self,
        parameters: Parameters,
        tasks: Sequence[TenantTask],
        dice: np.random.SeedSequence,
        step_s: float,
        pools: Sequence[NodePool],
        prefer: str = "",
        **options: Any,
    ) -> None:
        """prefer: the soft rules of all tasks. options: of TenantSimulation."""
        super().__init__(parameters, tasks, dice, step_s, **options)
        self._task_names = sorted({task.name for task in tasks})
        self._pools = [pool for pool in pools for _ in range(pool.nodes)]
        self._prefer = prefer
        self._fast = [FastReader(self.store, core, DEFAULT_LEASE_S) for core in self.cores]
        self.runs_s: list[float] = []
        self.work_s: dict[str, float] = defaultdict(float)

    def know(self, runs_s: float) -> None:
        """Let the run times of all names be known; runs_s: of each run at speed 1."""
        for pool in dict.fromkeys(self._pools):
            for name, speed in pool.speeds.items():
                for _ in range(MIN_CLASS_RUNS):
                    self._add_run(name, pool, 1000 * runs_s / speed)

    def _names(self) -> Sequence[str]:
        return self._task_names

    def _nodes(self) -> Iterable[tuple[Resources, float]]:
        return [(pool.offer, pool.score) for pool in self._pools]

    def _options(self, task: TenantTask) -> TaskOptions:
        needs = parse_needs(f"slots={task.slots} {task.label}".rstrip())
        tenant = task.tenant if self._named else ""
        return TaskOptions(needs, prefer=self._prefer, wait_for_capacity=True, tenant=tenant)

    def _pool_of(self, place: Place) -> NodePool:
        return self._pools[int(place.node[1:])]

    def _runs_s(self, task: TenantTask, place: Place) -> float:
        runs_s = task.runs_s / self._pool_of(place).speeds[task.name]
        self.runs_s.append(runs_s)
        self.work_s[task.tenant] += task.runs_s
        return runs_s

    def _learn(self, place: Place, ran_ms: float) -> None:
        self._add_run(self.submitted[place.task].name, self._pool_of(place), ran_ms)

    def _add_run(self, name: str, pool: NodePool, ran_ms: float) -> None:
        for field in (name, field_of(name, pool.offer)):
            self.memory.times.setdefault(field, RunTimes()).add(ran_ms)

    def _read(self, index: int, now_s: float) -> None:
        self._fast[index].work(now_s)

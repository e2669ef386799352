"""A replay: the product's schedulers place the pods of a trace on its nodes, by a virtual clock.

A tick is a gap / N. At each tick the pods that came since the last one are submitted, ended pods
are released, and each scheduler reads the partitions that are due and looks at the queue. Then the
schedulers carry out their plans, one round trip each by turns in random order, until none has
anything to do. So a scheduler claims by a view that the others have outdated. The store is one in
memory or a real server: the same calls go to both. Times in which nothing happens are left out.
"""

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np

from parsync_redis.errors import BrokenContract
from parsync_redis.model.options import Strategy, TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.process.plan_runner import PlanRunner
from parsync_redis.store.store import Store

from ..bench.watch import Say
from ..flags import check_flag
from ..simulate.parameters import LEAST_GAP_S, MOST_GAP_S
from .gpu_trace import GpuTrace, Pod
from .nodes import batches, end_tasks, register_nodes, start_tasks
from .timeline import Timeline
from .virtual_store import VirtualStore

POD_TASK: Final = "trace.pod"
MOST_ROUNDS: Final = 1000
"""The most round trips of a tick; a scheduler with more to do goes on at the next tick."""

STRATEGY: Final = Strategy.QUALITY
"""The strategy that *adaptive* uses while delays are short.

It is fixed, because delays on a server are not those of virtual time.
"""


@dataclass(frozen=True, slots=True)
class ReplayParameters:
    """The parameters of a replay.

    speedup: the factor by which the trace's time runs faster.
    ends: whether pods end when the trace says; otherwise they stay.
    """

    schedulers: int = 4
    partitions: int = 8
    gap_s: float = 0.5
    speedup: float = 100_000.0
    ends: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        check_flag("--partitions", self.partitions, 1, 4096, "a whole number from 1 to 4096")
        most = f"a whole number from 1 to {self.partitions}, the number of partitions"
        check_flag("--schedulers", self.schedulers, 1, self.partitions, most)
        check_flag(
            "--gap", self.gap_s, LEAST_GAP_S, MOST_GAP_S, "a number of seconds from 0.001 to 3600"
        )
        check_flag("--speedup", self.speedup, 1, 1e9, "a number from 1 to 1,000,000,000")
        check_flag("--seed", self.seed, 0, 2**63 - 1, "a whole number, 0 or more")

    @property
    def tick_s(self) -> float:
        """Return the length of a tick: N ticks per gap."""
        return self.gap_s / self.schedulers


class Replay:
    """A replay; `timeline` has the events."""

    def __init__(self, trace: GpuTrace, store: Store, parameters: ReplayParameters) -> None:
        self.trace = trace
        self.parameters = parameters
        self.timeline = Timeline()
        self._virtual = store if isinstance(store, VirtualStore) else None
        self._store = store
        dice, *scheduler_seeds = np.random.SeedSequence(parameters.seed).spawn(
            1 + parameters.schedulers
        )
        self._rng = np.random.default_rng(dice)
        self.cores = [
            self._core(f"s{number}", np.random.default_rng(seed))
            for number, seed in enumerate(scheduler_seeds)
        ]
        self._runners = [PlanRunner(self._store, core) for core in self.cores]
        self._needs = {
            pod.name: TaskOptions(pod.needs, wait_for_capacity=True) for pod in trace.pods
        }
        self._pods = {pod.name: pod for pod in trace.pods}
        self._begin_s = trace.pods[0].at_s if trace.pods else 0.0
        self._arrived = 0
        # a heap of (end, number of the placement, place)
        self._running: list[tuple[float, int, Place]] = []
        self._quiet = 0  # ticks since anything happened
        self.ticks = 0

    def _core(self, name: str, rng: np.random.Generator) -> Core:
        shards = self._store.keys.shards
        return Core(name, self.parameters.partitions, STRATEGY, float("inf"), rng, shards=shards)

    # -- the course --------------------------------------------------------------------------------

    def run(self, say: Say = lambda text: None) -> Timeline:
        """Register the nodes and replay all pods."""
        say(f"{len(self.trace.nodes):,} nodes register")
        register_nodes(self._store, self.trace.offers(), POD_TASK, self.parameters.partitions)
        for ordinal, core in enumerate(self.cores):
            core.on_members(ordinal, self.parameters.schedulers)
        number = 0
        while (number := self._next_tick(number)) >= 0:
            self._tick(number, say)
            self.ticks += 1
        for end_s, _, place in self._running if self.parameters.ends else ():
            self._ended(end_s, place)
        return self.timeline

    def _next_tick(self, number: int) -> int:
        """Return the number of the next tick at which something may happen, or -1: nothing will."""
        if self._quiet < 2 * self.parameters.schedulers:
            return number + 1
        events_s = [self._at_s(pod) for pod in self.trace.pods[self._arrived : self._arrived + 1]]
        if self._running and self.parameters.ends and len(self.timeline.places) < self._arrived:
            events_s.append(self._running[0][0])
        return max(number + 1, int(min(events_s) / self.parameters.tick_s) + 1) if events_s else -1

    def _tick(self, number: int, say: Say) -> None:
        now_s = number * self.parameters.tick_s
        self._set_clock(now_s)
        happened = self._end_until(now_s) + self._submit_until(now_s)
        for core in self.cores:
            core.on_tick(number)
            for shard in range(self._store.keys.shards):
                core.on_wake(shard)
        placed = len(self.timeline.places)
        for _ in range(MOST_ROUNDS):
            say(
                f"{len(self.timeline.places):,} of {self._arrived:,} pods placed, "
                f"{len(self.trace.pods):,} in all"
            )
            if not sum(
                [self._turn(i, now_s) for i in self._rng.permutation(len(self.cores)).tolist()]
            ):
                break
        happened += len(self.timeline.places) - placed
        self._quiet = 0 if happened else self._quiet + 1

    def _turn(self, number: int, now_s: float) -> bool:
        """Carry out one plan of a scheduler; return whether there was something to do."""
        core = self.cores[number]
        plan = core.plan(confirm=False)
        if plan:
            self._runners[number].carry_out(plan, lambda: now_s)
            self._start(core, now_s)
        return bool(plan)

    def _set_clock(self, now_s: float) -> None:
        if self._virtual:
            self._virtual.now_ms = round(now_s * 1000)

    def _at_s(self, pod: Pod) -> float:
        """Return when a pod arrives, on the virtual clock."""
        return (pod.at_s - self._begin_s) / self.parameters.speedup

    # -- nodes and pods ----------------------------------------------------------------------------

    def _submit_until(self, now_s: float) -> int:
        """Submit the pods that have arrived by now; return how many."""
        begin = self._arrived
        while (
            self._arrived < len(self.trace.pods)
            and self._at_s(self.trace.pods[self._arrived]) <= now_s
        ):
            self._arrived += 1
        pods = self.trace.pods[begin : self._arrived]
        for batch in batches(pods):
            tasks = [Submission(pod.name, POD_TASK, b"{}", self._needs[pod.name]) for pod in batch]
            words = self._store.run(self._store.commands.submit(tasks))
            if set(words) != {"submitted"}:
                raise BrokenContract(f"a pod was not submitted: {', '.join(sorted(set(words)))}")
        for pod in pods:
            at_s = self._at_s(pod) * self.parameters.speedup
            self.timeline.arrived.add(at_s, 1)
            self.timeline.requested.add(at_s, pod.gpu_milli)
        return len(pods)

    def _start(self, core: Core, now_s: float) -> None:
        """Start the tasks of won claims, as their nodes' workers do."""
        places = start_tasks(self._store, core)
        for place in places:
            pod = self._pods[place.task]
            self.timeline.places.append(place)
            self.timeline.placed.add(now_s * self.parameters.speedup, 1)
            self.timeline.used.add(now_s * self.parameters.speedup, pod.gpu_milli)
            if self.parameters.ends:
                end_s = now_s + pod.runs_s / self.parameters.speedup
                heapq.heappush(self._running, (end_s, len(self.timeline.places), place))

    def _end_until(self, now_s: float) -> int:
        """End the pods whose time is over; return how many."""
        ended = list[Place]()
        while self._running and self._running[0][0] <= now_s:
            end_s, _, place = heapq.heappop(self._running)
            ended.append(place)
            self._ended(end_s, place)
        end_tasks(self._store, ended)
        return len(ended)

    def _ended(self, end_s: float, place: Place) -> None:
        self.timeline.ended.add(place.task)
        self.timeline.used.add(end_s * self.parameters.speedup, -self._pods[place.task].gpu_milli)

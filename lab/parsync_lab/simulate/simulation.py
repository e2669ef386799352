"""The simulation: schedulers' cores, a virtual clock, a load and a store in memory.

A tick is a gap / N. At each tick every scheduler, in random order, reads the partitions that are
due and looks at the queue. It takes the tasks for which it has seats and time until the next tick
(K claims a second), and claims. n claims take n / K seconds; then they are judged in order of time
over all schedulers. At the next tick, tasks of lost claims get another seat or go back to the
queue.
"""

from collections.abc import Callable, Sequence

import numpy as np

from parsync_redis.model.replies import Judged
from parsync_redis.scheduler.core.core import MAX_KINDS_PER_LOOK
from parsync_redis.scheduler.core.plan import Plan

from .cluster import SimCluster
from .measure import SimMeasure
from .modes import make_core
from .parameters import Parameters, SchedulerGroup, check_groups
from .sim_scheduler import SimScheduler
from .workload import Arrival, Load

Progress = Callable[[float], None]


class Simulation:
    """A run of the simulation; `measure` records its figures."""

    def __init__(
        self,
        parameters: Parameters,
        groups: Sequence[SchedulerGroup],
        loads: Sequence[Load],
        dice: np.random.SeedSequence,
    ) -> None:
        check_groups(parameters, groups)
        rng, nodes, *scheduler_rngs = (
            np.random.default_rng(seed) for seed in dice.spawn(2 + parameters.schedulers)
        )
        self.parameters = parameters
        self.rng = rng
        self.loads = loads
        self.cluster = SimCluster(parameters, len(groups), nodes)
        self.measure = SimMeasure(parameters, [group.name for group in groups])
        of_group = [number for number, group in enumerate(groups) for _ in range(group.schedulers)]
        self.schedulers = [
            SimScheduler(make_core(f"s{i}", parameters, scheduler_rngs[i]), group)
            for i, group in enumerate(of_group)
        ]
        for ordinal, scheduler in enumerate(self.schedulers):
            scheduler.core.on_members(ordinal, parameters.schedulers)
            self._look(scheduler, 0.0)
        self._arrivals: dict[str, Arrival] = {}
        self._arrived = 0

    def run(self, seconds: float, progress: Progress = lambda done: None) -> SimMeasure:
        """Run from 0 to `seconds` of virtual time; call `progress` with the share that is done."""
        ticks = round(seconds / self.parameters.tick_s)
        for tick in range(1, ticks + 1):
            self.tick(tick)
            if tick % 100 == 0 or tick == ticks:
                progress(tick / ticks)
        return self.measure

    def tick(self, number: int) -> None:
        """Play one tick."""
        tick_s = self.parameters.tick_s
        cluster = self.cluster
        now_s = number * tick_s
        cluster.finish_until(now_s)
        for group, load in enumerate(self.loads):
            for arrival in load.until(now_s):
                self._arrived += 1
                self._arrivals[f"t{self._arrived}"] = arrival
                cluster.submit(group, f"t{self._arrived}", arrival.at_s, arrival.slots)
        self.measure.see_views(now_s, self.schedulers)
        plans: list[tuple[float, int, SimScheduler, Plan]] = []
        for turn, i in enumerate(self.rng.permutation(len(self.schedulers)).tolist()):
            scheduler = self.schedulers[i]
            scheduler.core.on_tick(number)
            scheduler.core.on_wake()
            room = self.parameters.decisions * tick_s
            scheduler.budget = min(scheduler.budget + room, room + 1)
            self._look(scheduler, now_s)
            plan = self._place(scheduler)
            claims = sum(map(len, plan.commit.values()))
            scheduler.budget -= claims
            if claims:
                plans.append(
                    (now_s + min(claims / self.parameters.decisions, tick_s), turn, scheduler, plan)
                )
        self.measure.see_views(now_s, self.schedulers)
        for at_s, _, scheduler, plan in sorted(plans, key=lambda entry: entry[:2]):
            cluster.finish_until(at_s)
            self._commit(scheduler, plan, at_s)
        self.measure.see_load(
            now_s, cluster.held, [cluster.waiting(group) for group in range(len(self.loads))]
        )

    def _look(self, scheduler: SimScheduler, now_s: float) -> None:
        """Make a scheduler read the due partitions and look at the queue."""
        core = scheduler.core
        cluster = self.cluster
        plan = core.plan(place=False)
        cluster.confirm(scheduler.group, plan.confirm)
        for p in plan.read_nodes:
            core.on_nodes(p, cluster.nodes[p], cluster.partitions[p].epoch)
        scheduler.read = plan.read
        scheduler.read_bytes = 0
        for p in plan.read:
            snapshot = cluster.read(p, core.view.partitions[p].version)
            scheduler.read_bytes += len(snapshot.bits or b"")
            core.on_snapshot(snapshot, now_s)
        self._take(scheduler, plan)

    def _place(self, scheduler: SimScheduler) -> Plan:
        """Make a scheduler take tasks that it has seats and time for; return its plan of claims."""
        core = scheduler.core
        cluster = self.cluster
        first = core.plan(room=max(0, int(scheduler.budget) - core.in_flight))
        cluster.give_back(scheduler.group, core.name, first.give_back)
        cluster.confirm(scheduler.group, first.confirm)
        self._take(scheduler, first)
        plan = core.plan(place=False)
        for p, claims in first.commit.items():
            plan.commit.setdefault(p, []).extend(claims)
        return plan

    def _take(self, scheduler: SimScheduler, plan: Plan) -> None:
        queue = self.cluster.queues[scheduler.group]
        core = scheduler.core
        for look in plan.shard_looks.values():
            core.on_took(queue.took(core.name, look.take, look.since, MAX_KINDS_PER_LOOK))

    def _commit(self, scheduler: SimScheduler, plan: Plan, now_s: float) -> None:
        core = scheduler.core
        cluster = self.cluster
        measure = self.measure
        for p, claims in plan.commit.items():
            verdicts = cluster.commit(p, claims, now_s)
            lost = 0
            for claim, verdict in zip(claims, verdicts, strict=True):
                if verdict.won:
                    arrival = self._arrivals.pop(claim.task)
                    cluster.start(scheduler.group, claim, now_s, arrival.runs_s)
                    measure.placed(
                        scheduler.group, now_s, now_s - arrival.at_s, cluster.score[claim.node]
                    )
                else:
                    lost += 1
            measure.judged(scheduler.group, now_s, len(claims), lost)
            core.on_judged(
                Judged(p, cluster.partitions[p].version, cluster.store.now_ms, claims, verdicts)
            )

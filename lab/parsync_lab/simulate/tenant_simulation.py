"""A simulation of tenants: the schedulers share the nodes among them, in virtual time.

The schedulers' plans go to the store in memory, as in a replay of a trace (replay/replay.py). At
each tick tasks end, tasks come, and the schedulers carry out plans by turns in random order. The
first scheduler leads: it books nodes for large tasks with each renewal of its lease.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from parsync_redis.errors import BrokenContract
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import Strategy, TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.policy import Policy, TenantEntry
from parsync_redis.model.task import Submission
from parsync_redis.model.times import RunTimes
from parsync_redis.model.used_share import SharesByTenant, rows_to_note
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.leader.backfill import BackfillDuty
from parsync_redis.scheduler.process.booking_reader import BookingReader
from parsync_redis.scheduler.process.membership import RENEWALS_PER_LEASE
from parsync_redis.scheduler.process.plan_runner import PlanRunner
from parsync_redis.store.cluster import DEFAULT_LEASE_S
from parsync_redis.store.store import Store

from ..replay.virtual_store import VirtualStore
from .parameters import SIM_NODE_SLOTS, Parameters

TENANT_TASK: Final = "work"
NOTE_EVERY_S: Final = 1.25
"""Seconds between two passes of the leader, with a lease of 10 s."""
TURNS_OF_TICK: Final = 200
"""The most round trips of a tick."""


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """The tasks of a tenant.

    flood: number of tasks that come at once, at `begin_s`.
    rate: tasks a second from `begin_s` on, by a Poisson process.
    slots: number of slots of each task.
    """

    tenant: str
    flood: int = 0
    rate: float = 0.0
    begin_s: float = 0.0
    slots: int = 1


@dataclass(slots=True)
class TenantMeasure:
    """The figures of a simulation.

    waits_s: by tenant, (when it was submitted, how long it waited) of each placed task.
    slots_held: for each tick, (time, slots held by tenant).
    """

    waits_s: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    slots_held: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    placements: int = 0

    def shares(
        self, tenant: str, begin_s: float, slots: int, end_s: float = float("inf")
    ) -> list[float]:
        """Return the tenant's share of all slots at each tick from `begin_s` until `end_s`."""
        return [
            count.get(tenant, 0) / slots
            for at_s, count in self.slots_held
            if begin_s <= at_s < end_s
        ]


class TenantSimulation:
    """Schedulers, nodes and the tasks of some tenants.

    named: whether tasks name their tenants; otherwise the age decides.
    books: whether the leader books nodes for large tasks.
    half_life_s: after this time past use counts half; 0: only what is held now counts.
    """

    def __init__(
        self,
        parameters: Parameters,
        loads: Sequence[TenantLoad],
        dice: np.random.SeedSequence,
        named: bool = True,
        books: bool = True,
        half_life_s: float = 0.0,
    ) -> None:
        self.parameters = parameters
        self.measure = TenantMeasure()
        self._named = named
        self._loads = loads
        self._memory = VirtualStore("simulated")
        self._store: Store = self._memory
        self._times = self._memory.times.setdefault(TENANT_TASK, RunTimes())
        rng_seed, *core_seeds = dice.spawn(1 + parameters.schedulers)
        self._rng = np.random.default_rng(rng_seed)
        self.cores = [
            Core(
                f"s{number}",
                parameters.partitions,
                Strategy.QUALITY,
                float("inf"),
                np.random.default_rng(seed),
            )
            for number, seed in enumerate(core_seeds)
        ]
        tenants = {"*": TenantEntry(half_life_s=half_life_s)} if half_life_s else {}
        self._policy = Policy(tenants=tenants)
        for core in self.cores:
            core.on_policy(self._policy)
        self._noted_s = 0.0
        self._runners = [PlanRunner(self._store, core) for core in self.cores]
        self._readers = [
            BookingReader(self._store, core, parameters.gap_s, DEFAULT_LEASE_S)
            for core in self.cores
        ]
        self._leader = BackfillDuty(self._store, DEFAULT_LEASE_S, self._readers[0].large)
        self._books = books
        self._led_s = 0.0
        # a heap of (end, number of the placement, tenant, place)
        self._running: list[tuple[float, int, str, Place]] = []
        self._held: dict[str, int] = defaultdict(int)
        self._submitted_s: dict[str, float] = {}
        self._arrivals = self._draw_arrivals()

    def _draw_arrivals(self) -> list[tuple[float, str, TenantLoad]]:
        """Return all arrivals, the last first."""
        length_s = self.parameters.length * self.parameters.duration_s
        arrivals: list[tuple[float, str, TenantLoad]] = []
        for load in self._loads:
            times = [load.begin_s] * load.flood
            at_s = load.begin_s
            while load.rate and (at_s := at_s + self._rng.exponential(1 / load.rate)) < length_s:
                times.append(at_s)
            arrivals += [
                (time_s, f"{load.tenant}-{number}", load) for number, time_s in enumerate(times)
            ]
        return sorted(arrivals, key=lambda arrival: arrival[:2], reverse=True)

    def run(self, progress: Any, run_s: float) -> TenantMeasure:
        """Play all ticks; runs are exponential with the mean `run_s`."""
        self._register()
        members = self.parameters.schedulers
        for ordinal, core in enumerate(self.cores):
            core.on_members(ordinal, members)
        ticks = round(self.parameters.length * self.parameters.duration_s / self.parameters.tick_s)
        for number in range(1, ticks + 1):
            self._tick(number, run_s)
            progress(number / ticks)
        return self.measure

    def _tick(self, number: int, run_s: float) -> None:
        now_s = number * self.parameters.tick_s
        self._memory.now_ms = round(now_s * 1000)
        self._end_until(now_s)
        self._submit_until(now_s)
        books: bool = (True,)
        half_life_s: float = (0.0,)
        for core in self.cores:
            core.on_tick(number)
            core.on_wake(0)
        for _ in range(TURNS_OF_TICK):
            order = self._rng.permutation(len(self.cores)).tolist()
            busy = [self._turn(index, now_s, run_s) for index in order]
            if not any(busy):
                break
        self.measure.slots_held.append((now_s, dict(self._held)))

    def _book(self, number: int, now_s: float) -> None:
        """Do the leader's pass if it is due; once a gap each scheduler looks at the bookings."""
        if now_s >= self._led_s + DEFAULT_LEASE_S / RENEWALS_PER_LEASE:
            self._led_s = now_s
            self._leader.work(now_s)
        reader = self._readers[number % len(self._readers)]
        reader.heard = self._leader.booked
        reader.work(now_s)

    def _note_shares(self, now_s: float) -> None:
        """Note what tenants hold, as a leader does, and let all schedulers read it."""
        self._noted_s = now_s
        slots = self.parameters.scaled_slots
        shares = {tenant: count / slots for tenant, count in self._held.items() if count}
        noted = SharesByTenant(self._memory.cluster.shares)
        rows = [*rows_to_note(shares, noted, self._memory.now_ms, self._policy)]
        if rows:
            self._store.run(self._store.commands.note_shares(rows))
        used_shares = noted.at(self._memory.now_ms, self._policy)
        for core in self.cores:
            core.queue.set_used_shares(used_shares)

    def _turn(self, index: int, now_s: float, run_s: float) -> bool:
        """Carry out one plan of a scheduler; return whether there was something to do."""
        core = self.cores[index]
        runner = self._runners[index]
        runner.wake_if_due(now_s)
        plan = core.plan(confirm=False)
        if plan:
            runner.carry_out(plan, lambda: now_s)
            self._start(core, now_s, run_s)
        return bool(plan)

    def _register(self) -> None:
        commands = self._store.commands
        partitions = self.parameters.partitions
        self._store.run(commands.configure({"partitions": partitions, "shards": 1}))
        tasks = KnownTasks.of({TENANT_TASK: None})
        offer = offer_with(Resources.of(SIM_NODE_SLOTS), tasks)
        for number in range(self.parameters.scaled_slots // SIM_NODE_SLOTS):
            name = f"n{number}"
            self._store.run(commands.offer(name, offer.text, tasks))
            partition = number % self.parameters.partitions
            self._store.run(commands.register_node(partition, name, 0, 1.0, offer.text))

    def _submit_until(self, now_s: float) -> None:
        """Submit the tasks that have come by now."""
        tasks: list[Submission] = []
        while self._arrivals and self._arrivals[-1][0] <= now_s:
            at_s, task, load = self._arrivals.pop()
            needs = Resources.of(load.slots)
            tenant = load.tenant if self._named else ""
            options = TaskOptions(needs, wait_for_capacity=True, tenant=tenant)
            tasks.append(Submission(task, TENANT_TASK, b"{}", options))
            self._submitted_s[task] = at_s
        for start in range(0, len(tasks), MAX_BATCH):
            batch = tasks[start : start + MAX_BATCH]
            words = self._store.run(self._store.commands.submit(batch))
            if set(words) != {"submitted"}:
                raise BrokenContract(f"a task was not submitted: {', '.join(sorted(set(words)))}")

    def _start(self, core: Core, now_s: float, run_s: float) -> None:
        """Start the tasks of won claims, as their nodes' workers do."""
        places = [*core.won.unconfirmed]
        if not places:
            return
        self._store.run(self._store.commands.start(places))
        for place in places:
            self._store.pipe_each([("delete", self._store.keys.inbox(place.partition, place.node))])
            tenant = place.task.partition("-")[0]
            at_s = self._submitted_s[place.task]
            self.measure.waits_s[tenant].append((at_s, now_s - at_s))
            self.measure.placements += 1
            self._held[tenant] += len(place.slots)
            end_s = now_s + float(self._rng.exponential(run_s))
            heapq.heappush(self._running, (end_s, self.measure.placements, tenant, place))
        core.won.confirmed(len(places))

    def _end_until(self, now_s: float) -> None:
        """End the tasks whose time is over."""
        ended: defaultdict[int, list[Place]] = defaultdict(list)
        while self._running and self._running[0][0] <= now_s:
            _, _, tenant, place = heapq.heappop(self._running)
            self._held[tenant] -= len(place.slots)
            self._times.add(1000 * now_s - place.since_ms)
            ended[place.partition].append(place)
        for partition, places in ended.items():
            finish = self._store.commands.finish([(place, "succeeded", "") for place in places])
            self._store.run(finish)
            self._store.run(self._store.commands.release(partition, places))

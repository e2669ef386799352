"""A simulation of tenants: the schedulers share the nodes among them, in virtual time.

The schedulers' plans go to the store in memory, as in a replay of a trace (replay/replay.py). At
each step tasks end, tasks come, and the schedulers that hear something carry out plans
(virtual_schedulers.py). A step is shorter than a tick, so a slot that becomes free is given without
a wait for the next tick. Steps in which nothing happens are left out.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final, NamedTuple, cast

import numpy as np

from parsync_redis.errors import BrokenContract
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.policy import Policy
from parsync_redis.model.task import Submission
from parsync_redis.model.times import RunTimes
from parsync_redis.model.used_share import SharesByTenant
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.leader.backfill import BackfillDuty
from parsync_redis.scheduler.leader.used_shares import UsedShareDuty
from parsync_redis.scheduler.process.booking_reader import BookingReader
from parsync_redis.scheduler.process.membership import RENEWALS_PER_LEASE
from parsync_redis.store.cluster import DEFAULT_LEASE_S
from parsync_redis.store.store import Store

from ..replay.virtual_store import VirtualStore
from .parameters import SIM_NODE_SLOTS, Parameters
from .simulation import Progress
from .virtual_schedulers import VirtualSchedulers

TENANT_TASK: Final = "work"
PASS_S: Final = DEFAULT_LEASE_S / RENEWALS_PER_LEASE
"""Seconds between two passes of the leader."""


class TenantTask(NamedTuple):
    """A task of a tenant: when it is submitted, how long it runs, and its number of slots.

    name: of the task.
    label: that a node must have, 'gpu:k80'; '' for none.
    """

    at_s: float
    tenant: str
    runs_s: float
    slots: int = 1
    name: str = TENANT_TASK
    label: str = ""


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
    ends_s: by tenant, when the last of its tasks ended.
    slots_held: for each step that is not left out, (time, slots held by tenant).
    """

    waits_s: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    ends_s: dict[str, float] = field(default_factory=dict)
    slots_held: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    placements: int = 0

    def shares(self, tenant: str, begin_s: float, slots: int, end_s: float = inf) -> list[float]:
        """Return the tenant's share of all slots at each step from `begin_s` until `end_s`."""
        return [
            count.get(tenant, 0) / slots
            for at_s, count in self.slots_held
            if begin_s <= at_s < end_s
        ]


def draw_tasks(
    loads: Sequence[TenantLoad], end_s: float, run_s: float, rng: np.random.Generator
) -> list[TenantTask]:
    """Draw the tasks of loads until `end_s`.

    Runs are exponential with the mean `run_s`.
    """
    tasks: list[TenantTask] = []
    for load in loads:
        times_s = [load.begin_s] * load.flood
        at_s = load.begin_s
        while load.rate and (at_s := at_s + rng.exponential(1 / load.rate)) < end_s:
            times_s.append(at_s)
        runs_s = rng.exponential(run_s, len(times_s)).tolist()
        tasks += [
            TenantTask(time_s, load.tenant, length_s, load.slots)
            for time_s, length_s in zip(times_s, runs_s, strict=True)
        ]
    return tasks


class TenantSimulation:
    """Schedulers, nodes and the tasks of some tenants.

    named: whether tasks name their tenants; otherwise the age decides.
    step_s: the shortest time between two events. If ticks come more often, it is a tick.
    books: whether the leader books nodes for large tasks.
    policy: the weights of the tenants, and how their shares count.
    """

    def __init__(
        self,
        parameters: Parameters,
        tasks: Sequence[TenantTask],
        dice: np.random.SeedSequence,
        step_s: float,
        named: bool = True,
        books: bool = True,
        policy: Policy | None = None,
    ) -> None:
        self.parameters = parameters
        self.measure = TenantMeasure()
        self._named = named
        self._steps_of_tick = max(1, round(parameters.tick_s / step_s))
        self._step_s = parameters.tick_s / self._steps_of_tick
        self.memory = VirtualStore("simulated")
        self.store = cast(Store, self.memory)
        rng_seed, *core_seeds = dice.spawn(1 + parameters.schedulers)
        self._schedulers = VirtualSchedulers(
            self.memory,
            parameters.partitions,
            core_seeds,
            np.random.default_rng(rng_seed),
            self._start,
        )
        self.cores = self._schedulers.cores
        self._times = self.memory.times.setdefault(TENANT_TASK, RunTimes())
        self._policy = policy or Policy()
        for core in self.cores:
            core.on_policy(self._policy)
        self._readers = [
            BookingReader(self.store, core, parameters.gap_s, DEFAULT_LEASE_S)
            for core in self.cores
        ]
        self._leader = BackfillDuty(self.store, DEFAULT_LEASE_S, self._readers[0].large)
        self._used_shares = UsedShareDuty(self.store, DEFAULT_LEASE_S)
        self._books = books
        self._led_s = 0.0
        # a heap of (end, number of the placement, tenant, place)
        self._running: list[tuple[float, int, str, Place]] = []
        self._held: dict[str, int] = defaultdict(int)
        # by id
        self.submitted: dict[str, TenantTask] = {}
        # the tasks to come, the last first
        self._arrivals = sorted(tasks, key=lambda task: task.at_s, reverse=True)
        self._waiting = 0
        self._count = len(tasks)

    def run(self, progress: Progress, end_s: float = inf) -> TenantMeasure:
        """Play all steps until `end_s`, or until all tasks have ended."""
        self._register()
        self._schedulers.begin()
        steps = round(min(end_s / self._step_s, 1e15))
        number = 0
        quiet = 0  # steps since anything happened
        while number < steps and (self._arrivals or self._waiting or self._running):
            number += 1
            if quiet > self._steps_of_tick * len(self.cores):
                number = max(number, min(steps, self._next_step()))
            quiet = 0 if self._step(number) else quiet + 1
            progress(number / steps if end_s < inf else self.measure.placements / self._count)
        return self.measure

    def _next_step(self) -> int:
        """Return the number of the step at which a task comes or ends next."""
        events_s = [task.at_s for task in self._arrivals[-1:]]
        events_s += [end_s for end_s, *_ in self._running[:1]]
        return ceil(min(events_s, default=0.0) / self._step_s)

    def _step(self, number: int) -> bool:
        """Play a step; return whether a task came, started or ended."""
        now_s = number * self._step_s
        self.memory.now_ms = round(now_s * 1000)
        placements = self.measure.placements
        happened = self._end_until(now_s) + self._submit_until(now_s)
        tick, steps_since_tick = divmod(number, self._steps_of_tick)
        if steps_since_tick == 0:
            self._lead(tick, now_s)
            self._schedulers.on_tick(tick)
        self._schedulers.work(now_s)
        if happened or self.measure.placements > placements or steps_since_tick == 0:
            self.measure.slots_held.append((now_s, dict(self._held)))
        return bool(happened or self.measure.placements > placements)

    def _lead(self, tick: int, now_s: float) -> None:
        """Do the leader's pass if it is due; once a gap each scheduler looks at the bookings."""
        if now_s >= self._led_s + PASS_S:
            self._led_s = now_s
            if self._books:
                self._leader.work(now_s)
            if self._policy.notes_shares:
                self._used_shares.work(self._policy, now_s)
                self._read_shares()
        index = tick % len(self._readers)
        reader = self._readers[index]
        reader.heard = self._leader.booked
        reader.work(now_s)
        self._read(index, now_s)

    def _read_shares(self) -> None:
        """Let all schedulers read the used shares, as PolicyReader does."""
        fields = self.store.read("hgetall", self.store.keys.shared("shares"))
        shares = SharesByTenant.of(fields)
        used_shares = shares.at(self.memory.now_ms, self._policy)
        for core in self.cores:
            core.queue.set_used_shares(used_shares, shares.work(self._policy))

    def _register(self) -> None:
        commands = self.store.commands
        partitions = self.parameters.partitions
        self.store.run(commands.configure({"partitions": partitions, "shards": 1}))
        tasks = KnownTasks.of(dict.fromkeys(self._names()))
        for number, (resources, score) in enumerate(self._nodes()):
            name = f"n{number}"
            offer = offer_with(resources, tasks)
            self.store.run(commands.offer(name, offer.text, tasks))
            self.store.run(commands.register_node(number % partitions, name, 0, score, offer.text))

    # -- what a simulation of other nodes and tasks changes ----------------------------------------

    def _names(self) -> Sequence[str]:
        """Return the names of all tasks."""
        return (TENANT_TASK,)

    def _nodes(self) -> Iterable[tuple[Resources, float]]:
        """Yield what each node offers, and its score."""
        return [(Resources.of(SIM_NODE_SLOTS), 1.0)] * (
            self.parameters.scaled_slots // SIM_NODE_SLOTS
        )

    def _options(self, task: TenantTask) -> TaskOptions:
        """Return the options of a task."""
        tenant = task.tenant if self._named else ""
        return TaskOptions(Resources.of(task.slots), wait_for_capacity=True, tenant=tenant)

    def _runs_s(self, task: TenantTask, place: Place) -> float:
        """Return how long a task runs at its place."""
        return task.runs_s

    def _learn(self, place: Place, ran_ms: float) -> None:
        """Learn how long a task ran."""
        self._times.add(ran_ms)

    def _read(self, index: int, now_s: float) -> None:
        """Let a scheduler read, once in a gap, what its process reads besides the bookings."""

    def _submit_until(self, now_s: float) -> int:
        """Submit the tasks that have come by now; return how many."""
        submissions: list[Submission] = []
        while self._arrivals and self._arrivals[-1].at_s <= now_s:
            task = self._arrivals.pop()
            id = f"t{len(self.submitted)}"
            submissions.append(Submission(id, task.name, b"{}", self._options(task)))
            self.submitted[id] = task
        for start in range(0, len(submissions), MAX_BATCH):
            batch = submissions[start : start + MAX_BATCH]
            words = self.store.run(self.store.commands.submit(batch))
            if set(words) != {"submitted"}:
                raise BrokenContract(f"a task was not submitted: {', '.join(sorted(set(words)))}")
        self._waiting += len(submissions)
        return len(submissions)

    def _start(self, core: Core, now_s: float) -> None:
        """Start the tasks of won claims, as their nodes' workers do."""
        places = [*core.won.unconfirmed]
        if not places:
            return
        self.store.run(self.store.commands.start(places))
        measure = self.measure
        for place in places:
            self.store.pipe_each([("delete", self.store.keys.inbox(place.partition, place.node))])
            task = self.submitted[place.task]
            measure.waits_s[task.tenant].append((task.at_s, now_s - task.at_s))
            measure.placements += 1
            self._held[task.tenant] += len(place.slots)
            end_s = now_s + self._runs_s(task, place)
            measure.ends_s[task.tenant] = max(end_s, measure.ends_s.get(task.tenant, 0.0))
            heapq.heappush(self._running, (end_s, measure.placements, task.tenant, place))
        self._waiting -= len(places)
        core.won.confirmed(len(places))

    def _end_until(self, now_s: float) -> int:
        """End the tasks whose time is over; return how many."""
        ended: defaultdict[int, list[Place]] = defaultdict(list)
        while self._running and self._running[0][0] <= now_s:
            _, _, tenant, place = heapq.heappop(self._running)
            self._held[tenant] -= len(place.slots)
            self._learn(place, 1000 * now_s - place.since_ms)
            if not self._held[tenant]:
                del self._held[tenant]
            ended[place.partition].append(place)
        for partition, places in ended.items():
            finish = self.store.commands.finish([(place, "succeeded", "") for place in places])
            self.store.run(finish)
            self.store.run(self.store.commands.release(partition, places))
        return sum(map(len, ended.values()))

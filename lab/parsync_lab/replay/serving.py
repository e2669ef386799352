"""A replay of model serving: requests to models go to nodes that keep a few models loaded.

A node has slots, and room for some models. A request to a model that is not loaded is a *cold
start*: the model is loaded first, and the least recently used model makes room. Only arrivals run
faster than in the trace (`speed`); a request runs as long as in the trace, and a load takes as long
as one of the measured loads.
"""

import heapq
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import cycle
from math import ceil
from typing import Final

import numpy as np

from parsync_redis.errors import BrokenContract
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.preferences import MAX_RANK
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.core.core import Core

from ..bench.watch import Say
from ..flags import check_flag
from ..simulate.parameters import LEAST_GAP_S, MOST_GAP_S
from ..simulate.virtual_schedulers import VirtualSchedulers
from .harvest import Harvest
from .serving_trace import CpuTrace, ModelRequest
from .virtual_store import VirtualStore

SERVE_TASK: Final = "serve"
HOST_LABEL: Final = "host"
STEPS_OF_TICK: Final = 5
"""Tasks come and end between ticks: so many steps are a tick."""


@dataclass(frozen=True, slots=True)
class ServingParameters:
    """The parameters of a replay of model serving.

    speed: the factor by which requests come faster than in the trace.
    models: number of models that a node keeps loaded.
    """

    speed: float = 10.0
    nodes: int = 10
    slots: int = 8
    models: int = 3
    schedulers: int = 2
    partitions: int = 4
    gap_s: float = 0.5
    seed: int = 1

    def __post_init__(self) -> None:
        check_flag("--speed", self.speed, 1e-3, 1e6, "a number from 0.001 to 1,000,000")
        check_flag("--nodes", self.nodes, 1, 4096, "a whole number from 1 to 4096")
        check_flag("--slots", self.slots, 1, 1024, "a whole number from 1 to 1024")
        check_flag("--models", self.models, 1, 1000, "a whole number from 1 to 1000")
        check_flag("--partitions", self.partitions, 1, 4096, "a whole number from 1 to 4096")
        most = f"a whole number from 1 to {self.partitions}, the number of partitions"
        check_flag("--schedulers", self.schedulers, 1, self.partitions, most)
        check_flag(
            "--gap", self.gap_s, LEAST_GAP_S, MOST_GAP_S, "a number of seconds from 0.001 to 3600"
        )
        check_flag("--seed", self.seed, 0, 2**63 - 1, "a whole number, 0 or more")

    @property
    def tick_s(self) -> float:
        """Return the length of a tick: N ticks per gap."""
        return self.gap_s / self.schedulers

    @property
    def names(self) -> list[str]:
        """Return the names of the nodes. Another seed gives other names, so that rings differ."""
        return [f"n{self.seed}-{number}" for number in range(self.nodes)]


def ring_of(model: str, nodes: Sequence[str]) -> list[str]:
    """Return the nodes in the order of a hash of model and node (rendezvous hashing)."""
    return sorted(nodes, key=lambda node: blake2b(f"{model} {node}".encode()).digest())


def _prefer_ring(model: str, nodes: Sequence[str]) -> list[object]:
    """Return the preference for the first nodes of a ring, in their order."""
    first = ring_of(model, nodes)[: MAX_RANK + 1]
    return [{HOST_LABEL: {node: rank for rank, node in enumerate(first)}}]


METHODS: Final[Mapping[str, Callable[[str, Sequence[str]], list[object]]]] = {
    "none": lambda model, nodes: [],
    "least-loaded": lambda model, nodes: ["spread"],
    "hash": _prefer_ring,
    "warm": lambda model, nodes: [f"warm:{model}"],
}
"""What requests to a model prefer, by method. hash: with overflow to the next node of the ring."""


@dataclass(slots=True)
class ServingMeasure:
    """The figures of a replay.

    latencies_s: of each request, from its arrival to its end.
    recalls: how often each request was recalled that was.
    """

    latencies_s: list[float] = field(default_factory=list)
    starts: int = 0
    cold_starts: int = 0
    recalls: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ServingFigures:
    """The figures of a replay by one method, for people and for JSON.

    cold: the share of the starts that are cold starts.
    lost: the share of the claims that were lost to another scheduler.
    p50_s, p99_s: of the times from a request's arrival to its end.
    recalls: number of runs that were recalled because their node had shrunk.
    at_most_once: the share of the requests that were recalled once at most.
    beyond: number of claims beyond the capacity that the node had a second before.
    """

    speed: float
    method: str
    requests: int
    cold: float
    p50_s: float
    p99_s: float
    claims: int
    lost: float
    recalls: int = 0
    at_most_once: float = 1.0
    beyond: int = 0


class ServingNode:
    """The models that a node has loaded."""

    def __init__(self, models: int) -> None:
        self._most = models
        # model -> when it is loaded; the least recently used first
        self._loaded: OrderedDict[str, float] = OrderedDict()

    def use(self, model: str, now_s: float, load_s: float) -> tuple[bool, float]:
        """Return whether a request is a cold start, and when its model is loaded.

        A request to a model that is being loaded is not cold; it waits for the load.
        """
        is_cold = model not in self._loaded
        if is_cold:
            self._loaded[model] = now_s + load_s
        self._loaded.move_to_end(model)
        if len(self._loaded) > self._most:
            self._loaded.popitem(last=False)
        return is_cold, max(now_s, self._loaded[model])


class Serving:
    """A replay of requests by one method; `measure` has its figures."""

    def __init__(
        self,
        requests: Sequence[ModelRequest],
        loads_s: Sequence[float],
        method: str,
        parameters: ServingParameters,
        machines: Sequence[CpuTrace] = (),
    ) -> None:
        """machines: on which the nodes run by turns; () for nodes that do not shrink."""
        self.parameters = parameters
        self.measure = ServingMeasure()
        self._method = method
        self._step_s = parameters.tick_s / STEPS_OF_TICK
        self._store = VirtualStore("serving")
        loads, rng, *cores = np.random.SeedSequence(parameters.seed).spawn(
            2 + parameters.schedulers
        )
        # the same for each method: the load of a request takes as long wherever it goes
        self._loads_s = np.random.default_rng(loads).choice(loads_s, len(requests)).tolist()
        self._schedulers = VirtualSchedulers(
            self._store, parameters.partitions, cores, np.random.default_rng(rng), self._start
        )
        names = parameters.names
        self.nodes = {name: ServingNode(parameters.models) for name in names}
        self._harvest = (
            Harvest(self._store, dict(zip(names, cycle(machines), strict=False)))
            if machines
            else None
        )
        self._options = {
            model: TaskOptions.of(
                {"prefer": METHODS[method](model, parameters.names), "wait_for_capacity": True}
            )
            for model in {request.model for request in requests}
        }
        self._requests = requests
        self._arrived = 0
        # a heap of (end, number of the start, place); those that were recalled are still there
        self._running: list[tuple[float, int, Place]] = []
        self._recalled = set[Place]()

    @property
    def figures(self) -> ServingFigures:
        """The figures of what was replayed."""
        measure = self.measure
        claims = sum(core.counters.claims for core in self._schedulers.cores)
        lost = sum(core.counters.conflicts for core in self._schedulers.cores)
        p50_s, p99_s = np.quantile(measure.latencies_s, [0.5, 0.99]).tolist()
        return ServingFigures(
            self.parameters.speed,
            self._method,
            len(measure.latencies_s),
            measure.cold_starts / measure.starts,
            p50_s,
            p99_s,
            claims,
            lost / claims,
            measure.recalls.total(),
            1 - sum(count > 1 for count in measure.recalls.values()) / len(measure.latencies_s),
            self._harvest.beyond if self._harvest else 0,
        )

    def run(self, say: Say = lambda text: None) -> ServingMeasure:
        """Replay all requests until the last has ended."""
        self._register()
        self._schedulers.begin()
        number = 0
        quiet = 0  # steps since anything happened
        while len(self.measure.latencies_s) < len(self._requests):
            number += 1
            if quiet > STEPS_OF_TICK * self.parameters.schedulers:
                number = max(number, ceil(self._next_s(number * self._step_s) / self._step_s))
            quiet = 0 if self._step(number) else quiet + 1
            say(f"{len(self.measure.latencies_s):,} of {len(self._requests):,} requests have ended")
        return self.measure

    def _at_s(self, index: int) -> float:
        """Return when a request comes, on the virtual clock."""
        return self._requests[index].at_s / self.parameters.speed

    def _next_s(self, now_s: float) -> float:
        """Return when a request comes or ends next, or the capacity of a node changes."""
        times_s = [end_s for end_s, *_ in self._running[:1]]
        if self._arrived < len(self._requests):
            times_s.append(self._at_s(self._arrived))
        if self._harvest:
            times_s.append(self._harvest.next_s(now_s))
        return min(times_s, default=0.0)

    def _step(self, number: int) -> bool:
        """Play a step; return whether a request came, began or ended."""
        now_s = number * self._step_s
        self._store.now_ms = round(now_s * 1000)
        starts = self.measure.starts
        happened = self._end_until(now_s) + self._shrink(now_s) + self._submit_until(now_s)
        tick, steps_since_tick = divmod(number, STEPS_OF_TICK)
        if steps_since_tick == 0:
            self._schedulers.on_tick(tick)
        self._schedulers.work(now_s)
        return bool(happened or self.measure.starts > starts)

    def _register(self) -> None:
        """Register the nodes as their workers would."""
        commands = self._store.commands
        partitions = self.parameters.partitions
        self._store.run(commands.configure({"partitions": partitions, "shards": 1}))
        tasks = KnownTasks.of({SERVE_TASK: None})
        for number, name in enumerate(self.nodes):
            slots = self._harvest.slots(name) if self._harvest else self.parameters.slots
            offer = offer_with(Resources.of(slots, labels={HOST_LABEL: name}), tasks)
            self._store.run(commands.offer(name, offer.text, tasks))
            p = number % partitions
            inc, _ = self._store.run(commands.register_node(p, name, 0, 1.0, offer.text))
            if self._harvest:
                self._harvest.on_registered(name, p, inc, offer)

    def _submit_until(self, now_s: float) -> int:
        """Submit the requests that have come by now; return how many."""
        begin = self._arrived
        while self._arrived < len(self._requests) and self._at_s(self._arrived) <= now_s:
            self._arrived += 1
        for first in range(begin, self._arrived, MAX_BATCH):
            batch = range(first, min(first + MAX_BATCH, self._arrived))
            submissions = [
                Submission(str(i), SERVE_TASK, b"{}", self._options[self._requests[i].model])
                for i in batch
            ]
            words = self._store.run(self._store.commands.submit(submissions))
            if set(words) != {"submitted"}:
                raise BrokenContract(f"a request was not submitted: {', '.join(sorted(words))}")
        return self._arrived - begin

    def _start(self, core: Core, now_s: float) -> None:
        """Start the requests of won claims, as their nodes' workers do."""
        places = [*core.won.unconfirmed]
        if not places:
            return
        self._store.run(self._store.commands.start(places))
        for place in places:
            self._store.pipe_each([("delete", self._store.keys.inbox(place.partition, place.node))])
            index = int(place.task)
            request = self._requests[index]
            node = self.nodes[place.node]
            is_cold, begin_s = node.use(request.model, now_s, self._loads_s[index])
            self.measure.starts += 1
            self.measure.cold_starts += is_cold
            end_s = begin_s + request.runs_s
            heapq.heappush(self._running, (end_s, self.measure.starts, place))
            if self._harvest:
                self._harvest.on_started(place, now_s)
        core.won.confirmed(len(places))

    def _shrink(self, now_s: float) -> int:
        """Let the nodes follow their machines; return how much has changed."""
        if not self._harvest:
            return 0
        changed = self._harvest.follow(now_s)
        recalled = self._harvest.recall(now_s)
        self._recalled.update(recalled)
        self.measure.recalls.update(place.task for place in recalled)
        return changed + len(recalled)

    def _end_until(self, now_s: float) -> int:
        """End the requests whose time is over; return how many."""
        ended: defaultdict[int, list[Place]] = defaultdict(list)
        while self._running and self._running[0][0] <= now_s:
            end_s, _, place = heapq.heappop(self._running)
            if place in self._recalled:
                self._recalled.remove(place)
                continue
            if self._harvest:
                self._harvest.on_ended(place, now_s)
            self.measure.latencies_s.append(end_s - self._at_s(int(place.task)))
            ended[place.partition].append(place)
        for partition, places in ended.items():
            finish = self._store.commands.finish([(place, "succeeded", "") for place in places])
            self._store.run(finish)
            self._store.run(self._store.commands.release(partition, places))
        return sum(map(len, ended.values()))

"""A replay of requests that are placed when they come, or refused: how many servers are enough.

Time is the trace's. A tick is a gap / N; at a tick each scheduler reads the partitions that are
due. A request goes to a scheduler chosen by chance, which places it by its view. If that scheduler
finds no server, the other schedulers try. If none does, the request is refused and forgotten.
Before each request the machines whose time is over free what they hold.
"""

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from parsync_redis.errors import BrokenContract, InvalidInput
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import Strategy, TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.freshness import TurnRule, partitioned
from parsync_redis.scheduler.process.plan_runner import PlanRunner

from ..bench.watch import Say
from ..flags import check_flag
from ..simulate.modes import whole_state
from .azure_trace import SERVER_CORES, SERVER_RAM, SERVER_SLOTS, AzureTrace, MachineRequest
from .nodes import end_tasks, register_nodes, start_tasks
from .virtual_store import VirtualStore

MACHINE: Final = "trace.machine"
STEP: Final = 10
"""Servers are counted in such steps."""

MOST_PLANS: Final = 1000
"""The most plans of a scheduler about one event."""


@dataclass(frozen=True, slots=True)
class PackingPolicy:
    """A way to choose servers.

    prefer: the wishes of each request, as a kind has them.
    turn_rule: which partitions a scheduler reads at a tick.
    """

    prefer: str
    turn_rule: TurnRule = partitioned


POLICIES: Final[Mapping[str, PackingPolicy]] = {
    "pack": PackingPolicy("pack"),
    "pack-whole": PackingPolicy("pack", whole_state),
    "spread": PackingPolicy("spread"),
    "random": PackingPolicy(""),
}
"""By name. With pack-whole a scheduler reads all partitions at once, so none is fresher."""

BEST_FIT: Final = "best-fit"
"""One decider that knows everything: the server on which least is left of the scarcest amount."""


@dataclass(frozen=True, slots=True)
class PackingParameters:
    """The parameters of the replay; the times are the trace's."""

    schedulers: int = 4
    partitions: int = 8
    gap_s: float = 300.0
    seed: int = 1

    def __post_init__(self) -> None:
        check_flag("--partitions", self.partitions, 1, 4096, "a whole number from 1 to 4096")
        most = f"a whole number from 1 to {self.partitions}, the number of partitions"
        check_flag("--schedulers", self.schedulers, 1, self.partitions, most)
        check_flag("--gap", self.gap_s, 1, 1e6, "a number of seconds from 1 to 1,000,000")
        check_flag("--seed", self.seed, 0, 2**63 - 1, "a whole number, 0 or more")

    @property
    def tick_s(self) -> float:
        """Return the length of a tick: N ticks per gap."""
        return self.gap_s / self.schedulers


@dataclass(slots=True)
class Packing:
    """The result of one replay on so many servers.

    requests: those that came; fewer than all if the replay ended at a refusal.
    refused: requests that found no server.
    most_machines: the most machines that a server had at once.
    """

    servers: int
    requests: int = 0
    refused: int = 0
    claims: int = 0
    lost_claims: int = 0
    most_machines: int = 0
    cpu_s: float = 0.0


class PackingReplay:
    """The product's schedulers place the requests of a trace on equal servers.

    store: it has every request as a task.
    """

    def __init__(
        self, trace: AzureTrace, servers: int, policy: PackingPolicy, parameters: PackingParameters
    ) -> None:
        self._trace = trace
        self._tick_s = parameters.tick_s
        self.store = VirtualStore("replay")
        dice, *seeds = np.random.SeedSequence(parameters.seed).spawn(1 + parameters.schedulers)
        self._rng = np.random.default_rng(dice)
        self._cores = [
            Core(
                f"s{number}",
                parameters.partitions,
                Strategy.QUALITY,
                float("inf"),
                np.random.default_rng(seed),
                turn_rule=policy.turn_rule,
            )
            for number, seed in enumerate(seeds)
        ]
        self._runners = [PlanRunner(self.store, core) for core in self._cores]
        self._prefer = policy.prefer
        self._options: dict[Resources, TaskOptions] = {}
        self._end_s = {request.name: request.end_s for request in trace.requests}
        # a heap of (end, number of the placement, place)
        self._running: list[tuple[float, int, Place]] = []
        self._machines: dict[str, int] = {}
        self._placed = 0
        self._tick = 0
        self._now_s = 0.0
        self.result = Packing(servers)
        offer = Resources.of(SERVER_SLOTS, {"cores": SERVER_CORES, "ram": SERVER_RAM}, {})
        offers = {f"server-{number:05}": offer for number in range(servers)}
        register_nodes(self.store, offers, MACHINE, parameters.partitions)
        for ordinal, core in enumerate(self._cores):
            core.on_members(ordinal, parameters.schedulers)

    def run(self, to_refusal: bool, say: Say = lambda text: None) -> Packing:
        """Replay all requests. to_refusal: only until one is refused."""
        begin_s = time.process_time()
        for request in self._trace.requests:
            self._go_to(request.at_s)
            self.result.requests += 1
            if not self._place(request):
                self._refuse(request)
                if to_refusal:
                    break
            if not self.result.requests % 100:
                say(
                    f"{self.result.servers:,} servers: {self.result.requests:,} of "
                    f"{len(self._trace.requests):,} requests, {self.result.refused:,} refused"
                )
        self.result.claims = sum(core.counters.claims for core in self._cores)
        self.result.lost_claims = sum(core.counters.conflicts for core in self._cores)
        self.result.cpu_s = time.process_time() - begin_s
        return self.result

    def _go_to(self, at_s: float) -> None:
        """Let time pass: machines end, and schedulers read the partitions that are due."""
        while (tick_s := self._tick * self._tick_s) <= at_s:
            self._set_clock(tick_s)
            for number, core in enumerate(self._cores):
                core.on_tick(self._tick)
                self._settle(number)
            self._tick += 1
        self._set_clock(at_s)

    def _set_clock(self, now_s: float) -> None:
        """Set the clock, and end the machines whose time is over."""
        self._now_s = now_s
        self.store.now_ms = round(now_s * 1000)
        ended = list[Place]()
        while self._running and self._running[0][0] <= now_s:
            ended.append(heapq.heappop(self._running)[2])
        for place in ended:
            self._machines[place.node] -= 1
        if ended:
            end_tasks(self.store, ended)

    def _place(self, request: MachineRequest) -> bool:
        """Submit a request; return whether a scheduler has placed it."""
        needs = request.needs
        options = self._options.get(needs)
        if options is None:
            options = TaskOptions(needs, wait_for_capacity=True, prefer=self._prefer)
            self._options[needs] = options
        words = self.store.run(
            self.store.commands.submit([Submission(request.name, MACHINE, b"{}", options)])
        )
        if words != ["submitted"]:
            raise BrokenContract(f"a request was not submitted: {', '.join(words)}")
        placed = self._placed
        for number in self._rng.permutation(len(self._cores)).tolist():
            self._cores[number].on_wake()
            self._settle(number)
            if self._placed > placed:
                return True
        return False

    def _refuse(self, request: MachineRequest) -> None:
        """Cancel a request that found no server, and let a scheduler that has it forget it."""
        self.result.refused += 1
        self.store.run(self.store.commands.cancel([request.name]))
        for core in self._cores:
            if core.in_flight:
                core.forget()

    def _settle(self, number: int) -> None:
        """Carry out the plans of a scheduler until it has nothing to do."""
        core = self._cores[number]
        for _ in range(MOST_PLANS):
            plan = core.plan(confirm=False)
            if not plan:
                return
            self._runners[number].carry_out(plan, lambda: self._now_s)
            for place in start_tasks(self.store, core):
                self._start(place)

    def _start(self, place: Place) -> None:
        self._placed += 1
        machines = self._machines.get(place.node, 0) + 1
        if machines == SERVER_SLOTS:
            raise InvalidInput(
                f"{place.node} has {machines} machines: the replay gives a server so many slots"
            )
        self._machines[place.node] = machines
        self.result.most_machines = max(self.result.most_machines, machines)
        if (end_s := self._end_s[place.task]) < float("inf"):
            heapq.heappush(self._running, (end_s, self._placed, place))


def best_fit(trace: AzureTrace, servers: int, to_refusal: bool) -> Packing:
    """Place each request on the server where least is left, as one decider would."""
    begin_s = time.process_time()
    result = Packing(servers)
    full = np.array([SERVER_CORES, SERVER_RAM])
    amounts_left = np.tile(full, (servers, 1))
    machines = np.zeros(servers, dtype=np.int64)
    ends: list[tuple[float, str, int, MachineRequest]] = []
    for request in trace.requests:
        result.requests += 1
        while ends and ends[0][0] <= request.at_s:
            _, _, server, ended = heapq.heappop(ends)
            amounts_left[server] += (ended.cores, ended.ram)
            machines[server] -= 1
        after = ((amounts_left - (request.cores, request.ram)) / full).min(axis=1)
        after[after < 0] = np.inf
        server = int(after.argmin())
        if after[server] == np.inf:
            result.refused += 1
            if to_refusal:
                break
            continue
        result.claims += 1
        amounts_left[server] -= (request.cores, request.ram)
        machines[server] += 1
        result.most_machines = max(result.most_machines, int(machines[server]))
        heapq.heappush(ends, (request.end_s, request.name, server, request))
    result.cpu_s = time.process_time() - begin_s
    return result


def replay_azure(
    trace: AzureTrace,
    policies: Sequence[str],
    servers: int | None,
    parameters: PackingParameters,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Replay a trace by policies of POLICIES and BEST_FIT, by all if none is named.

    servers: count the refusals on so many servers; None finds the fewest servers for each policy.
    """
    all_policies = (*POLICIES, BEST_FIT)
    for name in policies:
        if name not in all_policies:
            raise InvalidInput(
                f"--policy {name!r} is not known: known are {', '.join(all_policies)}"
            )
    results = dict[str, Any]()
    for name in policies or all_policies:

        def play(servers: int, to_refusal: bool = True, name: str = name) -> Packing:
            if name == BEST_FIT:
                return best_fit(trace, servers, to_refusal)
            replay = PackingReplay(trace, servers, POLICIES[name], parameters)
            return replay.run(to_refusal, lambda text: say(f"{name}, {text}"))

        if servers is None:
            results[name] = asdict(fewest_servers(play, trace.least_servers))
        else:
            results[name] = asdict(play(servers, to_refusal=False))
    return {
        "requests": len(trace.requests),
        "interval_s": trace.interval_s,
        "least_servers": trace.least_servers,
        "parameters": asdict(parameters),
        "requests_behind": parameters.gap_s / 2 / trace.interval_s,
        "policies": results,
    }


def fewest_servers(play: Callable[[int], Packing], least: int) -> Packing:
    """Return the replay on the fewest servers that refuses nothing, in steps of STEP.

    play: replays on so many servers, until a refusal.
    least: fewer servers than this are not enough.

    More servers are taken to refuse no more than fewer servers.
    """
    enough_by_count = dict[int, Packing]()

    def is_enough(servers: int) -> bool:
        result = play(servers)
        if not result.refused:
            enough_by_count[servers] = result
        return not result.refused

    low = (least - 1) // STEP * STEP
    step = STEP
    while not is_enough(low + step):
        low += step
        step *= 2
    high = low + step
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return enough_by_count[high]

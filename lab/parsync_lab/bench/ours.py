"""The contender *parsync* (schedulers, stand-ins for agents, generators) and the rival *state*."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Event
from typing import Any, Final

import numpy as np

from parsync_redis.inspect.audit import audit
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.placement.strategy import Floats
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.demand import read_kinds
from parsync_redis.store.store import Store

from ..simulate.modes import whole_state
from .load import BENCH_TASK, SubmitNumbers, task_id, through_client
from .parameters import BenchParameters, System
from .processes import Member, Processes
from .standins import stand_in

BENCH_CLUSTER: Final = "bench"
CLUSTER_START_S: Final = 120.0
TIMED_STEPS: Final = ("submitted", "placed", "started", "finished")
TASKS_PER_READ: Final = 2000


@dataclass(slots=True)
class TaskTimes:
    """The times of each task (server ms, nan for never), and the findings of the audit."""

    submitted_ms: Floats
    placed_ms: Floats
    started_ms: Floats
    finished_ms: Floats
    audit: dict[str, Any]


def read_times(
    store: Store, numbers: Sequence[int]
) -> tuple[list[tuple[TaskState, int]], list[Floats]]:
    """Return (state, starts) of each task, and its four times as arrays."""
    ids = [task_id(number, store.keys.shards) for number in numbers]
    statuses: list[TaskStatus] = []
    for first in range(0, len(ids), TASKS_PER_READ):
        statuses += store.statuses(ids[first : first + TASKS_PER_READ])
    stamps = [
        [float(status.times.get(step) or "nan") for step in TIMED_STEPS] for status in statuses
    ]
    times = np.array(stamps, dtype=float).reshape(len(numbers), len(TIMED_STEPS))
    return [(status.state, status.starts) for status in statuses], [
        times[:, column] for column in range(len(TIMED_STEPS))
    ]


def settings_of(url: str, parameters: BenchParameters) -> Settings:
    """Return the settings of a bench's cluster."""
    return Settings.load(
        url=url,
        cluster=BENCH_CLUSTER,
        partitions=parameters.partitions,
        shards=parameters.shards or None,
        gap_s=parameters.gap_s,
        lease_s=parameters.lease_s,
        strategy=parameters.strategy,
    )


def set_up(store: Store, parameters: BenchParameters) -> None:
    """Create the cluster without starting a process."""
    join_cluster(store, settings_of("redis://127.0.0.1", parameters), create=True)


def named(url: str, kind: str) -> str:
    """Return the URL with a client name, which tells the processes apart in the server's list."""
    return f"{url}?client_name={kind}"


class ParsyncContender:
    """parsync under load; the schedulers of the rival *state* read the whole state once a gap.

    idle: no tasks will come, so that stand-ins do not read inboxes.
    """

    def __init__(
        self, url: str, parameters: BenchParameters, processes: Processes, idle: bool = False
    ) -> None:
        self.url = url
        self.parameters = parameters
        self.processes = processes
        self.idle = idle
        self.store = Store.from_url(url, BENCH_CLUSTER)
        self.settings = settings_of(named(url, "schedulers"), parameters)
        self._schedulers: list[Member] = []

    def start(self, say: Callable[[str], None]) -> None:
        """Create the cluster, register all nodes, and wait until every scheduler sees all slots."""
        parameters = self.parameters
        join_cluster(self.store, self.settings, create=True)
        plans = parameters.node_plans()
        agents = [
            self.processes.start(
                "agents",
                stand_in(
                    named(self.url, "agents"),
                    BENCH_CLUSTER,
                    plans[number :: parameters.agents],
                    parameters.partitions,
                    parameters.duration_s,
                    parameters.lease_s,
                    BENCH_TASK,
                    self.idle,
                ),
            )
            for number in range(parameters.agents)
        ]
        say(f"{parameters.nodes} nodes register")
        for agent in agents:
            self.processes.hear(agent, CLUSTER_START_S + parameters.nodes / 20)
        names = [f"s{number:02d}" for number in range(parameters.schedulers)]
        self._schedulers = [
            self.processes.start("schedulers", scheduler_job(self.settings, n, parameters.system))
            for n in names
        ]
        say(f"{parameters.schedulers} schedulers read them")
        deadline = time.monotonic() + CLUSTER_START_S
        while [row.get("free") for row in self.stats()] != [
            str(parameters.slots)
        ] * parameters.schedulers:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {CLUSTER_START_S:g} s not every scheduler sees all "
                    f"{parameters.slots} slots"
                )
            self.processes.pause(0.2)

    def connect(self) -> Callable[[], SubmitNumbers]:
        """Return a function that a generator calls to get its submit function."""
        return through_client(self.url, BENCH_CLUSTER, self.parameters.task_kinds())

    def stats(self) -> list[dict[str, str]]:
        """Return the schedulers' own figures."""
        return [
            self.store.hash(self.store.keys.stats(f"s{n:02d}"))
            for n in range(self.parameters.schedulers)
        ]

    def open(self) -> int:
        """Count the submitted tasks that are not final."""
        reads = [("zcard", "later"), ("hlen", "taken"), ("hlen", "running")]
        counts: list[int] = self.store.pipe(
            [(command, key) for command, kind in reads for key in self.store.keys.queues(kind)]
        )
        return sum(counts) + sum(line.count for line in read_kinds(self.store).values())

    def end(self, numbers: Sequence[int]) -> tuple[TaskTimes, dict[str, Any]]:
        """Stop all processes and audit the state; return the times of the tasks, and counts."""
        counters: list[dict[str, int]] = self.processes.finish("schedulers")
        runs = self.processes.finish("agents")
        states, times = read_times(self.store, numbers)
        started = [id for ran in runs for id in ran.started]
        facts = audit(self.store)
        keys = self.store.keys
        partitions = range(self.parameters.partitions)
        client: Any = self.store.client
        free = sum(client.bitcount(keys.partition(p, "free")) for p in partitions)
        counted = sum(int(client.hget(keys.partition(p, "meta"), "free") or 0) for p in partitions)
        placed = sum(row["placed"] for row in counters)
        audit_counts = {
            "lost": sum(state != (TaskState.SUCCEEDED, 1) for state in states),
            "ran_twice": len(started) - len(set(started)),
            "leaked_slots": sum(client.hlen(keys.partition(p, "slots")) for p in partitions),
            "bitmap_mismatches": abs(self.parameters.slots - free)
            + sum("free bit" in fact for fact in facts),
            "counter_mismatches": abs(self.parameters.slots - counted)
            + abs(len(numbers) - sum(r.finished for r in runs)),
            "facts": len(facts),
            "first_facts": facts[:5],
        }
        counts = {
            name: sum(row[name] for row in counters)
            for name in ("claims", "conflicts", "taken", "reads")
        }
        counts |= {
            "placed": placed,
            "refused": sum(r.refused for r in runs),
            "lapsed": sum(r.lapsed for r in runs),
        }
        return TaskTimes(times[0], times[1], times[2], times[3], audit_counts), counts


def scheduler_job(
    settings: Settings, name: str, system: str = System.PARSYNC
) -> Callable[[Event, Callable[[Any], None]], dict[str, int]]:
    """Return the job of a scheduler, which runs until stopped and returns its counters."""

    def job(stop: Event, tell: Callable[[Any], None]) -> dict[str, int]:
        store = Store.from_url(
            settings.url, settings.cluster, settings.retention_s, settings.max_starts
        )
        config = join_cluster(store, settings, create=True)
        assert config is not None
        core = None
        if system == System.STATE:
            dice = np.random.default_rng()
            core = Core(
                name,
                config.partitions,
                settings.strategy,
                settings.tau_s,
                dice,
                turn_rule=whole_state,
                asks=False,
                shards=config.shards,
            )
        scheduler = Scheduler(store, config, settings, name, core=core)
        scheduler.run(stop)
        return asdict(scheduler.core.counters)

    return job

"""The cluster of `bench queue`: a server, schedulers, and a stand-in for each node's agent."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from parsync_redis.client import ParsyncClient
from parsync_redis.inspect.audit import audit
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import Strategy
from parsync_redis.model.task import TaskState
from parsync_redis.placement.strategy import Floats
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer

from .load import BENCH_TASK, task_id
from .ours import BENCH_CLUSTER, CLUSTER_START_S, named, read_times, scheduler_job, settings_of
from .parameters import BenchParameters
from .placement import facts_of
from .processes import Processes, cpu_of
from .standins import NodePlan, stand_in

RIG_PARTITIONS: Final = 8
FOR_EVER_S: Final = 3600.0
"""The run time of the busy node's tasks, longer than any bench."""

TaskFields = Mapping[str, Any]
"""The options of a task, as in `parsync={...}`."""


@dataclass(frozen=True, slots=True)
class Home:
    """A node of the rig: its offer, and the run time of its tasks."""

    name: str
    offer: Resources
    hold_s: float


class Rig:
    """A running cluster.

    It numbers the tasks in the order of their submits.
    """

    def __init__(
        self, server: EmbeddedServer, processes: Processes, homes: Sequence[Home], schedulers: int
    ) -> None:
        self.processes = processes
        self._server = server
        self._homes = homes
        self._names = [f"s{number}" for number in range(schedulers)]
        self._slots = sum(home.offer.slots for home in homes)
        # the strategy of a new cluster
        self._parameters = BenchParameters(partitions=RIG_PARTITIONS, strategy=Strategy.ADAPTIVE)
        self._settings = settings_of(server.url, self._parameters)
        self.client = ParsyncClient(self._settings)
        self.store = self.client.store
        self.submitted = 0

    def start(self) -> None:
        """Create the cluster, register the nodes, and wait until every scheduler sees all slots."""
        join_cluster(self.store, self._settings, create=True)
        url = named(self._server.url, "agents")
        lease_s = self._parameters.lease_s
        agents = [
            stand_in(
                url,
                BENCH_CLUSTER,
                [NodePlan(home.name, home.offer, 1.0)],
                RIG_PARTITIONS,
                home.hold_s,
                lease_s,
                BENCH_TASK,
            )
            for home in self._homes
        ]
        for agent in [self.processes.start("agents", job) for job in agents]:
            self.processes.hear(agent, CLUSTER_START_S)
        for name in self._names:
            self.processes.start("schedulers", scheduler_job(self._settings, name))
        self._until_all_see(self._slots)

    def _until_all_see(self, free: int) -> None:
        """Wait until every scheduler's copy has `free` free slots."""
        deadline = time.monotonic() + CLUSTER_START_S
        while any(
            self.store.hash(self.store.keys.stats(name)).get("free") != str(free)
            for name in self._names
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {CLUSTER_START_S:g} s not every scheduler sees {free} free slots"
                )
            self.processes.pause(0.1)

    def submit(self, tasks: Sequence[TaskFields]) -> range:
        """Submit tasks without pauses; return their numbers."""
        numbers = range(self.submitted, self.submitted + len(tasks))
        self.submitted += len(tasks)
        pairs = zip(numbers, tasks, strict=True)
        self.client.submit_many(
            {"name": BENCH_TASK, "id": task_id(number), **options} for number, options in pairs
        )
        return numbers

    def times(self, numbers: Sequence[int]) -> list[Floats]:
        """Return when each task was submitted, placed, started and finished.

        Server times in ms, nan for never.
        """
        return read_times(self.store, numbers)[1]

    def until(self, numbers: Sequence[int], state: TaskState, most_s: float) -> bool:
        """Wait until all tasks are in a state; return False if not after `most_s` seconds."""
        ids = [task_id(number) for number in numbers]
        deadline = time.monotonic() + most_s
        while any(task.state is not state for task in self.client.statuses(ids)):
            if time.monotonic() > deadline:
                return False
            self.processes.pause(0.1)
        return True

    def occupy(self, options: TaskFields) -> None:
        """Submit a task that holds what other tasks wait for; return once all schedulers know."""
        if not self.until(self.submit([options]), TaskState.RUNNING, CLUSTER_START_S):
            raise TimeoutError(
                f"after {CLUSTER_START_S:g} s the task that holds the busy node does not run"
            )
        self._until_all_see(self._slots - 1)

    def cores(self, seconds: float) -> dict[str, float]:
        """Return the cores that the schedulers and the server use during `seconds`."""
        began_s = time.monotonic()
        before = self._cpu_s()
        self.processes.pause(seconds)
        took_s = time.monotonic() - began_s
        after = self._cpu_s()
        return {role: round((after[role] - before[role]) / took_s, 4) for role in before}

    def _cpu_s(self) -> dict[str, float]:
        return {
            "schedulers": self.processes.cpu_s()["schedulers"],
            "server": cpu_of(self._server.process.pid),
        }

    def end(self) -> list[str]:
        """Stop all processes; return the facts that an audit finds wrong."""
        self.processes.finish("schedulers")
        self.processes.finish("agents")
        return audit(self.store)

    def facts(self) -> dict[str, Any]:
        """Describe the machine and the versions."""
        return facts_of(self._server)


@contextmanager
def running(homes: Sequence[Home], schedulers: int, stop: threading.Event) -> Iterator[Rig]:
    """Yield a running cluster on a server of its own, and stop it at the end."""
    with EmbeddedServer() as server, Processes(stop) as processes:
        rig = Rig(server, processes, homes, schedulers)
        rig.start()
        with rig.client:
            yield rig

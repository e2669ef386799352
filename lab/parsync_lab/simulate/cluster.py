"""The simulated cluster: nodes with scores in a store in memory, and agents that run tasks."""

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from parsync_redis.model.claim import Claim, Verdict
from parsync_redis.model.kind import Kind
from parsync_redis.model.node import Node
from parsync_redis.model.options import ONE_SLOT
from parsync_redis.model.place import GiveBack, Place
from parsync_redis.model.preferences import preferences_text
from parsync_redis.model.replies import Snapshot
from parsync_redis.model.task import Taken
from parsync_redis.store.reference.leases import NodeRecord as Record
from parsync_redis.store.reference.records import Job
from parsync_redis.store.reference.store import MemoryStore, Partition, Queue

from .parameters import SIM_NODE_SLOTS, Parameters

WORK_NAME: Final = "work"


class SimCluster:
    """The nodes, partitions, and one queue per group of schedulers, which behave as in Redis."""

    def __init__(self, parameters: Parameters, groups: int, rng: np.random.Generator) -> None:
        self.store = MemoryStore("simulated")
        self.queues = [Queue(self.store) for _ in range(groups)]
        self.held = [0] * groups
        self.score: dict[str, float] = {}
        self.changed_s: dict[str, float] = {}  # when a slot of a node was last taken or freed
        # a heap of (end, sequence number, group, place)
        self._running: list[tuple[float, int, int, Place]] = []
        self._started = 0
        self._prefer = preferences_text(parameters.prefer)
        self._job = Job(Kind(WORK_NAME, ONE_SLOT.text, prefer=self._prefer).text, b"")
        for p, name, slots, score in _nodes(parameters, rng):
            self.store.run(self.store.commands.register_node(p, name, 0, score, f"slots={slots}"))
            self.score[name] = score
        self.partitions: list[Partition] = [
            self.store.partition(p) for p in range(parameters.partitions)
        ]
        self.nodes = [
            [_as_node(node) for node in partition.nodes.values()] for partition in self.partitions
        ]

    def submit(self, group: int, id: str, at_s: float, slots: int = 1) -> None:
        """Submit a task of a group; tasks of several slots have a task name of their own."""
        self.store.now_ms = round(at_s * 1000)
        job = self._job
        if slots > 1:
            job = Job(Kind(f"work{slots}", f"slots={slots}", prefer=self._prefer).text, b"")
        self.queues[group].admit(id, job)

    def waiting(self, group: int) -> int:
        """Return the number of a group's tasks that wait to be taken."""
        return self.queues[group].pending

    def give_back(
        self, group: int, scheduler: str, tasks: Sequence[tuple[str, str, GiveBack]]
    ) -> None:
        """Give back tasks for which a scheduler has no other seat; each as (id, attempt, how)."""
        for id, attempt, how in tasks:
            self.queues[group].give_back_at(scheduler, id, attempt, how)

    def take_all(self, group: int, scheduler: str, count: int) -> list[Taken]:
        """Take up to `count` of a group's tasks, whatever its schedulers see."""
        return list(self.queues[group].took(scheduler, [(self._job.kind, count)]).tasks)

    def read(self, p: int, version: int) -> Snapshot:
        """Return a partition's snapshot."""
        return self.partitions[p].read(p, version)

    def commit(self, p: int, claims: Sequence[Claim], now_s: float) -> list[Verdict]:
        """Judge claims of one partition; return their verdicts."""
        self.store.now_ms = round(now_s * 1000)
        return self.partitions[p].judge_claims(claims)

    def start(self, group: int, claim: Claim, now_s: float, runs_s: float) -> None:
        """Start the task of a won claim, as the node's agent does; it runs for `runs_s`."""
        partition = self.partitions[claim.partition]
        place = partition.leases[claim.node, claim.slots[0]]
        partition.nodes[claim.node].inbox.clear()
        self.queues[group].start_at(place)
        self.held[group] += len(claim.slots)
        self.changed_s[claim.node] = now_s
        self._started += 1
        heapq.heappush(self._running, (now_s + runs_s, self._started, group, place))

    def fill(self, count: int, duration_s: float, rng: np.random.Generator) -> None:
        """Make `count` slots busy, drawn evenly.

        Running times are exponential, with the mean `duration_s`.
        """
        seats = [
            (p, node, slot)
            for p, nodes in enumerate(self.nodes)
            for node in nodes
            for slot in range(node.offer.slots)
        ]
        for number, i in enumerate(rng.permutation(len(seats))[:count].tolist()):
            p, node, slot = seats[i]
            self.submit(0, f"f{number}", 0.0)
            (task,) = self.take_all(0, "fill", 1)
            epoch = self.partitions[p].epoch
            claim = Claim(
                task.id, task.attempt, p, node.name, (slot,), node.inc, "", node.first, epoch
            )
            self.commit(p, [claim], 0.0)
            self.start(0, claim, 0.0, float(rng.exponential(duration_s)))

    def confirm(self, group: int, places: Sequence[Place]) -> None:
        """Confirm won claims; most of their tasks run already."""
        for place in places:
            self.queues[group].confirm_at(place)

    def finish_until(self, now_s: float) -> None:
        """Finish every task that ends by now, and free its slots."""
        while self._running and self._running[0][0] <= now_s:
            end_s, _, group, place = heapq.heappop(self._running)
            self.store.now_ms = round(end_s * 1000)
            self.queues[group].finish_at(place, "succeeded")
            self.queues[group].forget(place.task)
            self.partitions[place.partition].free_leases((place,), "", "")
            self.held[group] -= len(place.slots)
            self.changed_s[place.node] = end_s


def _as_node(node: Record) -> Node:
    return Node(
        node.name,
        node.state,
        node.inc,
        node.drain,
        node.first,
        node.span,
        float(node.score),
        node.offer,
    )


def _nodes(
    parameters: Parameters, rng: np.random.Generator
) -> Iterator[tuple[int, str, int, float]]:
    """Yield (partition, name, slots, score) of each node, dealt to the partitions by turns."""
    slots_to_deal = parameters.scaled_slots
    number = 0
    while slots_to_deal > 0:
        slots = min(SIM_NODE_SLOTS, slots_to_deal)
        score = float(rng.normal(parameters.score_mean, parameters.score_variance**0.5))
        yield number % parameters.partitions, f"n{number}", slots, score
        slots_to_deal = slots_to_deal - slots
        number = number + 1

"""Nodes whose capacity follows the CPUs of harvest machines, in virtual time.

A node declares the most CPUs that its machine ever has, a slot each. Once a second it asks how many
there are, and tells the store if that has changed. If it has held more runs than its capacity for a
while, it recalls some of them, as a worker does: their tasks go back, and are placed anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf
from typing import Final

from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.store.store import Store
from parsync_redis.worker.node.capacity import CAPACITY_INTERVAL_S, NodeCapacity
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.runs import Run

from .serving_trace import CpuTrace

SHRINK_AFTER_S: Final = 10.0
"""For so long a node may hold more runs than its capacity: its flag --parsync-shrink-after."""
SHRUNK: Final = "its node has shrunk"


@dataclass(slots=True)
class HarvestNode:
    """A node on a harvest machine.

    capacity: what the node has told the store, in slots.
    over_s: since when it holds more; inf if it does not.
    has_news: its capacity has changed since then, or a run behind it has ended.
    runs: what runs on it.
    """

    machine: CpuTrace
    spec: NodeSpec
    partition: int
    inc: int
    capacity: int
    over_s: float = inf
    has_news: bool = False
    runs: dict[Place, Run] = field(default_factory=dict)

    def next_s(self, now_s: float) -> float:
        """Return when the node asks and gets another answer, or recalls runs, at the earliest."""
        change_s = self.machine.next_s(now_s)
        if self.machine.at(now_s) != self.capacity:
            change_s = now_s
        asks_s = floor(change_s / CAPACITY_INTERVAL_S + 1) * CAPACITY_INTERVAL_S
        return min(asks_s, self.over_s + SHRINK_AFTER_S)

    def ask(self, now_s: float) -> None:
        """Ask for the capacity."""
        capacity = self.machine.at(now_s)
        if capacity != self.capacity:
            self.capacity = capacity
            self.spec.capacity.take(f"slots={capacity}")
            self.has_news = True
            self.note_runs(now_s)

    def note_runs(self, now_s: float) -> None:
        """Note since when the node holds more runs than its capacity."""
        if len(self.runs) <= self.capacity:
            self.over_s = inf
        else:
            self.over_s = min(self.over_s, now_s)


class Harvest:
    """The nodes of a replay on harvest machines.

    beyond: number of claims on slots beyond the capacity that their node had a second before.
    """

    def __init__(self, store: Store, machines: Mapping[str, CpuTrace]) -> None:
        """machines: by the name of the node."""
        self.beyond = 0
        self.nodes = dict[str, HarvestNode]()
        self._machines = machines
        self._store = store
        self._asked_s = -inf

    def slots(self, name: str) -> int:
        """Return the number of slots that a node declares."""
        return max(self._machines[name].cpus)

    def on_registered(self, name: str, partition: int, inc: int, offer: Resources) -> None:
        """Take a node that was registered with all its slots."""
        capacity = NodeCapacity(lambda: "", SHRINK_AFTER_S)
        spec = NodeSpec(name, offer, 1.0, capacity=capacity)
        self.nodes[name] = HarvestNode(self._machines[name], spec, partition, inc, offer.slots)

    def next_s(self, now_s: float) -> float:
        """Return when something happens next at the earliest."""
        return min(node.next_s(now_s) for node in self.nodes.values())

    def follow(self, now_s: float) -> bool:
        """Let each node ask if it is time, and tell its changed; return whether there were any."""
        if now_s >= self._asked_s + CAPACITY_INTERVAL_S:
            self._asked_s = floor(now_s / CAPACITY_INTERVAL_S) * CAPACITY_INTERVAL_S
            for node in self.nodes.values():
                node.ask(self._asked_s)
        changed = [node for node in self.nodes.values() if node.has_news]
        for node in changed:
            node.has_news = False
            self._tell(node)
        return bool(changed)

    def _tell(self, node: HarvestNode) -> None:
        """Tell the store what a node can give now, as its worker does."""
        spec = node.spec
        tell = self._store.commands.set_node(
            node.partition, spec.name, "offer", node.inc, spec.note
        )
        self._store.run(tell)

    def on_started(self, place: Place, now_s: float) -> None:
        """Take a run, and note whether its claim was beyond the capacity of a second ago."""
        node = self.nodes[place.node]
        node.runs[place] = Run(place)
        node.note_runs(now_s)
        capacity = node.machine.most(max(0.0, now_s - CAPACITY_INTERVAL_S), now_s)
        self.beyond += len(node.runs) > capacity

    def on_ended(self, place: Place, now_s: float) -> None:
        """Note the end of a run."""
        node = self.nodes[place.node]
        del node.runs[place]
        node.has_news = node.has_news or place.slot >= node.capacity
        node.note_runs(now_s)

    def recall(self, now_s: float) -> Sequence[Place]:
        """Recall runs beyond a capacity for too long, as a worker does; return them."""
        recalled = list[Place]()
        for node in self.nodes.values():
            if now_s >= node.over_s + SHRINK_AFTER_S:
                runs = node.runs.values()
                beyond = node.spec.capacity.runs_beyond(runs, runs, node.spec.offer)
                recalled += [run.place for run in beyond]
                for run in beyond:
                    self.on_ended(run.place, now_s)
        for place in recalled:
            self._store.run(self._store.commands.requeue([(place, SHRUNK)], "recalled"))
            self._store.run(self._store.commands.release(place.partition, [place]))
        return recalled

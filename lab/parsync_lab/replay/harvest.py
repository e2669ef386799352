"""Nodes whose capacity follows the CPUs of harvest machines, in virtual time.

A node declares the most CPUs that its machine ever has, a slot each. Once a second it asks how many
there are, and tells the store if that has changed. If it has held more runs than its capacity for a
while, it recalls the newest of them: their tasks go back, and are placed anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf
from typing import Final

from parsync_redis.model.needs import Resources
from parsync_redis.model.options import ONE_SLOT
from parsync_redis.model.place import Place
from parsync_redis.store.store import Store

from .serving_trace import CpuTrace

ASK_S: Final = 1.0
"""A node asks for its capacity so often."""
SHRINK_AFTER_S: Final = 10.0
"""For so long a node may hold more runs than its capacity."""
SHRUNK: Final = "its node has shrunk"


@dataclass(slots=True)
class HarvestNode:
    """A node on a harvest machine.

    capacity: what the node has told the store.
    over_s: since when it holds more; inf if it does not.
    runs: what runs on it, the newest last.
    """

    name: str
    machine: CpuTrace
    partition: int = 0
    inc: int = 0
    offer: Resources = ONE_SLOT
    capacity: int = 0
    over_s: float = inf
    runs: list[Place] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """The number of slots that the node declares."""
        return max(self.machine.cpus)

    def next_s(self, now_s: float) -> float:
        """Return when the node asks and gets another answer, or recalls runs, at the earliest."""
        change_s = self.machine.next_s(now_s)
        if self.machine.at(now_s) != self.capacity:
            change_s = now_s
        return min(floor(change_s / ASK_S + 1) * ASK_S, self.over_s + SHRINK_AFTER_S)

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
        self.nodes = {name: HarvestNode(name, machine) for name, machine in machines.items()}
        self.beyond = 0
        self._store = store
        self._asked_s = -ASK_S

    def on_registered(self, name: str, partition: int, inc: int, offer: Resources) -> None:
        """Note that a node is registered with all its slots."""
        node = self.nodes[name]
        node.partition = partition
        node.inc = inc
        node.offer = offer
        node.capacity = node.slots

    def next_s(self, now_s: float) -> float:
        """Return when something happens next at the earliest."""
        return min(node.next_s(now_s) for node in self.nodes.values())

    def follow(self, now_s: float) -> bool:
        """Let each node ask, if a second is over; return whether a capacity has changed."""
        if now_s < self._asked_s + ASK_S:
            return False
        self._asked_s = floor(now_s / ASK_S) * ASK_S
        changed = False
        for node in self.nodes.values():
            capacity = node.machine.at(self._asked_s)
            if capacity != node.capacity:
                node.capacity = capacity
                self._tell(node)
                node.note_runs(now_s)
                changed = True
        return changed

    def _tell(self, node: HarvestNode) -> None:
        """Tell the store what a node can give now."""
        offer = Resources.made(node.capacity, node.offer.amounts, node.offer.labels)
        note = f"1.0 {offer.text}"
        self._store.run(
            self._store.commands.set_node(node.partition, node.name, "offer", node.inc, note)
        )

    def on_started(self, place: Place, now_s: float) -> None:
        """Note a run, and whether its claim was beyond the capacity of a second ago."""
        node = self.nodes[place.node]
        node.runs.append(place)
        node.note_runs(now_s)
        capacity = node.machine.most(max(0.0, now_s - ASK_S), now_s)
        self.beyond += place.slot >= capacity or len(node.runs) > capacity

    def on_ended(self, place: Place, now_s: float) -> None:
        """Note the end of a run."""
        node = self.nodes[place.node]
        node.runs.remove(place)
        node.note_runs(now_s)

    def recall(self, now_s: float) -> Sequence[Place]:
        """Recall runs beyond a capacity for too long, the newest first; return them."""
        recalled = list[Place]()
        for node in self.nodes.values():
            if now_s >= node.over_s + SHRINK_AFTER_S:
                newest = node.runs[node.capacity :]
                del node.runs[node.capacity :]
                node.note_runs(now_s)
                recalled += newest
        for place in recalled:
            self._store.run(self._store.commands.requeue([(place, SHRUNK)], "recalled"))
            self._store.run(self._store.commands.release(place.partition, [place]))
        return recalled

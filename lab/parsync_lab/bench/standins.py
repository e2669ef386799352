"""Stand-ins for agents: one process serves many nodes.

It starts, holds, finishes and releases each task through the product's own calls; a wait stands for
the task's function. It does not run code, isolate runs on the machine, or compare leases with runs.
"""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from threading import Event
from typing import Any, Final, TypeVar

from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.store.scripts.calls import Call
from parsync_redis.store.store import Store
from parsync_redis.wire.doorbell import read_doorbell

from .wire import Wire, pack

log = logging.getLogger("parsync.bench")

T = TypeVar("T")
STAND_IN_POLL_S: Final = 0.02
"""The shortest interval between two looks into the inboxes of a stand-in's nodes."""

POLL_S_PER_NODE: Final = 1e-4
"""The polling interval per node; real workers wait for doorbells without polling."""

DOORBELLS_PER_POP: Final = 100
"""The maximum number of doorbells that a stand-in takes from an inbox at a time."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node to register: its offer and its score."""

    name: str
    offer: Resources
    score: float


@dataclass(slots=True)
class Ran:
    """The result of a stand-in: the ids of the accepted starts, and counts."""

    started: list[str] = field(default_factory=list)
    finished: int = 0
    refused: int = 0
    stale: int = 0
    lapsed: int = 0


def batches(rows: Sequence[T], size: int = MAX_BATCH) -> Iterator[Sequence[T]]:
    """Yield the rows in batches of `size`."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def poll_every_s(nodes: int) -> float:
    """Return the polling interval of a stand-in for so many nodes, in seconds."""
    return max(STAND_IN_POLL_S, POLL_S_PER_NODE * nodes)


def turn_until(stop: Event, poll_s: float, turn: Callable[[float], None]) -> None:
    """Call `turn(now_s)` every `poll_s` until stopped, then once with infinity to end all tasks."""
    next_s = time.monotonic()
    while not stop.is_set():
        turn(time.monotonic())
        next_s = max(next_s + poll_s, time.monotonic())
        stop.wait(next_s - time.monotonic())
    turn(float("inf"))


class StandIn:
    """A stand-in for the agents of some nodes.

    duration_s: how long each task holds its slots.
    idle: whether inboxes are not read.
    """

    def __init__(
        self, store: Store, nodes: Sequence[NodePlan], duration_s: float, lease_s: float
    ) -> None:
        self.store = store
        self.duration_s = duration_s
        self.lease_s = lease_s
        self.plans = nodes
        self.idle = False
        self._homes: list[tuple[str, int, int]] = []  # name, partition, incarnation
        # of each server: its connection, the packed requests for its inboxes, their number
        self._inboxes: list[tuple[Wire, bytes, int]] = []
        # (end, place) in order of the ends, because all tasks are held equally long
        self._held: deque[tuple[float, Place]] = deque()
        self._renewed = 0
        self.ran = Ran()

    def register(self, partitions: int, task_name: str) -> None:
        """Register all nodes as an agent does: deal to a partition, publish the offer, register."""
        commands = self.store.commands
        tasks = KnownTasks.of({task_name: None})
        offers = {n.name: offer_with(n.offer, tasks).text for n in self.plans}
        for batch in batches(self.plans, 100):
            dealt = self.store.run_all(
                [
                    commands.deal_node(
                        n.name,
                        partitions,
                        " ".join(f"{k}:{v}" for k, v in n.offer.labels),
                        n.offer.slots,
                        n.score,
                    )
                    for n in batch
                ]
            )
            self.store.run_all([commands.offer(n.name, offers[n.name], tasks) for n in batch])
            rows = list(zip(batch, dealt, strict=True))
            registrations = self.store.run_all(
                [commands.register_node(p, n.name, 0, n.score, offers[n.name]) for n, p in rows]
            )
            self._homes += [
                (n.name, p, inc) for (n, p), (inc, _) in zip(rows, registrations, strict=True)
            ]
        keys = [self.store.keys.inbox(p, name) for name, p, _ in self._homes]
        by_server: dict[tuple[str, int], list[str]] = {}
        for key, pool in self.store.pools_of(keys).items():
            address = pool.connection_kwargs
            by_server.setdefault((address["host"], address["port"]), []).append(key)
        self._inboxes = [
            (
                Wire(f"redis://{address[0]}:{address[1]}"),
                pack([("RPOP", key, DOORBELLS_PER_POP) for key in batch]),
                len(batch),
            )
            for address, batch in by_server.items()
        ]

    def run(self, stop: Event) -> Ran:
        """Serve the nodes until stopped; then every held task ends at once."""
        began_s = next_s = time.monotonic()
        poll_s = poll_every_s(len(self._homes))
        while not stop.is_set():
            self._renew(time.monotonic() - began_s)
            if not self.idle:
                self._start()
                self._end(time.monotonic())
            next_s = max(next_s + poll_s, time.monotonic())
            stop.wait(next_s - time.monotonic())
        self._start()
        self._end(float("inf"))
        return self.ran

    def _renew(self, elapsed_s: float) -> None:
        """Renew each node five times a lease, as an agent does, spread over that time."""
        due = int(elapsed_s / (self.lease_s / 5) * len(self._homes))
        due = min(due, self._renewed + len(self._homes))
        homes = [self._homes[position % len(self._homes)] for position in range(self._renewed, due)]
        self._renewed = due
        for words in self.store.run_all(
            [self.store.commands.renew(p, name, inc) for name, p, inc in homes]
        ):
            self.ran.lapsed += words[0] != "ok"

    def _start(self) -> None:
        """Take doorbells and start their tasks; release what is refused."""
        for wire, packed, _ in self._inboxes:
            wire.send(packed)
        answers = chain.from_iterable(wire.read(count) for wire, _, count in self._inboxes)
        places = [read_doorbell(bell) for bells in answers for bell in bells or ()]
        refused = []
        for batch in batches(places):
            words = self.store.run(self.store.commands.start(batch))
            end_s = time.monotonic() + self.duration_s
            for place, (word, _) in zip(batch, words, strict=True):
                if word == "refused":
                    refused.append(place)
                    continue
                self._held.append((end_s, place))
                if word == "ok":
                    self.ran.started.append(place.task)
        self.ran.refused += len(refused)
        self._release(refused)

    def _end(self, now_s: float) -> None:
        """Report outcomes and then free the slots, as Reporter does."""
        over = []
        while self._held and self._held[0][0] <= now_s:
            over.append(self._held.popleft()[1])
        for batch in batches(over):
            words = self.store.run(
                self.store.commands.finish([(place, "succeeded", "") for place in batch])
            )
            self.ran.finished += words.count("ok")
            self.ran.stale += words.count("stale")
        self._release(over)

    def _release(self, places: Sequence[Place]) -> None:
        by_partition: defaultdict[int, list[Place]] = defaultdict(list)
        for place in places:
            by_partition[place.partition].append(place)
        calls: list[Call[Any]] = [
            self.store.commands.release(p, batch)
            for p, all_of in by_partition.items()
            for batch in batches(all_of)
        ]
        self.store.run_all(calls)


def stand_in(
    url: str,
    cluster: str,
    nodes: Sequence[NodePlan],
    partitions: int,
    duration_s: float,
    lease_s: float,
    task_name: str,
    idle: bool = False,
) -> Callable[[Event, Callable[[Any], None]], Ran]:
    """Make a stand-in's job: register, report ready, and serve until stopped."""

    def job(stop: Event, tell: Callable[[Any], None]) -> Ran:
        store = Store.from_url(url, cluster)
        store.config()  # which tells the number of shards
        agents = StandIn(store, nodes, duration_s, lease_s)
        agents.register(partitions, task_name)
        agents.idle = idle
        tell("ready")
        return agents.run(stop)

    return job

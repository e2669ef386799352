"""Judge nodes by their counters: mark lost ones down, requeue their tasks, free their slots; forget old ones."""

import logging
from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any, Final, cast

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.node import Lease
from ...model.text import COUNTER, NODE
from ...store.repair import repair_partition
from ...store.server_errors import is_damage
from ...store.store import Store
from ..lease_watch import LeaseWatch
from .consistency import are_consistent
from .drains import DrainDuty
from .guarded import guarded, unless_away

log = logging.getLogger("parsync.leader")

FORGET_S: Final = 3600.0
"""A node that is down and holds nothing is forgotten after an hour."""

_TASK: Final = attrgetter("task")

KEYS: Final = ("alive", "lost", "notes", "nodes")


class NodeDuty:
    """The counters of all nodes, as this leader has watched them. A node is named by (partition, name).

    names: those of all nodes at the last look; None if a partition was away.
    """

    def __init__(self, store: Store, partitions: int, lease_s: float) -> None:
        self._store, self._partitions = store, partitions
        self._up, self._down = LeaseWatch(lease_s), LeaseWatch(FORGET_S)
        self._drains = DrainDuty(store, lease_s)
        self.names: set[str] | None = None

    def reset(self, partitions: Collection[int] | None = None) -> None:
        """Watch anew: no node is judged for one lease, or none of these partitions."""
        for watch in (self._up, self._down):
            watch.reset(lambda node: partitions is None or cast(tuple[int, str], node)[0] in partitions)

    def work(self, clock: Callable[[], float]) -> None:
        """Repair inconsistent partitions, reclaim lost nodes, end drains and suspicions, forget nodes that are down."""
        up: dict[Any, str] = {}
        down: dict[Any, str] = {}
        notes: dict[tuple[int, str], tuple[str, str]] = {}
        replies = self._read()
        now_s = clock()
        known = {readable(name) for *_, records in replies.values() for name in records}
        self.names = known if len(replies) == self._partitions else None
        for p, (counters, lost, noted, records) in replies.items():
            for name, line in counters.items():
                (down if line.endswith(b"down") else up)[p, readable(name)] = readable(line)
            if not all(map(COUNTER.match, counters.values())) or not are_consistent(records, counters, noted):
                guarded(self._store, "repair_partition", repair_partition, self._store, p, "shut")
            for node in lost:
                guarded(self._store, "reclaim", self.reclaim, p, readable(node))
            for name, text in noted.items():
                record = NODE.read(readable(records.get(name, b""))) or {"drain": ""}
                notes[p, readable(name)] = record["drain"], readable(text)
        guarded(self._store, "drains", self._drains.work, now_s, notes)
        self._judge(now_s, {node: line for node, line in up.items() if COUNTER.read(line)}, down)

    def _read(self) -> dict[int, list[Any]]:
        """Return, for each partition, what its KEYS hold; empty where a key was damaged and is repaired.

        Partitions whose primary is away are left out, so that their nodes are watched anew when it is back.
        """
        keys = self._store.keys
        with self._store.client.pipeline(transaction=False) as pipe:
            for p in range(self._partitions):
                for name in KEYS:
                    (pipe.smembers if name == "lost" else pipe.hgetall)(keys.partition(p, name))
            replies = pipe.execute(raise_on_error=False)
        found = {}
        for p in range(self._partitions):
            mine = replies[len(KEYS) * p : len(KEYS) * (p + 1)]
            with unless_away(self._store):
                found[p] = [self._readable(reply, p) or {} for reply in mine]
        return found

    def _readable(self, reply: Any, p: int) -> Any:
        """Return a reply; None for an error that says that a key of partition p is damaged, which it then repairs."""
        if not isinstance(reply, Exception):
            return reply
        if not is_damage(reply):
            raise reply
        repair_partition(self._store, p, "shut")
        return None

    def _judge(self, now_s: float, up: dict[Any, str], down: dict[Any, str]) -> None:
        for holder in self._up.look(now_s, up):
            p, node = cast(tuple[int, str], holder)
            inc, moved = (int(word.partition("=")[2]) for word in up[holder].split())
            log.warning("node %s stood still for a lease: it is down", node)
            guarded(self._store, "reclaim", self.reclaim, p, node, inc, moved)
        for holder in self._down.look(now_s, down):
            p, node = cast(tuple[int, str], holder)
            inc = int(down[holder].split()[0].partition("=")[2])
            guarded(self._store, "forget", self._forget, p, node, inc)

    def reclaim(self, p: int, node: str, inc: int = 0, moved: int | None = None) -> None:
        """Mark a node down if its counter is still `moved`, and clear every lease that nobody looks after."""
        _, leases = self._store.run(self._store.commands.reclaim(p, node, inc, moved))
        cleared: list[Lease] = []
        while leases != cleared:  # a damaged lease may stay: the next pass meets it again
            clear_leases(self._store, p, leases, f"its node {node} was lost")
            cleared = leases
            _, leases = self._store.run(self._store.commands.reclaim(p, node))

    def _forget(self, p: int, node: str, inc: int) -> None:
        """Forget a node that is still down, its record last: if a shard is away, a later pass finds it by that."""
        commands, record = self._store.commands, self._store.nodes(p).get(node)
        if record is None or (record.state, record.inc) != ("down", inc):
            return
        self._store.run_all([commands.offer(node, ""), commands.deal_node(node, self._partitions, "", 0, 0.0)])
        if self._store.run(commands.forget_node(p, node, inc)) == "forgotten":
            log.info("node %s was down for long and is forgotten", node)


def clear_leases(store: Store, p: int, leases: list[Lease], why: str) -> None:
    """Requeue the tasks of lost leases, and then free their slots."""
    for at in range(0, len(leases), MAX_BATCH):
        places = [lease.place for lease in leases[at : at + MAX_BATCH]]
        for _, some in store.keys.by_shard(places, _TASK):
            with unless_away(store):  # what cannot be requeued keeps its slots, and no other does
                store.run(store.commands.requeue([(place, why) for place in some]))
                store.run(store.commands.release(p, some))

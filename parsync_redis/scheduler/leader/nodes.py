"""The duty to judge nodes by their counters.

The duty marks lost nodes down, requeues their tasks, frees their slots, and forgets old nodes.
"""

import logging
import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from ...model.ids import readable
from ...model.node import MAX_RECORD, Lease, Notice
from ...model.place import Place
from ...model.text import COUNTER, NODE_LINE, TERMS
from ...settings import DEFAULT_FORGET_S
from ...store.repair.repair import repair_partition
from ...store.server.server_errors import is_damage
from ...store.store import Store
from ..process.guarded import batches, guarded, run_guarded, run_parts, unless_away
from ..process.lease_watch import LeaseWatch
from ..process.taken_tasks import TASK_OF
from .drains import DrainDuty

MAX_GAP: Final = 1_000_000
"""Maximum number of bits below the bits of a node that belong to no node.

lua/lib/node/record_check.lua has the same number.
"""


def are_consistent(
    records: Mapping[bytes, bytes], counters: Mapping[bytes, bytes], notes: Mapping[bytes, bytes]
) -> bool:
    """Return whether records, counters and notes of a partition's nodes are well-formed, and agree.

    The reads are not atomic, so an inconsistency is a suspicion; `repair_partition` checks again
    atomically.
    """
    spans = []
    for name, record in records.items():
        if len(record) > MAX_RECORD or not (match := NODE_LINE.match(record)):
            return False
        state, inc, drain, first, span = match.group("state", "inc", "drain", "first", "span")
        note = notes.get(name, b"")
        is_drained = drain != b"0"
        if is_drained != (TERMS.match(note) is not None):
            return False
        if state == b"suspect" and (is_drained or not note):
            return False
        counter = counters.get(name, b"").split(b" ")
        if counter[0] != b"inc=" + inc or (counter[-1] == b"down") != (state == b"down"):
            return False
        spans.append((int(first), int(span)))
    end = 0
    for first_bit, bits in sorted(spans):
        if first_bit < end or first_bit > end + MAX_GAP:
            return False
        end = first_bit + bits
    return records.keys() >= counters.keys() | notes.keys()


class SupersededNodes:
    """The nodes that registered anew while earlier processes held leases, as one observer saw them.

    A superseded process can no longer renew its lease. The guard ends the process within a lease of
    the last renewal, but until then the process may run its tasks. So the leader clears the leases
    of that process only a lease after it has seen the new registration. All times are seconds of
    the observer's monotonic clock.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        # by node and incarnation, when the registration was first seen
        self._seen_s: dict[Hashable, dict[int, float]] = {}

    def reset(self, is_reset: Callable[[Hashable], bool] = lambda _: True) -> None:
        """Forget what was seen of these nodes.

        A server that lost its last writes may give an incarnation again.
        """
        self._seen_s = {node: seen_s for node, seen_s in self._seen_s.items() if not is_reset(node)}

    def look(self, now_s: float, incs: Mapping[Hashable, int]) -> dict[Hashable, int]:
        """Take in the present incarnation of each such node, and forget the other nodes.

        Returns, by node, the newest incarnation that was seen a lease ago: all processes before it
        have ended.
        """
        self._seen_s = {node: self._seen_s.get(node, {}) for node in incs}
        ended: dict[Hashable, int] = {}
        for node, inc in incs.items():
            seen_s = self._seen_s[node]
            seen_s.setdefault(inc, now_s)
            old = [
                seen_inc for seen_inc, first_s in seen_s.items() if now_s - first_s >= self._lease_s
            ]
            if old:
                ended[node] = max(old)
                self._seen_s[node] = {
                    seen_inc: first_s
                    for seen_inc, first_s in seen_s.items()
                    if seen_inc >= max(old)
                }
        return ended


log = logging.getLogger("parsync.leader")


class NodeToReclaim(NamedTuple):
    """A node to be reclaimed.

    live: the incarnations whose processes may be alive; their leases are not cleared.
    inc, moved: the node is marked down if the counter of incarnation `inc` is still `moved`. moved
        is None if the leases are only listed.
    """

    partition: int
    node: str
    live: range
    inc: int = 0
    moved: int | None = None


KEYS_READ: Final = ("alive", "lost", "notes", "nodes")
"""The keys of a partition that a pass reads."""


class NodeDuty:
    """The counters of all nodes, as this leader has watched them; a node is (partition, name).

    forget_s: a node that is down and holds nothing is forgotten after so long, at the earliest
        after a lease. A drained node is forgotten after an hour at the earliest, so that its drain
        outlives a repair.
    names: those of all nodes at the last look; None if a partition was away.
    up: the names of the nodes that are not down.
    """

    def __init__(self, store: Store, partitions: int, lease_s: float, forget_s: float) -> None:
        self._store = store
        self._partitions = partitions
        self._up = LeaseWatch(lease_s)
        self._down = LeaseWatch(max(lease_s, forget_s))
        self._drained = LeaseWatch(max(lease_s, forget_s, DEFAULT_FORGET_S))
        self._superseded = SupersededNodes(lease_s)
        self._drains = DrainDuty(store, lease_s)
        self._swept = False
        self.names: set[str] | None = None
        self.up: set[str] = set()

    def reset(self, partitions: Collection[int] | None = None) -> None:
        """Watch anew: no node of these partitions, or of any, is judged for one lease."""
        self._swept = self._swept and partitions is not None
        for watch in (self._up, self._down, self._drained, self._superseded):
            watch.reset(
                lambda node: partitions is None or cast(tuple[int, str], node)[0] in partitions
            )

    def work(self, clock: Callable[[], float]) -> None:
        """Repair partitions, reclaim lost nodes, end drains and notices, forget old nodes."""
        # once for each leader: remove the sums that earlier versions left
        if not self._swept:
            run_guarded(
                self._store,
                "dealt",
                [self._store.commands.deal_node("", self._partitions, "", 0, 0.0)],
            )
            self._swept = True
        up: dict[Any, str] = {}
        down: dict[Any, str] = {}
        notes: dict[tuple[int, str], tuple[str, str]] = {}
        all_lost: list[tuple[int, str]] = []
        suspect: dict[Any, str] = {}
        drained: set[Any] = set()
        notices: dict[tuple[int, str], str] = {}
        replies = self._read()
        now_s = clock()
        names = {readable(name) for *_, records in replies.values() for name in records}
        self.names = names if len(replies) == self._partitions else None
        for p, (counters, lost, noted, records) in replies.items():
            for name, line in counters.items():
                node = p, readable(name)
                if not line.endswith(b"down"):
                    up[node] = readable(line)
                    raw = records.get(name, b"")
                    fields = NODE_LINE.read(readable(raw)) if b" until=" in raw else None
                    if fields and "until" in fields:
                        notices[node] = fields["until"]
                    continue
                down[node] = readable(line)
                fields = NODE_LINE.read(readable(records.get(name, b"")))
                if fields and (fields["drain"] != "0" or _is_operators(fields.get("until"))):
                    drained.add(node)
            well_formed = all(map(COUNTER.match, counters.values()))
            if not (well_formed and are_consistent(records, counters, noted)):
                guarded(self._store, "repair_partition", repair_partition, self._store, p, "shut")
            all_lost += ((p, readable(node)) for node in lost)
            for name, text in noted.items():
                record = NODE_LINE.read(readable(records.get(name, b""))) or {
                    "drain": "",
                    "state": "",
                }
                notes[p, readable(name)] = record["drain"], readable(text)
                if record["state"] == "suspect":
                    suspect[p, readable(name)] = readable(text)
        self.up = {name for _, name in up}
        guarded(self._store, "drains", self._drains.work, now_s, notes)
        guarded(self._store, "notices", self._drains.end_notices, notices)
        sound = {node: line for node, line in up.items() if COUNTER.read(line)}
        self._judge(now_s, sound, down, all_lost, suspect, drained)

    def _read(self) -> dict[int, list[Any]]:
        """Return by partition what its KEYS_READ hold.

        The value of a damaged key is empty, and the key is repaired. Partitions whose primary is
        away are left out, so that their nodes are watched anew when it is back.
        """
        keys = self._store.keys
        with self._store.client.pipeline(transaction=False) as pipe:
            for p in range(self._partitions):
                for name in KEYS_READ:
                    read = pipe.smembers if name == "lost" else pipe.hgetall
                    read(keys.partition(p, name))
            replies = pipe.execute(raise_on_error=False)
        values_by_partition = {}
        for p in range(self._partitions):
            replies_of_partition = replies[len(KEYS_READ) * p : len(KEYS_READ) * (p + 1)]
            with unless_away(self._store):
                values_by_partition[p] = [
                    self._readable(reply, p) or {} for reply in replies_of_partition
                ]
        return values_by_partition

    def _readable(self, reply: Any, p: int) -> Any:
        """Return a reply; None for an error that says that a key is damaged.

        The damaged partition is repaired.
        """
        if not isinstance(reply, Exception):
            return reply
        if not is_damage(reply):
            raise reply
        repair_partition(self._store, p, "shut")
        return None

    def _judge(
        self,
        now_s: float,
        up: dict[Any, str],
        down: dict[Any, str],
        lost: Sequence[tuple[int, str]],
        suspect: Mapping[Any, str],
        drained: Collection[Any],
    ) -> None:
        """Reclaim the nodes whose counters stood still, and forget those long down."""
        still: list[NodeToReclaim] = []
        whys: dict[str, str] = {}
        for holder in self._up.look(now_s, up):
            p, node = cast(tuple[int, str], holder)
            inc, moved = (int(word.partition("=")[2]) for word in up[holder].split())
            why = f"it did not renew its lease for {self._up.lease_s:g} s"
            why += f"; it was suspect: {suspect[holder]}" if holder in suspect else ""
            log.warning("node %s is down: %s", node, why)
            still.append(NodeToReclaim(p, node, range(inc + 1, sys.maxsize), inc, moved))
            whys[node] = why
        for batch in batches([*still, *self._served_by_none(now_s, up, lost)]):
            reclaim_nodes(self._store, batch, whys)
        open_down = {node: line for node, line in down.items() if node not in drained}
        drained_down = {node: line for node, line in down.items() if node in drained}
        forgotten = cast(
            list[tuple[int, str]],
            [*self._down.look(now_s, open_down), *self._drained.look(now_s, drained_down)],
        )
        for nodes in batches(forgotten):
            self._forget({node: int(down[node].split()[0].partition("=")[2]) for node in nodes})

    def _served_by_none(
        self, now_s: float, up: Mapping[Any, str], lost: Sequence[tuple[int, str]]
    ) -> Iterator[NodeToReclaim]:
        """Yield the nodes with leases of ended processes: they are down, or were superseded."""
        incs: dict[Any, int] = {
            node: int(counter["inc"])
            for node in lost
            if (counter := COUNTER.read(up.get(node, "")))
        }
        ended = self._superseded.look(now_s, incs)
        for node in lost:
            if node in ended:
                # the process of the last incarnation is alive, and may register again now
                yield NodeToReclaim(*node, range(ended[node], incs[node] + 1))
            elif node not in up:
                yield NodeToReclaim(*node, range(0))

    def _forget(self, nodes: Mapping[tuple[int, str], int]) -> None:
        """Forget nodes that are still down at this incarnation.

        The duty of leader/offers.py forgets their offers later.
        """
        calls = [self._store.commands.forget_node(p, node, inc) for (p, node), inc in nodes.items()]
        for (_, node), word in zip(nodes, run_guarded(self._store, "forget", calls), strict=True):
            if word == "forgotten":
                log.info("node %s was down for long and is forgotten", node)


def _is_operators(until: str | None) -> bool:
    """Return whether a node has a notice of an operator, by the word of its record."""
    return until is not None and not Notice.of(until).of_process


def reclaim_nodes(store: Store, nodes: Sequence[NodeToReclaim], whys: Mapping[str, str]) -> None:
    """Mark nodes down whose counters still are `moved`; clear the leases of ended processes.

    whys: by node, why it was lost, if this leader knows.
    """
    reclaim = store.commands.reclaim
    cleared = dict[tuple[int, str], list[Lease]]()
    while nodes:
        leases_by_node: dict[tuple[int, str], list[Lease]] = {}
        calls = [
            reclaim(reclaimed.partition, reclaimed.node, reclaimed.inc, reclaimed.moved)
            for reclaimed in nodes
        ]
        for reclaimed, reply in zip(nodes, run_guarded(store, "reclaim", calls), strict=True):
            leases = [
                lease
                for lease in (reply[1] if reply else ())
                if lease.place.inc not in reclaimed.live
            ]
            # the same leases came again: they are damaged, and stay for the next pass
            if leases and leases != cleared.get(reclaimed[:2]):
                leases_by_node[reclaimed[:2]] = leases
        places = [lease.place for lease in chain.from_iterable(leases_by_node.values())]
        clear_leases(store, places, whys)
        nodes = [
            reclaimed._replace(inc=0, moved=None)
            for reclaimed in nodes
            if reclaimed[:2] in leases_by_node
        ]
        cleared = leases_by_node


def clear_leases(store: Store, lost: Sequence[Place], whys: Mapping[str, str]) -> None:
    """Requeue the tasks of lost leases, and then free the slots of those that could be requeued."""
    queue = [part for _, places in store.keys.by_shard(lost, TASK_OF) for part in batches(places)]
    requeue = store.commands.requeue
    release = store.commands.release

    def why(node: str) -> str:
        return f"its node {node} was lost" + (f": {whys[node]}" if node in whys else "")

    requeued = run_parts(
        store, "requeue", queue, lambda part: requeue([(place, why(place.node)) for place in part])
    )
    homes: dict[int, list[Place]] = {}
    for place in requeued:
        homes.setdefault(place.partition, []).append(place)
    parts = [part for places in homes.values() for part in batches(places)]
    run_parts(store, "release", parts, lambda part: release(part[0].partition, part))

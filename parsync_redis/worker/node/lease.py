"""The keeper of a node's lease, which also marks the node suspect while its worker stands still.

The node's guard runs the keeper (isolation/guarding.py), because no task can hold up another
process. A worker without a guard runs the keeper in its own thread parsync-renew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Self

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.node import BY_ITSELF, NO_SIGN
from ...store.server.server_errors import AWAY
from ...store.store import Store

SILENT_LEASES: Final = 0.5
"""A worker is suspect after so many leases without a sign of life; it gives five a lease."""


@dataclass(frozen=True, slots=True)
class Order:
    """The lease that a worker wants kept. Each order is a sign of life of the worker.

    partition, inc: the partition and the incarnation with which the node is registered.
    still: why the node is suspect, '' if it is not.
    """

    partition: int
    inc: int
    lease_s: float
    still: str = ""

    def to_line(self) -> bytes:
        """Return the order as a line, for the pipe to the guard."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> Self:
        """Return the order that a line of the pipe has."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Report:
    """The server's reply to a renewal of this incarnation.

    word: ok, lapsed or superseded.
    state, drain: the fields of the node's record, if the word is ok.
    """

    word: str
    inc: int
    state: str = ""
    drain: str = "0"


KEEPER_VERBS: Final = ("renew", "set_node", "requeue", "release")
"""The scripts that a LeaseKeeper calls."""


class LeaseKeeper:
    """Renews the lease of one node, and marks the node suspect while its worker stands still."""

    def __init__(self, node: str, standstill_s: float = 0.0) -> None:
        self._node = node
        self._standstill_s = standstill_s
        self._inc = 0
        # an earlier keeper may have marked the node: its note outlives a registration
        self._may_be_marked = True

    def renew(self, store: Store, order: Order) -> Report:
        """Renew the lease once, and return the reply. Raises what `Store.run` raises."""
        word, *fields = store.run(store.commands.renew(order.partition, self._node, order.inc))
        if word != "ok":
            return Report(word, order.inc)
        _, state, drain = fields
        return Report(word, order.inc, state, drain)

    def judge(self, store: Store, order: Order, silent_s: float, state: str) -> str:
        """Mark the node suspect or trusted; return why it is suspect, '' if it is not.

        The tasks that a silent worker has not begun go back.

        silent_s: seconds since the last sign of life.
        state: of the node's record.
        """
        commands = store.commands
        why = order.still
        if self._inc != order.inc:
            self._inc = order.inc
            self._may_be_marked = True
        if silent_s > SILENT_LEASES * order.lease_s:
            limit_s = max(self._standstill_s, order.lease_s)
            why = (
                f"{NO_SIGN}: it is stopped, or a task holds its interpreter; after {limit_s:g} s "
                "it is ended"
            )
        if why:
            self._may_be_marked = True
            if state == "up":
                store.run(commands.set_node(order.partition, self._node, "suspect", order.inc, why))
            if why != order.still:
                self._give_back(store, order, why)
        elif self._may_be_marked or state == "suspect":
            if self._by_itself(store, order.partition):
                store.run(commands.set_node(order.partition, self._node, "trust", order.inc))
            self._may_be_marked = False
        return why

    def _by_itself(self, store: Store, p: int) -> bool:
        """Return whether a keeper made the node suspect, as the node's note says.

        The server may have lost the write of `trust`.
        """
        note = store.read("hget", store.keys.partition(p, "notes"), self._node)
        return readable(note or b"").startswith(BY_ITSELF)

    def _give_back(self, store: Store, order: Order, why: str) -> None:
        """Requeue the tasks that are placed here and have not started; free their slots.

        The worker may ask to start such a task at the same time: the server grants one of the two.
        """
        node = store.nodes(order.partition).get(self._node)
        leases = store.leases(order.partition, [node]) if node else []
        places = [lease.place for lease in leases if lease.leads and lease.place.inc == order.inc]
        shards = store.keys.by_shard(places, lambda place: place.task)
        batches = [
            places_of_shard[start : start + MAX_BATCH]
            for _, places_of_shard in shards
            for start in range(0, len(places_of_shard), MAX_BATCH)
        ]
        calls = [
            store.commands.requeue([(place, why) for place in batch], "unstarted")
            for batch in batches
        ]
        for batch, answer in zip(batches, store.run_each(calls), strict=True):
            if not isinstance(answer, Exception):
                requeued = [
                    place for place, word in zip(batch, answer, strict=True) if word != "none"
                ]
                if requeued:
                    store.run(store.commands.release(order.partition, requeued))
            # a shard that is away keeps its tasks until the next turn
            elif not (store.several and isinstance(answer, AWAY)):
                raise answer


def shorten_timeouts(store: Store, lease_s: float) -> None:
    """Set a store's timeouts, so that a silent connection is replaced within a lease."""
    store.set_timeouts(min(5.0, max(0.5, lease_s / 4)))

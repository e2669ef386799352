"""The warm set of each key: how many nodes of the key's ring, by what the tasks of the key hold.

The number follows Little's law: the mean number of tasks at a time, or the present number and one
more if that is higher. The set grows at once, and shrinks by a node in SHRINK_MS. All schedulers
hear the same lines of accounts, so they compute the same sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import exp
from typing import Final

from ...model.account_line import AccountLine
from ...model.needs import Resources
from ...placement.preferences.ring import NodeRing, RingNodes, WarmSet
from .offers import MAX_RANKED, Knowers, keep
from .partition import PartitionCopy

MEAN_MS: Final = 60_000.0
"""The time over which the mean number of tasks is taken: older numbers count e-fold less."""
SHRINK_MS: Final = 30_000.0
"""A warm set gives a node back at most once in this time, because the node may soon be needed."""
MAX_KEYS: Final = 10_000
"""Number of keys above which those are forgotten that no task holds."""
MAX_SIZES: Final = 10_000
"""Maximum number of sizes, one for each key and needs; the oldest goes first."""

RingKey = tuple[str, str, Knowers]
"""A key, the text of needs, and who knows the names of the tasks."""


@dataclass(slots=True)
class KeyDemand:
    """What the tasks of a key hold.

    counts: by shard, the number of its tasks that are taken, placed or running.
    total: their sum.
    mean: of `total` over the last minute.
    since_ms: when `total` changed last (server time).
    """

    counts: dict[int, int]
    total: int = 0
    mean: float = 0.0
    since_ms: float = 0.0

    def on_count(self, shard: int, count: int, now_ms: float) -> None:
        """Note how many tasks of the key a shard holds from now on (server time)."""
        self.mean = self._mean(now_ms)
        self.since_ms = now_ms
        self.total += count - self.counts.get(shard, 0)
        self.counts[shard] = count

    def _mean(self, now_ms: float) -> float:
        """Return the mean number of held tasks until now."""
        weight = exp((self.since_ms - now_ms) / MEAN_MS)
        return weight * self.mean + (1 - weight) * self.total

    def tasks(self, now_ms: float) -> float:
        """Return for how many tasks at a time the warm set must be."""
        return max(self.total + 1.0, self._mean(now_ms))


@dataclass(slots=True)
class SetSize:
    """The number of nodes of a warm set.

    shrunk_ms: when the set lost a node last, or was as large as it had to be (server time).
    """

    nodes: int = 0
    shrunk_ms: float = 0.0

    def follow(self, needed: int, now_ms: float) -> int:
        """Return the number of nodes now. needed: by the demand."""
        lost = int((now_ms - self.shrunk_ms) // SHRINK_MS)
        self.nodes = max(needed, self.nodes - lost)
        self.shrunk_ms = now_ms if self.nodes == needed else self.shrunk_ms + lost * SHRINK_MS
        return self.nodes


class WarmSets:
    """The warm sets of all keys, by the lines of their accounts."""

    def __init__(self) -> None:
        self._now_ms = 0.0
        self._demands: dict[str, KeyDemand] = {}
        self._sizes: dict[RingKey, SetSize] = {}
        self._rings: dict[RingKey, tuple[NodeRing, int]] = {}
        self._numbers = count(1)

    def on_time(self, now_ms: float) -> None:
        """Note the time of the server of a shard."""
        self._now_ms = max(self._now_ms, now_ms)

    def on_line(self, shard: int, key: str, text: str) -> None:
        """Take in the line of a key's account in a shard; a damaged line tells nothing."""
        line = AccountLine.of(text)
        if line.is_damaged:
            return
        if key not in self._demands and len(self._demands) >= MAX_KEYS:
            self._forget_idle()
        self._demands.setdefault(key, KeyDemand({})).on_count(shard, line.count, self._now_ms)

    def _forget_idle(self) -> None:
        """Forget the keys that no task holds."""
        self._demands = {key: demand for key, demand in self._demands.items() if demand.total}
        self._sizes = {of: size for of, size in self._sizes.items() if of[0] in self._demands}

    def clear_shard(self, shard: int) -> None:
        """Let no task of a shard be held, because all its lines are read anew."""
        for demand in self._demands.values():
            if demand.counts.get(shard):
                demand.on_count(shard, 0, self._now_ms)

    def on_offers(self) -> None:
        """Forget all rings: nodes have changed."""
        self._rings.clear()

    def of(
        self, key: str, needs: Resources, knowers: Knowers, partitions: Sequence[PartitionCopy]
    ) -> WarmSet:
        """Return the warm set of a key for tasks of these needs."""
        ring_key = key, needs.text, knowers
        ring, number = self._rings.get(ring_key) or (None, 0)
        if ring is None:
            number = next(self._numbers)
            nodes = [
                RingNodes(p.offers.hashes, p.offers.capacities, p.offers.open(needs, knowers))
                for p in partitions
            ]
            ring = NodeRing.of(key, needs, nodes)
            keep(self._rings, ring_key, (ring, number), MAX_RANKED)
        demand = self._demands.get(key) or KeyDemand({})
        needed = ring.size_for(demand.tasks(self._now_ms))
        if key not in self._demands:
            return WarmSet(ring, needed, number)
        size = self._sizes.get(ring_key)
        if size is None:
            if len(self._sizes) >= MAX_SIZES:
                del self._sizes[next(iter(self._sizes))]
            size = self._sizes[ring_key] = SetSize()
        return WarmSet(ring, size.follow(needed, self._now_ms), number)

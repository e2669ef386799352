"""The partitions to read next, and the copies that are fresh enough to claim by.

The schedulers take turns at reading, so that no two read the same partition at the same tick.
Latency-first claims in a partition only if no other scheduler's turn has come since this scheduler
read the partition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ...model.options import Strategy
from .partition import PartitionCopy
from .plan import Counters, Plan

FRESH_TICKS: Final = 1
"""Number of ticks after its turn in which latency-first claims in a partition without a read."""

TurnRule = Callable[[int, int, int, int], Iterable[int]]
"""Returns the partitions due for (ordinal, members, tick, partitions)."""
PartitionOrder = Callable[[Sequence[PartitionCopy]], Sequence[Sequence[PartitionCopy]]]
"""Returns groups of partitions, in the order in which a strategy searches the groups for seats."""


def partitioned(ordinal: int, members: int, tick: int, partitions: int) -> range:
    """Return the partitions that scheduler `ordinal` of `members` reads at a tick.

    No two schedulers read the same partition at a tick, and `members` ticks cover all partitions.
    """
    return range((ordinal + tick) % members, partitions, members)


def all_at_once(partitions: Sequence[PartitionCopy]) -> Sequence[Sequence[PartitionCopy]]:
    """Return a single group, in which the score alone decides: quality-first."""
    return [partitions] if partitions else []


def freshest_first(partitions: Sequence[PartitionCopy]) -> Sequence[Sequence[PartitionCopy]]:
    """Return groups by the turn and the time of their last read, the last first: latency-first.

    The turn goes before the time, because a scheduler that hears several ticks at once reads
    partitions of an earlier turn along with those of the present turn.
    """
    by_turn: dict[tuple[int, float], list[PartitionCopy]] = {}
    for partition in partitions:
        by_turn.setdefault((partition.turn, partition.read_s), []).append(partition)
    return [by_turn[turn] for turn in sorted(by_turn, reverse=True)]


def places_in_turn(partitions: Sequence[PartitionCopy]) -> Mapping[int, int]:
    """Return by number of a partition its place in the turn: 0 for those that were read last."""
    groups = enumerate(freshest_first(partitions))
    return {partition.number: place for place, group in groups for partition in group}


ORDERS: Final[Mapping[Strategy, PartitionOrder]] = {
    Strategy.QUALITY: all_at_once,
    Strategy.LATENCY: freshest_first,
}
"""The partition order of each strategy."""


class Freshness:
    """The partitions to read with the next plan, and the judgement which copies are stale.

    to_read: partitions to read.
    nodes_due: partitions whose nodes are read first.
    asks: partitions are asked to tell of freed slots, and read out of turn. A fetched partition is
        read out of turn, to place something there. An asked partition tells this scheduler of a
        freed slot; the request ends when the partition is due.
    passes: how often claims were made, or could have been.
    """

    def __init__(
        self,
        partitions: Sequence[PartitionCopy],
        counters: Counters,
        turn_rule: TurnRule,
        asks: bool,
    ) -> None:
        self._partitions = partitions
        self._counters = counters
        self._turn_rule = turn_rule
        self.asks = asks
        self.to_read: set[int] = set(range(len(partitions)))
        self.nodes_due: set[int] = set(range(len(partitions)))
        self.passes = 0
        self._fetched: set[int] = set()
        self._asked: set[int] = set()

    def on_tick(self, ordinal: int, members: int, number: int) -> None:
        """Mark the partitions that are due at this tick."""
        for due in self._turn_rule(ordinal, members, number, len(self._partitions)):
            self.to_read.add(due)
            self._asked.discard(due)
            self._partitions[due].due = self._counters.ticks

    def on_freed(self, partition: int) -> None:
        """Read a partition that told of a freed slot."""
        self._asked.discard(partition)
        self.to_read.add(partition)
        self._fetched.add(partition)

    def on_read(self, partition: PartitionCopy, now_s: float) -> None:
        """Note that a partition was read at `now_s` (monotonic)."""
        partition.read_s = now_s
        partition.reads += 1
        partition.turn = partition.due
        if partition.number in self._fetched:
            self._fetched.discard(partition.number)
            partition.fetched_pass = self.passes

    def on_unread(self, partition: PartitionCopy) -> None:
        """Close a partition whose server does not answer until the next read of the partition.

        That read comes at the partition's next turn.
        """
        self._fetched.discard(partition.number)
        partition.close()

    def read_all(self) -> None:
        """Read all nodes and partitions again."""
        self.nodes_due = set(range(len(self._partitions)))
        self.to_read = set(self.nodes_due)

    def is_stale(self, partition: PartitionCopy, strategy: Strategy) -> bool:
        """Return True if latency-first must read this partition again before it claims there.

        Another scheduler's turn has come since, and that scheduler places there now. A copy that
        was fetched since the last pass is never stale, however many ticks came meanwhile, because
        passes may be slower than ticks.
        """
        latency = self.asks and strategy is Strategy.LATENCY
        late = self._counters.ticks - partition.turn > FRESH_TICKS
        return latency and partition.fetched_pass < self.passes and late

    def fetch(self, partitions: Iterable[int]) -> None:
        """Read partitions out of turn, with the next plan."""
        self._fetched.update(partitions)
        self.to_read |= self._fetched

    def ask(self, plan: Plan) -> None:
        """Ask each partition to tell of a freed slot, unless asked since its last turn."""
        plan.ask = {
            p.number for p in self._partitions if p.nodes and p.number not in self._asked
        } - self.nodes_due
        self._asked |= plan.ask
        self.to_read |= plan.ask

    def _is_check_due(self, partition: int) -> bool:
        """Return whether the nodes of an open partition are read again along with all of it."""
        copy = self._partitions[partition]
        is_open = copy.version >= 0 and partition not in self.nodes_due
        return is_open and copy.since < 0

    def fill(self, plan: Plan) -> None:
        """Put the partitions to read into a plan."""
        plan.read = sorted(self.to_read | self.nodes_due)
        plan.check_nodes = [p for p in plan.read if self._is_check_due(p)]
        self.to_read.clear()
        self.nodes_due = set()

"""Choose the partitions to read, and the copies that are fresh enough to claim by.

The schedulers take turns at reading, so that no two read the same partition at the same tick.
Latency-first claims only where no other scheduler's turn has come since this one read the
partition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ...model.options import Strategy
from .partition import PartitionCopy
from .plan import Counters, Plan

FRESH_TICKS: Final = 1
"""Latency-first claims in a partition for this many ticks after our turn there; later it must be
read again first.
"""

Turns = Callable[[int, int, int, int], Iterable[int]]
Order = Callable[[Sequence[PartitionCopy]], Sequence[Sequence[PartitionCopy]]]


def partitioned(ordinal: int, members: int, tick: int, partitions: int) -> range:
    """Return the partitions that scheduler `ordinal` of `members` reads at a tick.

    No two schedulers read the same partition at a tick, and `members` ticks cover all partitions.
    """
    return range((ordinal + tick) % members, partitions, members)


def all_at_once(known: Sequence[PartitionCopy]) -> Sequence[Sequence[PartitionCopy]]:
    """Return one group, in which the score alone decides: quality-first."""
    return [known] if known else []


def freshest_first(known: Sequence[PartitionCopy]) -> Sequence[Sequence[PartitionCopy]]:
    """Return groups by the turn and the time at which they were read, the last first:
    latency-first.

    The turn goes first: a scheduler that hears several ticks at once reads partitions that are
    another's by now along with its own.
    """
    found: dict[tuple[int, float], list[PartitionCopy]] = {}
    for partition in known:
        found.setdefault((partition.turn, partition.read_s), []).append(partition)
    return [found[turn] for turn in sorted(found, reverse=True)]


ORDERS: Final[Mapping[Strategy, Order]] = {
    Strategy.QUALITY: all_at_once,
    Strategy.LATENCY: freshest_first,
}


class Freshness:
    """The partitions to read next, whose nodes are read first if these are due, and those stale for
    latency-first.

    Fetched partitions are read out of turn, to place something there. Asked ones will tell this
    scheduler of a freed slot; each is asked anew when it is due. passes: how often claims were
    made, or could have been.
    """

    def __init__(
        self, partitions: Sequence[PartitionCopy], counters: Counters, turns: Turns, asks: bool
    ) -> None:
        self._partitions = partitions
        self._counters = counters
        self._turns = turns
        self.asks = asks
        self.to_read: set[int] = set(range(len(partitions)))
        self.nodes_due: set[int] = set(range(len(partitions)))
        self.passes = 0
        self._fetched: set[int] = set()
        self._asked: set[int] = set()

    def on_tick(self, ordinal: int, members: int, number: int) -> None:
        """Mark the partitions that are due at this tick."""
        for due in self._turns(ordinal, members, number, len(self._partitions)):
            self.to_read.add(due)
            self._asked.discard(due)
            self._partitions[due].due = self._counters.ticks

    def on_freed(self, partition: int) -> None:
        """Read a partition that told of a freed slot."""
        self._asked.discard(partition)
        self.to_read.add(partition)
        self._fetched.add(partition)

    def on_read(self, partition: PartitionCopy, now_s: float) -> None:
        """Mark a partition as read."""
        partition.read_s = now_s
        partition.turn = partition.due
        if partition.number in self._fetched:
            self._fetched.discard(partition.number)
            partition.fetched_pass = self.passes

    def on_unread(self, partition: PartitionCopy) -> None:
        """Let a partition have no seats whose server does not answer, until it is read at its next
        turn.
        """
        self._fetched.discard(partition.number)
        partition.close()

    def read_all(self) -> None:
        """Read all nodes and partitions again."""
        self.nodes_due = set(range(len(self._partitions)))
        self.to_read = set(self.nodes_due)

    def is_stale(self, partition: PartitionCopy, strategy: Strategy) -> bool:
        """Return True if latency-first must re-read this partition before it claims there.

        Another scheduler's turn has come since, and it places there now. A copy that was fetched
        since the last pass is never stale, however many ticks came meanwhile: passes may be slower
        than ticks.
        """
        latency = self.asks and strategy is Strategy.LATENCY
        late = self._counters.ticks - partition.turn > FRESH_TICKS
        return latency and partition.fetched_pass < self.passes and late

    def fetch(self, partitions: Iterable[int]) -> None:
        """Read partitions out of turn, with the next plan."""
        self._fetched.update(partitions)
        self.to_read |= self._fetched

    def ask(self, plan: Plan) -> None:
        """While kinds have no seat, ask each partition to tell of a freed slot, until it does or is
        due again.
        """
        plan.ask = {
            p.number for p in self._partitions if p.nodes and p.number not in self._asked
        } - self.nodes_due
        self._asked |= plan.ask
        self.to_read |= plan.ask

    def fill(self, plan: Plan) -> None:
        """Put what is to be read into a plan."""
        plan.read = sorted(self.to_read | self.nodes_due)
        self.to_read.clear()
        self.nodes_due = set()

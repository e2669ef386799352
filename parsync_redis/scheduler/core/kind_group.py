"""The kinds that wait, in groups of those that the same seats fit: equal needs, and the same nodes
for their names.
"""

from dataclasses import dataclass, field
from typing import Final

from ...model.kind import Kind
from ...model.needs import Resources
from .offers import Knowers

OF_PRIORITY: Final = 10**12
"""Orders of one priority: an order is (9 - priority) times this, and the number of the submission.
"""

BLOCK: Final = 256
"""Orders of different shards in one block of so many are equally old: once in a gap the leader lets
all shards begin a new block, and between two gaps each shard counts by itself.
"""


GroupKey = tuple[str, Knowers, frozenset[str]]


@dataclass(slots=True, eq=False)
class KindGroup:
    """Kinds with equal needs whose names the same nodes know, by shard and text.

    barred: nodes that are booked for others, where its tasks may not go. blocked: none of the seats
    in the view fits.
    """

    needs: Resources
    knowers: Knowers
    barred: frozenset[str] = frozenset()
    waiting: dict[tuple[int, str], "WaitingKind"] = field(default_factory=dict)
    blocked: bool = False

    @property
    def key(self) -> GroupKey:
        """What is equal in all kinds of the group: needs, knowers and barred nodes."""
        return self.needs.text, self.knowers, self.barred

    @property
    def may_wait(self) -> bool:
        """True if its tasks may take waiting seats: they need one slot and no amounts."""
        return self.needs.slots == 1 and not self.needs.amounts


@dataclass(slots=True, eq=False)
class WaitingKind:
    """A kind of which `count` tasks wait in a shard, at orders from `first` to `last`.

    why: the reason in its line, '' if there is none, None if another scheduler may have written one
    since.
    """

    kind: Kind
    group: KindGroup
    count: int
    first: int
    last: int
    why: str | None
    shard: int = 0

    def order(self, number: int) -> float:
        """Estimate the order of task `number`, from 0: those of one priority lie evenly between
        first and last.

        If the tasks are of several priorities, all but the first are taken to have the lowest: the
        next look tells.
        """
        if number and self.first // OF_PRIORITY != self.last // OF_PRIORITY:
            return float(self.last // OF_PRIORITY * OF_PRIORITY)
        return self.first + number * (self.last - self.first) / max(1, self.count - 1)

    def before(self, order: float, number: int) -> int:
        """Estimate how many tasks from `number` on come before `order`; at least 1."""
        if self.last // OF_PRIORITY != self.first // OF_PRIORITY:
            return 1
        step = (self.last - self.first) / max(1, self.count - 1)
        return max(1, int((order - self.order(number)) / step) + 1) if step > 0 else self.count

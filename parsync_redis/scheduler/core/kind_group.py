"""The kinds that wait, in groups that the same seats fit.

The kinds of a group have equal needs, and the same nodes know their names.
"""

from dataclasses import dataclass, field
from typing import Final

from ...model.kind import Kind
from ...model.needs import Resources
from .accounts import Ask
from .offers import Knowers

OF_PRIORITY: Final = 10**12
"""Distance between the orders of two neighbouring priorities.

An order is (9 - priority) * OF_PRIORITY plus the number of the submission.
"""

BLOCK: Final = 256
"""Number of orders in a block.

Orders of one block count as equally old, in whichever shard they are. Once in a gap the leader lets
all shards begin a new block. Between two gaps each shard counts by itself.
"""


GroupKey = tuple[str, Knowers, frozenset[str]]
"""The text of the needs, the knowers, and the barred nodes of a group."""


@dataclass(slots=True, eq=False)
class KindGroup:
    """Kinds with equal needs whose names the same nodes know.

    knowers: who knows the names.
    barred: nodes where its tasks may not go now.
    waiting: the kinds, by shard and text.
    blocked: no seat in the view fits.
    """

    needs: Resources
    knowers: Knowers
    barred: frozenset[str] = frozenset()
    waiting: dict[tuple[int, str], "WaitingKind"] = field(default_factory=dict)
    blocked: bool = False

    @property
    def key(self) -> GroupKey:
        """The needs, knowers and barred nodes that all kinds of the group share."""
        return self.needs.text, self.knowers, self.barred

    @property
    def may_wait(self) -> bool:
        """True if tasks of the group may take waiting seats: they need one slot and no amounts."""
        return self.needs.slots == 1 and not self.needs.amounts


@dataclass(slots=True, eq=False)
class WaitingKind:
    """A kind of which `count` tasks wait in a shard, at orders from `first` to `last`.

    why: the reason in its line; '' for none; None if another scheduler may have written a reason
    since.
    asks: what a task of the kind holds of its accounts.
    full: the account that has no room for the kind, which is in no group therefore; '' for none.
    """

    kind: Kind
    group: KindGroup
    count: int
    first: int
    last: int
    why: str | None
    shard: int = 0
    asks: tuple[Ask, ...] = ()
    full: str = ""

    def order(self, number: int) -> float:
        """Estimate the order of task `number`, counted from 0.

        Tasks of one priority are assumed to lie evenly between first and last. If the tasks have
        several priorities, all but the first are assumed to have the lowest, until the next look
        tells.
        """
        if number and self.first // OF_PRIORITY != self.last // OF_PRIORITY:
            return float(self.last // OF_PRIORITY * OF_PRIORITY)
        return self.first + number * (self.last - self.first) / max(1, self.count - 1)

    def before(self, order: float, number: int) -> int:
        """Estimate how many tasks from `number` on go before `order`; at least 1."""
        if self.last // OF_PRIORITY != self.first // OF_PRIORITY:
            return 1
        step = (self.last - self.first) / max(1, self.count - 1)
        return max(1, int((order - self.order(number)) / step) + 1) if step > 0 else self.count

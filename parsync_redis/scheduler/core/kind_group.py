"""The kinds that wait, in groups that the same seats fit.

The kinds of a group have equal needs and preferences, and the same nodes know their names.
"""

from dataclasses import dataclass, field
from typing import Final

from ...model.kind import Kind
from ...model.needs import Resources
from ...model.order import ORDERS_OF_PRIORITY
from .accounts import Ask
from .offers import Knowers

EQUALLY_URGENT: Final = 25_000
"""Orders of different shards that differ by less count as equal: a quarter of a second.

Orders of different shards are no more exact than the clocks of their servers. So a round trip takes
more tasks from fewer shards.
"""

GroupKey = tuple[str, str, Knowers, frozenset[str], str]
"""The texts of needs and preferences, the knowers, the barred nodes and the name of a group."""


@dataclass(slots=True, eq=False)
class KindGroup:
    """Kinds with equal needs and preferences whose names the same nodes know.

    prefer: the soft rules of the kinds, as text.
    knowers: who knows the names.
    barred: nodes where its tasks may not go now.
    name: of its tasks if a soft rule goes by it, else ''.
    waiting: the kinds, by shard and text.
    blocked: no seat in the view fits.
    """

    needs: Resources
    knowers: Knowers
    prefer: str = ""
    barred: frozenset[str] = frozenset()
    name: str = ""
    waiting: dict[tuple[int, str], "WaitingKind"] = field(default_factory=dict)
    blocked: bool = False

    @property
    def first(self) -> int:
        """Return the order of the group's first task."""
        return min(waiting.first for waiting in self.waiting.values())

    @property
    def key(self) -> GroupKey:
        """What all kinds of the group share."""
        return self.needs.text, self.prefer, self.knowers, self.barred, self.name

    @property
    def lets_pass(self) -> bool:
        """True if its tasks let others pass at a slow seat: `fast` is their first preference."""
        return bool(self.name) and self.prefer.partition(",")[0] == "fast"

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
        if number and self.first // ORDERS_OF_PRIORITY != self.last // ORDERS_OF_PRIORITY:
            return float(self.last // ORDERS_OF_PRIORITY * ORDERS_OF_PRIORITY)
        return self.first + number * (self.last - self.first) / max(1, self.count - 1)

    def before(self, order: float, number: int) -> int:
        """Estimate how many tasks from `number` on go before `order`; at least 1."""
        if self.last // ORDERS_OF_PRIORITY != self.first // ORDERS_OF_PRIORITY:
            return 1
        step = (self.last - self.first) / max(1, self.count - 1)
        return max(1, int((order - self.order(number)) / step) + 1) if step > 0 else self.count

"""The kinds that wait, in groups of those that the same seats fit: equal needs, and names that the same nodes know."""

from dataclasses import dataclass, field

from ..model.kind import Kind
from ..model.needs import Resources
from .offers import Knowers


@dataclass(slots=True, eq=False)
class KindGroup:
    """Kinds with equal needs whose names the same nodes know. blocked: none of the seats in the view fits."""

    needs: Resources
    knowers: Knowers
    waiting: dict[str, "WaitingKind"] = field(default_factory=dict)
    blocked: bool = False


@dataclass(slots=True, eq=False)
class WaitingKind:
    """A kind of which `count` tasks wait, at orders from `first` to `last`. why: the reason in its line."""

    kind: Kind
    group: KindGroup
    count: int
    first: int
    last: int
    why: str

    def order(self, number: int) -> float:
        """Estimate the order of task `number`, from 0: the tasks lie evenly between first and last."""
        return self.first + number * (self.last - self.first) / max(1, self.count - 1)

    def before(self, order: float, number: int) -> int:
        """Estimate how many tasks from `number` on come before `order`; at least 1."""
        step = (self.last - self.first) / max(1, self.count - 1)
        return max(1, int((order - self.order(number)) / step) + 1) if step > 0 else self.count

"""Make claims: for the tasks of the backlog, the best free seats of the view that are fresh enough."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..model.apps import TASKS_LABEL, digest_of
from ..model.claim import Claim
from ..model.limits import MAX_BATCH
from ..model.node import Node
from ..model.options import Strategy
from ..model.task import Taken
from ..placement.strategy import StrategySelector, sample
from .backlog import Backlog, Kind
from .freshness import Freshness, Order
from .partition_copy import PartitionCopy, Seats
from .plan import Plan
from .view import View


def needs_at(node: Node, needs: str) -> str:
    """Return what a claim asks of a node: the task's needs, and that its worker still knows the same task names.

    So commit judges the names that the scheduler saw: a digest always stands for the same names.
    """
    digest = digest_of(node.offer)
    return f"{needs} {TASKS_LABEL}:{digest}" if digest else needs


class Placer:
    """Turns tasks of the backlog into claims. claimed: the tasks whose claims are not judged yet, by id."""

    def __init__(
        self,
        view: View,
        backlog: Backlog,
        freshness: Freshness,
        selector: StrategySelector,
        orders: Mapping[Strategy, Order],
        rng: np.random.Generator,
    ) -> None:
        self._view, self._backlog, self._freshness = view, backlog, freshness
        self._selector, self._orders, self._rng = selector, orders, rng
        self.claimed: dict[str, Taken] = {}

    def place(self, plan: Plan) -> None:
        """Make claims for at most MAX_BATCH tasks, kind by kind."""
        room = MAX_BATCH
        for kind in self._backlog.open():
            if not room:
                break
            strategy = self._selector.resolve(kind.strategy)
            room -= self._place_kind(plan, kind, strategy, min(room, len(kind.tasks)))
            if kind.tasks and room and not self._fetch(kind, strategy):
                self._backlog.block(kind)
        self._freshness.passes += 1

    def _place_kind(self, plan: Plan, kind: Kind, strategy: Strategy, count: int) -> int:
        """Make claims for up to `count` tasks of a kind. Returns how many it made."""
        is_stale, made = self._freshness.is_stale, 0
        known = [p for p in self._view.partitions if p.free_count and not is_stale(p, strategy)]
        for partitions in self._orders[strategy](known):
            found_in = (partition.seats(kind.needs, kind.knowers) for partition in partitions)
            seats = [found for found in found_in if len(found.leads)]
            if seats:
                made += self._claim(plan, kind, seats, count - made)
            if made == count:
                break
        return made

    def _claim(self, plan: Plan, kind: Kind, seats: Sequence[Seats], count: int) -> int:
        """Sample up to `count` of these seats, by their score, and claim them. Returns how many it claimed."""
        paces = np.concatenate([found.paces for found in seats])
        ends = np.cumsum([len(found.leads) for found in seats])
        chosen = sample(self._rng, paces, count)
        which = np.searchsorted(ends, chosen, side="right")
        for i in sorted(set(which.tolist())):
            found, mine = seats[i], chosen[which == i]
            number = found.partition.number
            claims = plan.commit.setdefault(number, [])
            begin = int(ends[i]) - len(found.leads)
            for node, slots in found.partition.occupy(found, mine - begin, kind.needs):
                task = kind.pop()
                self.claimed[task.id] = task
                claims.append(
                    Claim(task.id, task.attempt, number, node.name, node.inc, slots, needs_at(node, task.needs))
                )
        return len(chosen)

    def _fetch(self, kind: Kind, strategy: Strategy) -> bool:
        """Read stale partitions that had seats for the rest of a kind, more likely those that had many.

        Returns True if there are any.
        """
        is_stale = self._freshness.is_stale
        stale = [p for p in self._view.partitions if p.free_count and is_stale(p, strategy)]
        seats = np.array([len(p.seats(kind.needs, kind.knowers).leads) for p in stale], dtype=float)
        wanted, found, chosen = len(kind.tasks), 0, list[PartitionCopy]()
        for i in sample(self._rng, 1 / np.maximum(seats, 1e-9), len(stale)).tolist():
            if found >= wanted or not seats[i]:
                break
            chosen.append(stale[i])
            found += int(seats[i])
        self._freshness.fetch(partition.number for partition in chosen)
        return found > 0

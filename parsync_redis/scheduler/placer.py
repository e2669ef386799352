"""Place tasks: reserve seats for what waits, have exactly as many tasks taken, and claim the seats for them.

    kind waits -> seats reserved in the view -> that many tasks taken -> claimed -> judged: won
                                                                            ^        lost, or its seat was another's
                                                                            `------- another seat, or given back

A task is taken only for a seat that the view has, so none waits here: what finds no other seat goes back to its place.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..model.claim import Claim
from ..model.options import Strategy
from ..model.task import Taken
from ..placement.strategy import StrategySelector, sample
from .freshness import Freshness, Order
from .kind_group import KindGroup
from .partition_copy import PartitionCopy, Reservation, Seats
from .plan import Plan
from .queue_copy import QueueCopy
from .view import View

PORTIONS: Final = 16
"""If several kinds wait, one gets at most one in so many of the seats that it sees before the next is looked at, unless
its tasks are older: so kinds that share seats get them in the order of their tasks, nearly."""


def claim_of(task: Taken, seat: Reservation) -> Claim:
    """Return the claim of a task on a seat."""
    copy, node = seat.partition, seat.node
    return Claim(
        task.id, task.attempt, copy.number, node.name, seat.slots, node.inc, seat.needs.asked, node.first, copy.epoch
    )


@dataclass(slots=True)
class Unplaced:
    """The tasks that this scheduler has taken. claimed: claims are not judged yet. seatless: they need another seat."""

    claimed: dict[str, Taken]
    seatless: list[Taken]


class Placer:
    """Turns what waits into claims. left_behind: some kind has seats beyond what one round trip may take."""

    def __init__(
        self,
        view: View,
        queue: QueueCopy,
        freshness: Freshness,
        selector: StrategySelector,
        orders: Mapping[Strategy, Order],
        rng: np.random.Generator,
    ) -> None:
        self._view, self._queue, self._freshness = view, queue, freshness
        self._selector, self._orders, self._rng = selector, orders, rng
        self.unplaced = Unplaced({}, [])
        self.changed: set[int] = set()
        self.left_behind = False
        self._ready: list[Claim] = []
        self._reserved: dict[str, deque[Reservation]] = {}

    def forget(self) -> None:
        """Drop all tasks and reservations."""
        self.unplaced = Unplaced({}, [])
        self._ready.clear()
        self._reserved.clear()
        for partition in self._view.partitions:
            partition.forget_reservations()

    # -- tasks that are taken ----------------------------------------------------------------------------------------

    def on_took(self, tasks: Sequence[Taken]) -> None:
        """Claim the reserved seats for the tasks that came, and put the other seats back."""
        for task in tasks:
            seats = self._reserved.get(task.kind.text)
            seat = seats.popleft() if seats else None
            if seat is not None and not seat.broken:
                self._claim(task, seat)
                continue
            self.unplaced.seatless.append(task)
            if seat is not None:
                seat.give_back()
        for seats in self._reserved.values():
            for seat in seats:
                seat.give_back()
                self.changed.add(seat.partition.number)
        self._reserved.clear()

    def _claim(self, task: Taken, seat: Reservation) -> None:
        seat.claimed()
        self.unplaced.claimed[task.id] = task
        self._ready.append(claim_of(task, seat))

    def commit(self, plan: Plan) -> None:
        """Plan to send the claims that are ready."""
        for claim in self._ready:
            plan.commit.setdefault(claim.partition, []).append(claim)
        self._ready = []

    def retry(self, plan: Plan) -> None:
        """Claim other seats for tasks without one; plan to give back those for which there is none.

        While nodes are read they wait: the seats of those partitions are not known yet.
        """
        tasks, self.unplaced.seatless = self.unplaced.seatless, []
        by_kind: dict[str, list[Taken]] = {}
        for task in tasks:
            by_kind.setdefault(task.kind.text, []).append(task)
        for some in by_kind.values():
            group = self._queue.group_of(some[0].kind)
            strategy = self._selector.resolve(some[0].kind.strategy)
            seats = self._reserve(group, self._seats(group, strategy), len(some))
            for task, seat in zip(some, seats, strict=False):
                self._claim(task, seat)
            if plan.read_nodes:
                self.unplaced.seatless += some[len(seats) :]
            else:
                plan.give_back += [(task.id, task.attempt, "") for task in some[len(seats) :]]

    # -- seats for what waits ----------------------------------------------------------------------------------------

    def reserve(self, plan: Plan, room: int) -> None:
        """Reserve seats for up to `room` waiting tasks, the oldest first; plan to take as many of each kind."""
        asked: dict[str, deque[Reservation]] = {}
        reading: set[KindGroup] = set()
        tried: set[KindGroup] = set()
        heap = self._queue.open_kinds(self.changed, tried)
        while room and (heap or (heap := self._queue.open_kinds(self.changed, tried))):
            _, number, waiting = heapq.heappop(heap)
            group, text = waiting.group, waiting.kind.text
            if group.blocked or group in reading or len(asked.get(text, ())) >= waiting.count:
                tried.add(group)
                continue
            strategy = self._selector.resolve(waiting.kind.strategy)
            found = self._seats(group, strategy)
            done = len(asked.get(text, ()))
            left = waiting.count - done
            total = sum(len(seats.leads) for some in found for seats in some)
            if not total:
                if self._fetch(group, strategy, left):
                    reading.add(group)
                else:
                    self._queue.block(group)
                tried.add(group)
                continue
            count = min(left, room, total)
            if heap:
                count = min(count, max(waiting.before(heap[0][0], done), -(-count // PORTIONS)))
            asked.setdefault(text, deque()).extend(self._reserve(group, found, count))
            room -= count
            if left > count:
                heapq.heappush(heap, (waiting.order(done + count), number, waiting))
        if room:
            self.changed.clear()
        self._reserved = asked
        self.left_behind = not room
        plan.take = [(text, len(seats)) for text, seats in asked.items()]
        self._freshness.passes += 1

    def _seats(self, group: KindGroup, strategy: Strategy) -> list[list[Seats]]:
        """Return the seats of a group that are fresh enough to claim, in the strategy's order of partitions."""
        is_stale = self._freshness.is_stale
        known = [p for p in self._view.partitions if p.free_count and not is_stale(p, strategy)]
        found = []
        for partitions in self._orders[strategy](known):
            some = (partition.seats(group.needs, group.knowers) for partition in partitions)
            found.append([seats for seats in some if len(seats.leads)])
        return found

    def _reserve(self, group: KindGroup, found: Sequence[Sequence[Seats]], count: int) -> list[Reservation]:
        """Sample up to `count` of these seats by their score, all of one list before the next."""
        made: list[Reservation] = []
        for seats in found:
            if len(made) == count:
                break
            if seats:
                made += self._sample(group, seats, count - len(made))
        return made

    def _sample(self, group: KindGroup, seats: Sequence[Seats], count: int) -> list[Reservation]:
        paces = np.concatenate([found.paces for found in seats])
        ends = np.cumsum([len(found.leads) for found in seats])
        chosen = sample(self._rng, paces, count)
        which = np.searchsorted(ends, chosen, side="right")
        made: list[Reservation] = []
        for i in sorted(set(which.tolist())):
            found, begin = seats[i], int(ends[i]) - len(seats[i].leads)
            made += found.partition.reserve(found, chosen[which == i] - begin, group.needs)
        return made

    def _fetch(self, group: KindGroup, strategy: Strategy, wanted: int) -> bool:
        """Read stale partitions that had seats for a group, more likely those that had many.

        Returns True if there are any.
        """
        is_stale = self._freshness.is_stale
        stale = [p for p in self._view.partitions if p.free_count and is_stale(p, strategy)]
        seats = np.array([len(p.seats(group.needs, group.knowers).leads) for p in stale], dtype=float)
        found, chosen = 0, list[PartitionCopy]()
        for i in sample(self._rng, 1 / np.maximum(seats, 1e-9), len(stale)).tolist():
            if found >= wanted or not seats[i]:
                break
            chosen.append(stale[i])
            found += int(seats[i])
        self._freshness.fetch(partition.number for partition in chosen)
        return found > 0

"""Place tasks: reserve seats for what waits, have exactly as many tasks taken, and claim the seats for them.

    kind waits -> seats reserved in the view -> that many tasks taken -> claimed -> judged: won
                                                                            ^        lost, or its seat was another's
                                                                            `------- another seat, or given back

A task is taken only for a seat that the view has, so none waits here: what finds no other seat goes back to its place.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..model.claim import Claim
from ..model.kind import Kind
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


def by_kind(tasks: Iterable[Taken]) -> dict[Kind, list[Taken]]:
    """Return tasks by their kinds, in their order."""
    found: dict[Kind, list[Taken]] = {}
    for task in tasks:
        found.setdefault(task.kind, []).append(task)
    return found


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
        self._ready: dict[int, list[Claim]] = {}
        self._reserved: dict[Kind, list[Reservation]] = {}

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
        for kind, some in by_kind(tasks).items():
            self.unplaced.seatless += self._claim(some, self._reserved.get(kind, ()))
        for seats in self._reserved.values():
            for reservation in seats:
                if reservation:
                    self.changed.add(reservation.partition.number)
                reservation.give_back()
        self._reserved.clear()

    def _claim(self, tasks: Sequence[Taken], seats: Iterable[Reservation]) -> Sequence[Taken]:
        """Claim reserved seats for tasks; return the tasks for which there are not enough."""
        for reservation in seats:
            some, tasks = tasks[: len(reservation)], tasks[len(reservation) :]
            copy, asked = reservation.partition, reservation.needs.asked
            p, epoch = copy.number, copy.epoch
            self._ready.setdefault(p, []).extend(
                Claim(task.id, task.attempt, p, node.name, slots, node.inc, asked, node.first, epoch)
                for task, (node, slots) in zip(some, reservation.claim(len(some)), strict=True)
            )
            self.unplaced.claimed.update((task.id, task) for task in some)
        return tasks

    def commit(self, plan: Plan) -> None:
        """Plan to send the claims that are ready."""
        plan.commit, self._ready = self._ready, {}

    def retry(self, plan: Plan) -> None:
        """Claim other seats for tasks without one; plan to give back those for which there is none.

        While nodes are read they wait: the seats of those partitions are not known yet.
        """
        tasks, self.unplaced.seatless = self.unplaced.seatless, []
        for kind, some in by_kind(tasks).items():
            group = self._queue.group_of(kind)
            seats = self._reserve(group, self._seats(group, self._selector.resolve(kind.strategy)), len(some))
            left = self._claim(some, seats)
            for reservation in seats:
                reservation.give_back()
            if plan.read_nodes:
                self.unplaced.seatless += left
            else:
                plan.give_back += [(task.id, task.attempt, "") for task in left]

    # -- seats for what waits ----------------------------------------------------------------------------------------

    def reserve(self, plan: Plan, room: int) -> None:
        """Reserve seats for up to `room` waiting tasks, the oldest first; plan to take as many of each kind."""
        reserved: dict[Kind, list[Reservation]] = {}
        asked: dict[Kind, int] = {}
        reading: set[KindGroup] = set()
        tried: set[KindGroup] = set()
        heap = self._queue.open_kinds(self.changed, tried)
        while room and (heap or (heap := self._queue.open_kinds(self.changed, tried))):
            _, number, waiting = heapq.heappop(heap)
            group, kind = waiting.group, waiting.kind
            done = asked.get(kind, 0)
            left = waiting.count - done
            if group.blocked or group in reading or left <= 0:
                tried.add(group)
                continue
            strategy = self._selector.resolve(kind.strategy)
            found = self._seats(group, strategy)
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
            reserved.setdefault(kind, []).extend(self._reserve(group, found, count))
            asked[kind] = done + count
            room -= count
            if left > count:
                heapq.heappush(heap, (waiting.order(done + count), number, waiting))
        if room:
            self.changed.clear()
        self._reserved = reserved
        self.left_behind = not room
        plan.take = [(kind.text, count) for kind, count in asked.items()]
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
            if seats and count:
                made += self._sample(group, seats, count)
                count -= min(count, sum(len(some.leads) for some in seats))
        return made

    def _sample(self, group: KindGroup, seats: Sequence[Seats], count: int) -> list[Reservation]:
        paces = np.concatenate([found.paces for found in seats])
        ends = np.cumsum([len(found.leads) for found in seats])
        chosen = sample(self._rng, paces, count)
        which = np.searchsorted(ends, chosen, side="right")
        made: list[Reservation] = []
        for i in sorted(set(which.tolist())):
            found, begin = seats[i], int(ends[i]) - len(seats[i].leads)
            made.append(found.partition.reserve(found, chosen[which == i] - begin, group.needs))
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

"""Place tasks: reserve seats for what waits, have exactly as many tasks taken, and claim the seats
for them.

    kind waits -> seats reserved -> that many tasks taken -> claimed -> judged: won
                                                                ^        lost: seat was another's
                                                                |------- another seat
                                                                `------- kept a gap, given back

A task is taken only for a seat that the view has. A task whose seat was another's is kept for a
gap, in which every partition is read once: it gets the next slot or waiting seat that this
scheduler sees, and in a full cluster that comes soon.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf
from typing import Final

import numpy as np

from ...model.claim import Claim
from ...model.ids import shard_of
from ...model.kind import Kind
from ...model.options import Strategy
from ...model.task import Taken
from ...placement.strategy import StrategySelector
from .freshness import Freshness, Order
from .kind_group import GroupKey, KindGroup, WaitingKind
from .large_kinds import LeastAsked
from .partition import Reservation, Seats
from .placement_log import Choices
from .plan import Plan
from .queue import QueueCopy
from .seats import SeatFinder, count_seats, elsewhere, sample_seats
from .view import View

# The tasks that a scheduler has taken and not placed.


def by_kind(tasks: Iterable[Taken]) -> dict[Kind, list[Taken]]:
    """Return tasks by their kinds, in their order."""
    found: dict[Kind, list[Taken]] = {}
    for task in tasks:
        found.setdefault(task.kind, []).append(task)
    return found


@dataclass(slots=True)
class Unplaced:
    """The tasks that this scheduler has taken and not placed.

    claimed: claims are not judged yet. seatless: they need another seat. doubtful: nobody answered
    whether their claims won, so they go back.
    """

    claimed: dict[str, Taken]
    seatless: list[Taken]
    doubtful: list[Taken] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.claimed) + len(self.seatless) + len(self.doubtful)

    def __iter__(self) -> Iterator[Taken]:
        return chain(self.claimed.values(), self.seatless, self.doubtful)


PORTIONS: Final = 16
"""If several kinds wait, one gets at most one in so many of the seats that it sees before the next
is looked at, unless its tasks are older: so kinds that share seats get them in the order of their
tasks, nearly.
"""


class Placer:
    """Turns what waits into claims.

    left_behind: the shards with seats beyond what one round trip may take.

    choices: why some tasks got their places. ticks: how many there were; ticks_of_gap: how many a
    gap has. least: tells which tasks are large.
    """

    def __init__(
        self,
        name: str,
        view: View,
        queue: QueueCopy,
        freshness: Freshness,
        selector: StrategySelector,
        orders: Mapping[Strategy, Order],
        rng: np.random.Generator,
    ) -> None:
        self.choices = Choices(view, name)
        self._view = view
        self._queue = queue
        self._freshness = freshness
        self._selector = selector
        self._rng = rng
        self._finder = SeatFinder(view, freshness, orders, rng)
        self.unplaced = Unplaced({}, [])
        self.changed: set[int] = set()
        self.ticks = 0
        self.ticks_of_gap = 1
        self.least = LeastAsked(0.0)
        # the tick after which a task without a seat goes back
        self._kept_until: dict[str, int] = {}
        self._in_vain: dict[Kind, KindGroup] = {}  # found no seat since a partition changed
        self._strict = 0  # the groups that went before others at waiting seats then
        self.left_behind: set[int] = set()
        self._ready: dict[int, list[Claim]] = {}
        self._reserved: dict[int, dict[Kind, list[Reservation]]] = {}  # by shard

    def forget(self) -> None:
        """Drop all tasks and reservations."""
        self.unplaced = Unplaced({}, [])
        self.choices.forget()
        self._ready.clear()
        self._reserved.clear()
        self._kept_until.clear()
        self._in_vain.clear()
        for partition in self._view.partitions:
            partition.forget_reservations()

    # -- tasks that are taken ----------------------------------------------------------------------

    def on_took(self, shard: int, tasks: Sequence[Taken]) -> None:
        """Claim the seats that are reserved for a shard for the tasks that came, and put the other
        seats back.
        """
        reserved = self._reserved.pop(shard, {})
        for kind, some in by_kind(tasks).items():
            self.unplaced.seatless += self._claim_all(kind, some, reserved.get(kind, ()))
        for seats in reserved.values():
            for reservation in seats:
                if reservation:
                    self.changed.add(reservation.partition.number)
                reservation.give_back()

    def _claim_all(
        self, kind: Kind, tasks: Sequence[Taken], reserved: Sequence[Reservation]
    ) -> Sequence[Taken]:
        """Claim seats for tasks of a kind, on others than their last nodes where there are some."""
        if any(task.last for task in tasks):
            group = self._queue.group_of(kind)
            strategy = self._selector.resolve(kind.strategy)
            every = partial(self._finder.find, group, strategy, wanted=inf)
            for task, seat in elsewhere(tasks, reserved, group.needs, every, self._rng):
                self._claim([task], [seat])
                if not seat:
                    seat.give_back()
            tasks = [task for task in tasks if task.id not in self.unplaced.claimed]
        return self._claim(tasks, reserved)

    def _claim(self, tasks: Sequence[Taken], reserved: Iterable[Reservation]) -> Sequence[Taken]:
        """Claim reserved seats for tasks of a kind; return the tasks for which there are not
        enough.
        """
        for reservation in reserved:
            some = tasks[: len(reservation)]
            tasks = tasks[len(reservation) :]
            copy = reservation.partition
            asked = reservation.needs.asked
            p = copy.number
            epoch = copy.epoch
            seats = list(reservation.claim(len(some)))
            self._ready.setdefault(p, []).extend(
                Claim(
                    task.id, task.attempt, p, node.name, slots, node.inc, asked, node.first, epoch
                )
                for task, (node, slots) in zip(some, seats, strict=True)
            )
            if some and self.choices.wanted:
                kind = some[0].kind
                strategy = self._selector.resolve(kind.strategy)
                self.choices.on_claim(
                    some, self._queue.group_of(kind), copy, [node for node, _ in seats], strategy
                )
            self.unplaced.claimed.update((task.id, task) for task in some)
        return tasks

    def on_unjudged(self, claims: Iterable[Claim]) -> None:
        """Let the tasks of claims go back that nobody answers; if one has won, its attempt can
        start no more.
        """
        claimed = self.unplaced.claimed
        self.unplaced.doubtful += [
            claimed.pop(claim.task) for claim in claims if claim.task in claimed
        ]

    @property
    def unclaimed(self) -> dict[str, str]:
        """The taken tasks of which no claim can have won, with their attempts: no claim was sent,
        or it was lost.
        """
        ready = (claim for claims in self._ready.values() for claim in claims)
        return {task.id: task.attempt for task in self.unplaced.seatless} | {
            c.task: c.attempt for c in ready
        }

    def commit(self, plan: Plan) -> None:
        """Plan to send the claims that are ready."""
        plan.commit = self._ready
        self._ready = {}
        self.choices.fill(plan)

    def retry(self, plan: Plan) -> None:
        """Claim other seats for tasks without one; plan to give back those that have found none for
        a whole gap.

        Their takes are undone, as no claim of theirs has won. While nodes are read, all are kept:
        the seats of those partitions are not known yet. Large tasks go back at once: the leader
        books nodes only for tasks that wait.
        """
        tasks = self.unplaced.seatless
        self.unplaced.seatless = []
        back = self.unplaced.doubtful
        self.unplaced.doubtful = []
        undone: list[Taken] = []
        before = self._kept_until
        self._kept_until = {}
        for group, left in self._claim_others(tasks):
            keeps = self._freshness.asks and not self.least.makes_large(group.needs)
            for task in left:
                until = before.get(task.id, self.ticks + self.ticks_of_gap)
                if plan.read_nodes or (keeps and self.ticks <= until):
                    self.unplaced.seatless.append(task)
                    self._kept_until[task.id] = until
                else:
                    undone.append(task)
        plan.give_back += [(task.id, task.attempt, "") for task in back]
        plan.give_back += [(task.id, task.attempt, "undo") for task in undone]
        for task in (*back, *undone):
            plan.look_at(shard_of(task.id, self._queue.shards))

    def _claim_others(self, tasks: Sequence[Taken]) -> Iterator[tuple[KindGroup, list[Taken]]]:
        """Claim seats for tasks without one; return those for which there are none, by groups of
        their kinds.

        A kind that found no seat is not tried again until a partition changes, or the tasks that go
        before it at waiting seats.
        """
        if self.changed or self._strict != len(self._queue.blocked.strict):
            self._in_vain.clear()
        self._strict = len(self._queue.blocked.strict)
        found: dict[tuple[GroupKey, Strategy], tuple[KindGroup, dict[Kind, list[Taken]]]] = {}
        for kind, some in by_kind(tasks).items():
            if kind in self._in_vain:
                yield self._in_vain[kind], some
                continue
            group = self._queue.group_of(kind)
            strategy = self._selector.resolve(kind.strategy)
            found.setdefault((group.key, strategy), (group, {}))[1][kind] = some
        for (_, strategy), (group, kinds) in found.items():
            left = self._claim_in(group, strategy, kinds)
            if left and not self._finder.fetch(group, strategy, len(left), kept_back=True):
                self._in_vain |= dict.fromkeys((task.kind for task in left), group)
            yield group, left

    def _claim_in(
        self, group: KindGroup, strategy: Strategy, kinds: Mapping[Kind, Sequence[Taken]]
    ) -> list[Taken]:
        """Claim slots for tasks of a group, then waiting seats; return the tasks for which there
        are not enough.
        """
        finds = (self._finder.find, partial(self._waiting_seats, first=inf))
        for find in finds:
            wanted = sum(map(len, kinds.values()))
            seats = (
                self._reserve(group, find(group, strategy, wanted=wanted), wanted) if wanted else []
            )
            kinds = {kind: self._claim_all(kind, some, seats) for kind, some in kinds.items()}
            for reservation in seats:
                reservation.give_back()
        return [task for some in kinds.values() for task in some]

    # -- seats for what waits ----------------------------------------------------------------------

    def reserve(self, plan: Plan, room: int) -> None:
        """Reserve seats for up to `room` waiting tasks, the oldest first; plan to take as many of
        each kind.
        """
        reserved: dict[int, dict[Kind, list[Reservation]]] = {}
        asked: dict[WaitingKind, int] = {}
        reading: set[KindGroup] = set()
        tried: set[KindGroup] = set()
        heap = self._queue.open_kinds(self.changed, tried)
        while room and (heap or (heap := self._queue.open_kinds(self.changed, tried))):
            *_, number, waiting = heapq.heappop(heap)
            group = waiting.group
            kind = waiting.kind
            done = asked.get(waiting, 0)
            left = waiting.count - done
            if group.blocked or group in reading or left <= 0:
                tried.add(group)
                continue
            strategy = self._selector.resolve(kind.strategy)
            wanted = min(left, room)
            found = self._finder.find(group, strategy, wanted)
            total = count_seats(found)
            if not count_seats(found, kept_back=False) and self._finder.fetch(
                group, strategy, left, kept_back=not total
            ):
                reading.add(group)
                tried.add(group)
                continue
            if not total:
                found = self._waiting_seats(group, strategy, wanted, waiting.first)
                total = count_seats(found)
            if not total:
                self._queue.block(group)
                tried.add(group)
                continue
            count = min(wanted, total)
            if heap:
                count = min(
                    count, max(self._queue.ahead(waiting, done, heap[0]), -(-count // PORTIONS))
                )
            reserved.setdefault(waiting.shard, {}).setdefault(kind, []).extend(
                self._reserve(group, found, count)
            )
            asked[waiting] = done + count
            room -= count
            if left > count:
                heapq.heappush(heap, self._queue.entry(waiting, done + count, number))
        if room:
            self.changed.clear()
        self._reserved = reserved
        self.left_behind = set() if room else {*reserved, *(waiting.shard for *_, waiting in heap)}
        for waiting, count in asked.items():
            plan.look_at(waiting.shard).take.append((waiting.kind.text, count))
        self._freshness.passes += 1

    def _waiting_seats(
        self, group: KindGroup, strategy: Strategy, wanted: float, first: float
    ) -> Sequence[Sequence[Seats]]:
        """Return the waiting seats for a group of which no slot is free, unless an older task needs
        one of those slots.

        Short tasks that take turns at a slot would keep it from a task that needs amounts or
        several slots. first: the order of the first task; that of a taken task is not known, so all
        that wait may be older.
        """
        if not group.may_wait or not any(p.ahead_count for p in self._view.partitions):
            return []
        for other in self._queue.blocked.strict:
            older = min(waiting.first for waiting in other.waiting.values()) < first
            if older and any(
                p.offers.looks_ahead(other.needs, other.knowers) for p in self._view.partitions
            ):
                return []
        return self._finder.find(group, strategy, wanted, ahead=True)

    def _reserve(
        self, group: KindGroup, found: Sequence[Sequence[Seats]], count: int
    ) -> list[Reservation]:
        """Sample up to `count` of these seats by their score, all of one list before the next."""
        made: list[Reservation] = []
        for seats in found:
            if seats and count:
                made += sample_seats(seats, count, group.needs, self._rng)
                count -= min(count, sum(len(some.leads) for some in seats))
        return made

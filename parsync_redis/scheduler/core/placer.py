"""The placement of tasks: seats are reserved for what waits, as many tasks are taken, and claimed.

    kind waits -> seats reserved -> that many tasks taken -> claimed -> judged: won
                                                                ^        lost: seat was another's
                                                                |------- another seat
                                                                `------- kept a gap, given back

A task is taken only for a seat that the view has. If another scheduler has got the seat meanwhile,
the task is kept for a gap, in which every partition is read once. The task gets the next slot or
waiting seat that this scheduler sees, and in a full cluster such a seat comes soon.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf

import numpy as np

from ...model.claim import Claim
from ...model.ids import shard_of
from ...model.kind import Kind
from ...model.options import Strategy
from ...model.task import Taken
from ...placement.strategy import StrategySelector
from .candidates import NO_SEATS, Candidates
from .claim_outcomes import Widths
from .freshness import Freshness, PartitionOrder
from .kind_group import GroupKey, KindGroup, WaitingKind
from .large_kinds import LeastAsked
from .partition import Reservation
from .placement_log import Choices
from .plan import Plan
from .queue import QueueCopy
from .seats import SeatFinder, sample_seats, split_off
from .turns import gives_way, larger_fitting, turns_of
from .unplaced_tasks import UnplacedTasks
from .view import View


def by_kind(tasks: Iterable[Taken]) -> dict[Kind, list[Taken]]:
    """Return the tasks of each kind, in their order."""
    tasks_by_kind: dict[Kind, list[Taken]] = {}
    for task in tasks:
        tasks_by_kind.setdefault(task.kind, []).append(task)
    return tasks_by_kind


class Placer:
    """Turns what waits into claims.

    plan: the plan of the next round trip; each new claim goes into it.
    unplaced: the taken tasks without a place.
    changed: the partitions that changed since seats were last searched.
    choices: why some tasks got their places.
    ticks: number of ticks until now.
    ticks_of_gap: number of ticks in a gap.
    widths: among how many seats tasks with preferences choose.
    least: tells which tasks are large.
    left_behind: the shards with tasks that have seats, but that one round trip could not take.
    """

    def __init__(
        self,
        name: str,
        view: View,
        queue: QueueCopy,
        freshness: Freshness,
        selector: StrategySelector,
        orders: Mapping[Strategy, PartitionOrder],
        rng: np.random.Generator,
    ) -> None:
        self.plan = Plan()
        self.choices = Choices(view, name)
        self._view = view
        self._queue = queue
        self._freshness = freshness
        self._selector = selector
        self._rng = rng
        self.widths = Widths()
        self._finder = SeatFinder(view, freshness, orders, rng, self.widths)
        self.unplaced = UnplacedTasks({}, [])
        self.changed: set[int] = set()
        self.ticks = 0
        self.ticks_of_gap = 1
        self.least = LeastAsked(0.0)
        # by task without a seat, the tick after which it goes back
        self._kept_until: dict[str, int] = {}
        # kinds that found no seat since a partition changed
        self._in_vain: dict[Kind, KindGroup] = {}
        # number of groups that went first at waiting seats when `_in_vain` began
        self._strict = 0
        self.left_behind: set[int] = set()
        # the reservations by shard
        self._reserved: dict[int, dict[Kind, list[Reservation]]] = {}

    def forget(self) -> None:
        """Drop all tasks, claims and reservations."""
        self.plan = Plan()
        self.unplaced = UnplacedTasks({}, [])
        self.choices.forget()
        self._reserved.clear()
        self._kept_until.clear()
        self._in_vain.clear()
        for partition in self._view.partitions:
            partition.forget_reservations()

    # -- tasks that are taken ----------------------------------------------------------------------

    def on_took(self, shard: int, tasks: Sequence[Taken]) -> None:
        """Claim the seats reserved for a shard for the tasks that came there.

        All other seats that were reserved for the shard are put back.
        """
        reserved = self._reserved.pop(shard, {})
        for kind, tasks_of_kind in by_kind(tasks).items():
            seatless = self._claim(kind, tasks_of_kind, reserved.get(kind, ()))
            self.unplaced.seatless += seatless
        for reservation in chain.from_iterable(reserved.values()):
            if reservation:
                self.changed.add(reservation.partition.number)
            reservation.give_back()

    def _claim(
        self, kind: Kind, tasks: Sequence[Taken], reservations: Sequence[Reservation]
    ) -> Sequence[Taken]:
        """Claim reserved seats for tasks of a kind; return the tasks for which there is no seat.

        A task that ran before gets a seat on another node than its last node, if there is such a
        seat.
        """
        if any(task.last for task in tasks):
            self._claim_elsewhere(kind, tasks, reservations)
            tasks = [task for task in tasks if task.id not in self.unplaced.claimed]
        for reservation in reservations:
            count = len(reservation)
            self._claim_seats(reservation, tasks[:count])
            tasks = tasks[count:]
        return tasks

    def _claim_elsewhere(
        self, kind: Kind, tasks: Sequence[Taken], reservations: Sequence[Reservation]
    ) -> None:
        """Claim a seat for each task that avoids its last node, if another node has a seat."""
        group = self._queue.group_of(kind)
        strategy = self._selector.resolve(kind.strategy)
        for task in tasks:
            if not task.last:
                continue
            seat = self._finder.find_elsewhere(task.last, group, strategy, reservations)
            if seat is not None:
                unused = [reservation for reservation in reservations if reservation is not seat]
                self._claim_seats(seat, [task], unused)
                if not seat:
                    seat.give_back()

    def _claim_seats(
        self,
        reservation: Reservation,
        tasks: Sequence[Taken],
        unused: Sequence[Reservation] = (),
    ) -> None:
        """Put claims of the first seats of a reservation into the plan, one for each task.

        unused: the reservations that the tasks had and do not use.
        """
        if not tasks:
            return
        if self.choices.wanted:
            kind = tasks[0].kind
            group = self._queue.group_of(kind)
            strategy = self._selector.resolve(kind.strategy)
            self.choices.on_claim(tasks, group, reservation, strategy, unused)
        copy = reservation.partition
        amounts = reservation.needs.asked
        seats = list(reservation.claim(len(tasks)))
        self.plan.commit.setdefault(copy.number, []).extend(
            Claim(
                task.id,
                task.attempt,
                copy.number,
                node.name,
                slots,
                node.inc,
                amounts,
                node.first,
                copy.epoch,
            )
            for task, (node, slots) in zip(tasks, seats, strict=True)
        )
        self.unplaced.claimed.update((task.id, task) for task in tasks)

    def on_unjudged(self, claims: Iterable[Claim]) -> None:
        """Let tasks go back whose claims got no answer.

        If a claim has won in spite of that, its attempt can no longer start.
        """
        claimed = self.unplaced.claimed
        self.unplaced.doubtful += [
            claimed.pop(claim.task) for claim in claims if claim.task in claimed
        ]

    @property
    def unclaimed(self) -> dict[str, str]:
        """The attempts, by task, of which no claim can have won.

        Either no claim of the attempt was sent, or each claim of the attempt was lost.
        """
        attempts = {task.id: task.attempt for task in self.unplaced.seatless}
        unsent = chain.from_iterable(self.plan.commit.values())
        return attempts | {claim.task: claim.attempt for claim in unsent}

    def retry(self) -> None:
        """Claim other seats for tasks without a seat.

        Give back tasks that found none for a whole gap, or lost MAX_LOSSES claims. Their takes are
        undone, because no claim of theirs has won. While nodes are read, all tasks are kept: the
        seats of those partitions are not known yet. Large tasks go back at once, because the leader
        books nodes only for tasks that wait; and tasks that let others pass, because their turns
        decide at which seat.
        """
        plan = self.plan
        undone = self.unplaced.take_unlucky()
        tasks = self.unplaced.seatless
        self.unplaced.seatless = []
        doubtful = self.unplaced.doubtful
        self.unplaced.doubtful = []
        kept_until_before = self._kept_until
        self._kept_until = {}
        for group, seatless in self._claim_others(tasks):
            goes_back = group.lets_pass or self.least.makes_large(group.needs)
            keeps = self._freshness.asks and not goes_back
            for task in seatless:
                until = kept_until_before.get(task.id, self.ticks + self.ticks_of_gap)
                if plan.read_nodes or (keeps and self.ticks <= until):
                    self.unplaced.seatless.append(task)
                    self._kept_until[task.id] = until
                else:
                    undone.append(task)
        plan.give_back += [(task.id, task.attempt, "") for task in doubtful]
        plan.give_back += [(task.id, task.attempt, "undo") for task in undone]
        for task in (*doubtful, *undone):
            self.unplaced.losses.pop(task.id, None)
            plan.look_at(shard_of(task.id, self._queue.shards))

    def _claim_others(self, tasks: Sequence[Taken]) -> Iterator[tuple[KindGroup, list[Taken]]]:
        """Claim seats for tasks without a seat; yield by group the tasks for which there are none.

        A kind that found no seat is tried again after a partition has changed, or the number of
        groups that go first at waiting seats. A kind that gives way is tried with the next plan.
        """
        if self.changed or self._strict != len(self._queue.blocked.strict):
            self._in_vain.clear()
        self._strict = len(self._queue.blocked.strict)
        changed = [self._view.partitions[p] for p in self.changed]
        larger = larger_fitting(self._queue, changed) if tasks else ()
        kinds_by_group: dict[
            tuple[GroupKey, Strategy], tuple[KindGroup, dict[Kind, list[Taken]]]
        ] = {}
        for kind, tasks_of_kind in by_kind(tasks).items():
            if kind in self._in_vain:
                yield self._in_vain[kind], tasks_of_kind
                continue
            group = self._queue.group_of(kind)
            if gives_way(self._queue, kind, larger) or self._view.run_times.lost(group):
                yield group, tasks_of_kind
                continue
            strategy = self._selector.resolve(kind.strategy)
            _, kinds = kinds_by_group.setdefault((group.key, strategy), (group, {}))
            kinds[kind] = tasks_of_kind
        for (_, strategy), (group, kinds) in kinds_by_group.items():
            seatless = self._claim_in(group, strategy, kinds)
            if seatless and not self._finder.fetch(group, strategy, len(seatless), kept_back=True):
                self._in_vain |= dict.fromkeys((task.kind for task in seatless), group)
            yield group, seatless

    def _claim_in(
        self, group: KindGroup, strategy: Strategy, kinds: Mapping[Kind, Sequence[Taken]]
    ) -> list[Taken]:
        """Claim slots, then waiting seats, for tasks of a group; return the tasks that got none."""
        finds = (self._finder.find, partial(self._waiting_seats, first=inf))
        for find in finds:
            count = sum(map(len, kinds.values()))
            if not count:
                break
            reservations = self._reserve(group, find(group, strategy, count), count)
            kinds = {kind: self._claim(kind, kinds[kind], reservations) for kind in kinds}
            for reservation in reservations:
                reservation.give_back()
        return [*chain.from_iterable(kinds.values())]

    # -- seats for what waits ----------------------------------------------------------------------

    def reserve(self, room: int) -> None:
        """Reserve seats for up to `room` waiting tasks, the oldest first; plan to take as many."""
        reserved: dict[int, dict[Kind, list[Reservation]]] = {}
        seat_order = turns_of(self._queue, self._view.run_times, self.changed)
        while room and (pick := seat_order.pick()) is not None:
            waiting, unseated = pick
            group = waiting.group
            limit = min(seat_order.limit(waiting, unseated), room)
            seats = self._seats_of_kind(waiting, limit, unseated)
            if seats is None:
                seat_order.leave_out(group)
                continue
            count = min(limit, seats.count_best() if group.lets_pass else seats.count())
            if not count:
                self._queue.block(group)
                seat_order.leave_out(group)
                continue
            dealt = seat_order.deal(waiting, unseated, count)
            total = sum(dealt.values())
            room -= total
            reservations = self._reserve(group, seats, total)
            for kind_dealt, tasks in dealt.items():
                part = reservations if tasks == total else split_off(reservations, tasks)
                reserved_in_shard = reserved.setdefault(kind_dealt.shard, {})
                reserved_in_shard.setdefault(kind_dealt.kind, []).extend(part)
        if room:
            self.changed.clear()
        self._reserved = reserved
        shards_left = seat_order.end()
        self.left_behind = set() if room else {*reserved, *shards_left}
        for waiting, count in seat_order.seated.items():
            self.plan.look_at(waiting.shard).take.append((waiting.kind.text, count))
        for waiting in self._queue.full.take_unmarked():
            self.plan.look_at(waiting.shard).take.append((waiting.kind.text, 0))
        self._freshness.passes += 1

    def _seats_of_kind(self, waiting: WaitingKind, limit: int, unseated: int) -> Candidates | None:
        """Return seats for up to `limit` tasks of a kind, waiting seats if no slot is free.

        None: partitions with seats for the `unseated` tasks are read first.
        """
        group = waiting.group
        strategy = self._selector.resolve(waiting.kind.strategy)
        seats = self._finder.find(group, strategy, limit)
        if seats.count(kept_back=False):
            return seats
        total = seats.count()
        if self._finder.fetch(group, strategy, unseated, kept_back=not total):
            return None
        return seats if total else self._waiting_seats(group, strategy, limit, waiting.first)

    def _waiting_seats(
        self, group: KindGroup, strategy: Strategy, limit: float, first: float
    ) -> Candidates:
        """Return the waiting seats for a group without a free slot, unless an older task needs one.

        Short tasks that take turns at a slot would keep it from a task that needs amounts or
        several slots. first: the order of the group's first task; inf for a taken task, whose order
        is not known, so that every task that waits counts as older.
        """
        partitions = self._view.partitions
        if not group.may_wait or not any(p.ahead_count for p in partitions):
            return NO_SEATS
        for strict in self._queue.blocked.strict:
            is_older = min(waiting.first for waiting in strict.waiting.values()) < first
            if is_older and any(
                p.offers.looks_ahead(strict.needs, strict.knowers) for p in partitions
            ):
                return NO_SEATS
        return self._finder.find(group, strategy, limit, ahead=True)

    def _reserve(self, group: KindGroup, candidates: Candidates, count: int) -> list[Reservation]:
        """Reserve the best `count` seats; among seats that are equally good, the score decides."""
        reservations: list[Reservation] = []
        for seats in candidates.best(count):
            if count:
                reservations += sample_seats(seats, count, group.needs, self._rng)
                count -= min(count, sum(len(of_partition.leads) for of_partition in seats))
        return reservations

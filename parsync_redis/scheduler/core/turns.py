"""The turns in which waiting kinds get seats in one plan: by age, or by the tree of tenants."""

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from ...model.kind import Kind
from .kind_group import EQUALLY_URGENT, KindGroup, WaitingKind
from .partition import PartitionCopy
from .queue import QueueCopy
from .run_times import RunTimesCopy
from .tenants import Tree

PORTIONS: Final = 16
"""Number of portions in which a kind gets its seats while other kinds wait.

After each portion the next kind gets its turn. A task that is older than all tasks of the next kind
gets a seat in any case. So kinds that share seats get them nearly in the order of their tasks.
"""

KINDS_COUNTED: Final = 64
"""Number of kinds up to which the tasks of a group are counted."""


SeatTurn = tuple[float, int, WaitingKind]
"""A kind's turn for seats: order, a number that breaks ties, the kind."""


class Turns(Protocol):
    """The turns of a plan.

    seated: by kind, how many of its tasks have seats.
    """

    seated: dict[WaitingKind, int]

    def pick(self) -> tuple[WaitingKind, int] | None:
        """Return the kind that is next, and how many of its tasks may get seats; None for none."""

    def limit(self, waiting: WaitingKind, unseated: int) -> int:
        """Return how many seats are of use for a pick."""

    def leave_out(self, group: KindGroup) -> None:
        """Pick no kind of a group any more in this plan."""

    def deal(self, waiting: WaitingKind, unseated: int, count: int) -> dict[WaitingKind, int]:
        """Return which tasks get `count` seats of a pick, by kind; not all seats may be given."""

    def end(self) -> Collection[int]:
        """End the plan; return the shards of kinds that could be picked next."""


def turns_of(queue: QueueCopy, run_times: RunTimesCopy, changed: Collection[int]) -> Turns:
    """Return the turns of a plan. changed: the partitions that have changed."""
    if queue.tree is None:
        return AgeTurns(queue, run_times, changed)
    return TenantTurns(queue, changed)


def tasks_left(queue: QueueCopy, waiting: WaitingKind, seated: int) -> int:
    """Return how many tasks of a kind may get seats besides those that have some.

    A kind for whose tasks an account has no room leaves its group.
    """
    unseated = waiting.count - seated
    if unseated <= 0 or not waiting.asks:
        return unseated
    room = queue.accounts.room(waiting.asks, waiting.shard)
    if room.tasks >= unseated:
        return unseated
    if room.tasks > 0:
        return int(room.tasks)
    queue.on_full(waiting, room)
    return 0


def larger_fitting(queue: QueueCopy, partitions: Sequence[PartitionCopy]) -> Sequence[WaitingKind]:
    """Return the kinds of tenants that need more than a waiting seat and may fit there now.

    Of each group only the kind that is next is returned.
    """
    if queue.tree is None or not queue.blocked.strict:
        return ()
    queue.begin_plan()
    groups = queue.blocked.fitting(partitions, [*queue.blocked.strict])
    kinds = [queue.tree.first_of(group) for group in groups]
    return [waiting for waiting in kinds if waiting is not None]


def gives_way(queue: QueueCopy, kind: Kind, larger: Iterable[WaitingKind]) -> bool:
    """Return whether a taken task leaves its seat to a larger task of a tenant that goes before.

    Without the slot of the taken task the larger task has no room, and its tenant's turn is lost.
    """
    tree = queue.tree
    return tree is not None and any(
        tree.goes_before(waiting.kind.tenant, kind.tenant) for waiting in larger
    )


class AgeTurns:
    """The turns without tenants: the oldest task first.

    A task that prefers fast nodes gets its turn later by what it would lose on the best free seat.
    """

    def __init__(self, queue: QueueCopy, run_times: RunTimesCopy, changed: Collection[int]) -> None:
        self._queue = queue
        self._run_times = run_times
        self._changed = changed
        self._tried: set[KindGroup] = set()
        self._left_out: set[KindGroup] = set()
        self._heap: list[SeatTurn] = []
        self._number = 0
        self.seated: dict[WaitingKind, int] = {}

    def _open(self) -> None:
        """Make a heap of the kinds that may find a seat."""
        open_kinds = self._queue.open_kinds(self._changed, self._tried)
        self._heap = [self._turn(waiting, 0, number) for number, waiting in enumerate(open_kinds)]
        heapq.heapify(self._heap)

    def _turn(self, waiting: WaitingKind, done: int, number: int) -> SeatTurn:
        """Return the turn of a kind of which `done` tasks have seats. number: breaks ties."""
        return waiting.order(done) + self._run_times.lost(waiting.group), number, waiting

    def _ahead(self, waiting: WaitingKind, done: int) -> int:
        """Estimate how many tasks of a kind go before the next kind; at least 1.

        The count begins with task number `done`.
        """
        order, _, following = self._heap[0]
        order -= self._run_times.lost(waiting.group)
        is_of_shard = following.shard == waiting.shard
        return waiting.before(order if is_of_shard else order + EQUALLY_URGENT, done)

    def pick(self) -> tuple[WaitingKind, int] | None:
        """Return the kind that is next, and how many of its tasks may get seats."""
        queue = self._queue
        while True:
            if not self._heap:
                self._open()
                if not self._heap:
                    return None
            *_, self._number, waiting = heapq.heappop(self._heap)
            group = waiting.group
            if group.lets_pass and self._is_passed(waiting):
                continue
            if not group.blocked and group not in self._left_out:
                unseated = tasks_left(queue, waiting, self.seated.get(waiting, 0))
                if unseated > 0:
                    return waiting, unseated
            if not waiting.full:  # a kind that has left its group says nothing about the others
                self._tried.add(group)

    def _is_passed(self, waiting: WaitingKind) -> bool:
        """Return whether another kind's turn is first now; the kind then keeps its later turn.

        The better seats of a kind that prefers fast nodes may have gone since its turn was noted.
        """
        turn = self._turn(waiting, self.seated.get(waiting, 0), self._number)
        is_passed = bool(self._heap) and self._heap[0] < turn
        if is_passed:
            heapq.heappush(self._heap, turn)
        return is_passed

    def limit(self, waiting: WaitingKind, unseated: int) -> int:
        """Return how many seats are of use for a pick."""
        return unseated

    def leave_out(self, group: KindGroup) -> None:
        """Pick no kind of a group any more in this plan."""
        self._left_out.add(group)
        self._tried.add(group)

    def deal(self, waiting: WaitingKind, unseated: int, count: int) -> dict[WaitingKind, int]:
        """Return how many tasks of the picked kind get seats before the next kind's turn."""
        seated = self.seated.get(waiting, 0)
        if self._heap:
            older = self._ahead(waiting, seated)
            count = min(count, max(older, -(-count // PORTIONS)))
        self.seated[waiting] = seated + count
        if waiting.asks:
            self._queue.accounts.reserve(waiting.shard, waiting.asks, count)
        if unseated > count:
            turn = self._turn(waiting, seated + count, self._number)
            heapq.heappush(self._heap, turn)
        return {waiting: count}

    def end(self) -> Collection[int]:
        """Return the shards of the kinds that could be picked next."""
        return {waiting.shard for *_, waiting in self._heap}


class TenantTurns:
    """The turns by the tree of tenants (tenants.py): one task at a time.

    The kinds of a group fit the same seats. So the seats of a pick are given to kinds of its group
    as long as their turns come.
    """

    def __init__(self, queue: QueueCopy, changed: Collection[int]) -> None:
        assert queue.tree is not None, "without tenants the age decides"
        self._queue = queue
        self._tree: Tree = queue.tree
        self._changed = changed
        self._left_out: set[KindGroup] = set()
        self.seated: dict[WaitingKind, int] = {}
        queue.begin_plan()
        queue.open_groups(changed, self._left_out)

    def pick(self) -> tuple[WaitingKind, int] | None:
        """Return the kind that is next, and how many of its tasks may get seats."""
        while True:
            waiting = self._tree.pick()
            if waiting is None:
                if not self._queue.open_groups(self._changed, self._left_out):
                    return None
                continue
            if unseated := self._unseated(waiting):
                return waiting, unseated

    def _unseated(self, waiting: WaitingKind) -> int:
        """Return how many tasks of a kind may get seats; 0 for a kind that has left the tree."""
        unseated = tasks_left(self._queue, waiting, self.seated.get(waiting, 0))
        if unseated <= 0:
            self._tree.discard(waiting)
            return 0
        return unseated

    def limit(self, waiting: WaitingKind, unseated: int) -> int:
        """Return how many tasks the group of a pick has, as far as they are counted."""
        kinds = waiting.group.waiting
        if len(kinds) > KINDS_COUNTED:
            return max(unseated, len(kinds))
        return max(unseated, sum(of_group.count for of_group in kinds.values()))

    def leave_out(self, group: KindGroup) -> None:
        """Pick no kind of a group any more in this plan."""
        self._left_out.add(group)
        self._tree.close(group)

    def deal(self, waiting: WaitingKind, unseated: int, count: int) -> dict[WaitingKind, int]:
        """Return which tasks get the seats, by kind."""
        group = waiting.group
        strategy = waiting.kind.strategy
        dealt: dict[WaitingKind, int] = {}
        while True:
            tasks = min(count, unseated) if self._tree.is_alone(waiting) else 1
            self._seat(waiting, tasks)
            dealt[waiting] = dealt.get(waiting, 0) + tasks
            count -= tasks
            pick = self._tree.pick() if count else None
            while pick is not None and not (unseated := self._unseated(pick)):
                pick = self._tree.pick()
            if pick is None or pick.group is not group or pick.kind.strategy != strategy:
                return dealt
            waiting = pick

    def _seat(self, waiting: WaitingKind, tasks: int) -> None:
        """Note that tasks of a kind get seats: their tenants hold more."""
        seated = self.seated.get(waiting, 0) + tasks
        self.seated[waiting] = seated
        self._queue.accounts.reserve(waiting.shard, waiting.asks, tasks)
        self._tree.on_reserved(waiting, tasks)
        if seated < waiting.count:
            self._tree.set(waiting, waiting.order(seated))

    def end(self) -> Collection[int]:
        """Return the shard of the kind that could be picked next; the tree is as before again."""
        pick = self._tree.pick()
        self._queue.end_plan(self.seated, self._left_out)
        return () if pick is None else (pick.shard,)

"""The turns in which large tasks of tenants get bookings. Pure.

The turn of a tenant alone starts no large task: no node ever has room for it. So the leader books
nodes (placement/backfill.py), in the order in which the tree of tenants (tenants.py) would start
the large tasks. A tenant gets as many bookings as are missing to what it is due, the last one may
pass that. If all tenants that wait have what they are due, the one whose turn it is gets one. So a
tenant does not keep nodes from a tenant that goes before it, and no large task waits for ever
behind smaller tasks of its own tenant. A tenant beside which nobody waits may have any number.

Past use counts as in the tree: what a tenant has is its share with its used share, and what it is
due is its part of the cluster, and the same part of the used shares of all siblings that wait. So
all siblings have the same bar, in the order of their turns. When one may have no booking, no
sibling with a later turn may.
"""

from collections.abc import Collection
from typing import NamedTuple

from ...model.policy import BELOW_GUARANTEE, DueShares, Turn
from ...placement.backfill import MAX_BOOKINGS
from .kind_group import KindGroup, WaitingKind
from .large_kinds import LargeKind
from .queue import QueueCopy
from .tenants import ROOT, Tenant


class _Siblings(NamedTuple):
    """The children of a tenant that wait, with large tasks or without.

    first: the turns of the two that go first, with their names.
    used: the sum of their used shares, as far as these count.
    weight: the sum of their weights.
    """

    first: list[tuple[Turn, str]]
    used: float
    weight: float


class BookingTurns:
    """The turns of the large tasks that wait, in a queue with tenants.

    A task that gets a booking counts as held for the further turns. In the end that is taken back.
    """

    def __init__(self, queue: QueueCopy, groups: Collection[KindGroup]) -> None:
        """Prepare the turns. groups: the large groups that find no seat."""
        assert queue.tree is not None, "without tenants the age decides"
        self._queue = queue
        self._accounts = queue.accounts
        self._groups = groups
        self._tree = queue.tree
        # by parent
        self._siblings: dict[str, _Siblings] = {}
        waiting = (tenant.name for tenant in queue.tree.waiting_tenants() if tenant.parent)
        self._due = DueShares(queue.tree.policy, {*queue.accounts.tenants(), *waiting})

    def large(self) -> tuple[LargeKind, ...]:
        """Return the kinds whose tasks get bookings, with their turns."""
        self._queue.begin_plan()
        numbers: dict[str, list[int]] = {}
        for number, waiting in enumerate(self._turns()):
            numbers.setdefault(waiting.kind.text, []).append(number)
        return tuple(self._large_kind(text, turn_numbers) for text, turn_numbers in numbers.items())

    def _large_kind(self, text: str, turn_numbers: list[int]) -> LargeKind:
        """Return a kind with the places of its tasks in the order of bookings."""
        in_shards = [
            waiting
            for kinds in self._queue.kinds
            if (waiting := kinds.get(text)) is not None and not waiting.full
        ]
        shards = tuple(waiting.shard for waiting in in_shards)
        first = min(waiting.first for waiting in in_shards)
        return LargeKind(text, shards, first, tuple(turn_numbers))

    def _turns(self) -> list[WaitingKind]:
        """Return the kind of each task that gets a booking, in their order."""
        kinds_in_turn: list[WaitingKind] = []
        counts: dict[WaitingKind, int] = {}
        discarded: list[WaitingKind] = []
        # the tenants that have a booking; those whose children may have no further ones
        with_turn: set[str] = set()
        barred: set[str] = set()
        with self._tree.only_open(self._groups):
            while len(kinds_in_turn) < MAX_BOOKINGS and (waiting := self._tree.pick()) is not None:
                count = counts.get(waiting, 0)
                tenants = self._tree.tenants_of(waiting)
                parent = self._find_barring(tenants, with_turn, barred)
                if parent is not None:
                    if parent == ROOT:
                        break
                    barred.add(parent)
                if parent is not None or count == waiting.count or not self._has_room(waiting):
                    self._tree.discard(waiting)
                    discarded.append(waiting)
                else:
                    kinds_in_turn.append(waiting)
                    counts[waiting] = count + 1
                    with_turn.update(tenant.name for tenant in tenants)
                    self._accounts.reserve(waiting.shard, waiting.asks, 1)
                    self._tree.on_reserved(waiting, 1)
                    self._tree.set(waiting, waiting.order(count + 1))
            for waiting, count in counts.items():
                self._accounts.reserve(waiting.shard, waiting.asks, -count)
                self._tree.on_reserved(waiting, -count)
        for waiting in (*discarded, *counts):
            self._tree.set(waiting, waiting.first)
        return kinds_in_turn

    def _has_room(self, waiting: WaitingKind) -> bool:
        """Return whether the accounts of a kind have room for another task."""
        return self._accounts.room(waiting.asks, waiting.shard).tasks > 0

    def _find_barring(
        self, tenants: Collection[Tenant], with_turn: Collection[str], barred: Collection[str]
    ) -> str | None:
        """Return the highest parent whose children may have no further bookings; None if none is.

        tenants: those that a kind counts to, whose turn it is, from below the root down.
        """
        for tenant in tenants:
            assert tenant.parent is not None, "the root has no turn"
            if tenant.parent.name in barred or not self._may_book(tenant, tenant.parent, with_turn):
                return tenant.parent.name
        return None

    def _may_book(self, tenant: Tenant, parent: Tenant, with_turn: Collection[str]) -> bool:
        """Return whether a tenant may have another booking, beside the other children."""
        if parent.name not in self._siblings:
            self._siblings[parent.name] = self._siblings_below(parent)
        siblings = self._siblings[parent.name]
        sibling_turns = [turn for turn, name in siblings.first if name != tenant.name]
        if not sibling_turns:
            return True
        if tenant.strict:
            return tenant.turn <= sibling_turns[0]
        tenant_class, weighted_share = tenant.turn
        if tenant_class == BELOW_GUARANTEE:
            return True
        weight = tenant.entry.weight
        due = self._due.of(tenant.name) + siblings.used * weight / siblings.weight
        if weighted_share * weight < due:
            return True
        return tenant.name not in with_turn and tenant.turn <= sibling_turns[0]

    def _siblings_below(self, parent: Tenant) -> _Siblings:
        """Return what counts of the children of a tenant, before any task gets a booking."""
        children = {child for branch in parent.branches.values() for child in branch.children}
        first: list[tuple[Turn, str]] = []
        for child in children:
            if len(first) < 2 or child.turn < first[1][0]:
                first = sorted((*first, (child.turn, child.name)))[:2]
        used_shares = self._queue.used_shares
        used = sum(
            used_shares.get(child.name, 0.0) for child in children if child.entry.half_life_s
        )
        return _Siblings(first, used, sum(child.entry.weight for child in children))

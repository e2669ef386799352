"""The turns in which large tasks of tenants get bookings. Pure.

The turn of a tenant alone starts no large task: no node ever has room for it. So the leader books
nodes (placement/backfill.py), in the order in which the tree of tenants (tenants.py) would start
the large tasks. A tenant gets as many bookings as are missing to what it is due, the last one may
pass that. If all tenants that wait have what they are due, the one whose turn it is gets one. So a
tenant does not keep nodes from a tenant that holds less than its part, and no large task waits for
ever behind smaller tasks of its own tenant. A tenant beside which nobody waits may have any number.
"""

from collections.abc import Collection

from ...model.policy import BELOW_GUARANTEE, DueShares, Turn
from ...placement.backfill import MAX_BOOKINGS
from .kind_group import KindGroup, WaitingKind
from .large_kinds import LargeKind, large_kinds
from .queue import QueueCopy
from .tenants import Tenant, Tree
from .view import View


class BookingTurns:
    """The turns of the large tasks that wait, in a queue with tenants.

    A task that gets a booking counts as held for the further turns. In the end that is taken back.
    """

    def __init__(self, queue: QueueCopy, view: View, groups: Collection[KindGroup]) -> None:
        """Prepare the turns. groups: the large groups that find no seat."""
        assert queue.tree is not None, "without tenants the age decides"
        self._accounts = queue.accounts
        self._groups = groups
        self._tree = Tree(queue.accounts, queue.tree.policy)
        self._tree.set_totals(view.totals())
        self._tree.set_used(view.used())
        # by kind, the tenants that it counts to; by tenant, its kinds
        self._tenants: dict[WaitingKind, list[Tenant]] = {}
        self._kinds: dict[Tenant, list[WaitingKind]] = {}
        for group in groups:
            for waiting in group.waiting.values():
                self._tree.set(waiting, waiting.first)
                self._tenants[waiting] = self._tree.tenants_of(waiting)
                for tenant in self._tenants[waiting]:
                    self._kinds.setdefault(tenant, []).append(waiting)
            self._tree.open(group)
        # by tenant, the turns of the two children that go first, with large tasks or without
        self._first: dict[str, list[tuple[Turn, str]]] = {}
        active = {*self._accounts.tenants()}
        for tenant in queue.tree.waiting_tenants():
            if tenant.parent is not None:
                active.add(tenant.name)
                first = self._first.setdefault(tenant.parent.name, [])
                first.append((tenant.turn, tenant.name))
                first.sort()
                del first[2:]
        self._due = DueShares(queue.tree.policy, active)

    def large(self) -> tuple[LargeKind, ...]:
        """Return the kinds whose tasks get bookings, with their turns."""
        numbers: dict[str, list[int]] = {}
        for number, waiting in enumerate(self._turns()):
            numbers.setdefault(waiting.kind.text, []).append(number)
        return tuple(
            large_kind._replace(turn_numbers=tuple(numbers[large_kind.kind]))
            for large_kind in large_kinds(self._groups)
            if large_kind.kind in numbers
        )

    def _turns(self) -> list[WaitingKind]:
        """Return the kind of each task that gets a booking, in their order."""
        kinds_in_turn: list[WaitingKind] = []
        counts: dict[WaitingKind, int] = {}
        while len(kinds_in_turn) < MAX_BOOKINGS and (waiting := self._tree.pick()) is not None:
            count = counts.get(waiting, 0)
            tenants = self._tenants[waiting]
            with_turn = {tenant for kind in counts for tenant in self._tenants[kind]}
            barred = [tenant for tenant in tenants if not self._may_book(tenant, with_turn)]
            if barred:
                for kind in self._kinds[barred[0]]:
                    self._tree.discard(kind)
            elif count == waiting.count or not self._has_room(waiting):
                self._tree.discard(waiting)
            else:
                kinds_in_turn.append(waiting)
                counts[waiting] = count + 1
                self._accounts.reserve(waiting.shard, waiting.asks, 1)
                self._tree.on_reserved(waiting, 1)
                self._tree.set(waiting, waiting.order(count + 1))
        for waiting, count in counts.items():
            self._accounts.reserve(waiting.shard, waiting.asks, -count)
        return kinds_in_turn

    def _has_room(self, waiting: WaitingKind) -> bool:
        """Return whether the accounts of a kind have room for another task."""
        return self._accounts.room(waiting.asks, waiting.shard).tasks > 0

    def _may_book(self, tenant: Tenant, with_turn: Collection[Tenant]) -> bool:
        """Return whether a tenant may have another booking, beside the other children."""
        assert tenant.parent is not None, "the root has no turn"
        first = self._first[tenant.parent.name]
        sibling_turns = [turn for turn, name in first if name != tenant.name]
        if not sibling_turns:
            return True
        if tenant.strict:
            return tenant.turn <= sibling_turns[0]
        tenant_class, weighted_share = tenant.turn
        if tenant_class == BELOW_GUARANTEE:
            return True
        if weighted_share * tenant.entry.weight < self._due.of(tenant.name):
            return True
        return tenant not in with_turn and tenant.turn <= sibling_turns[0]

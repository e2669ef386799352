"""A scheduler's copy of the queue: which kinds wait in each shard, and how many tasks of each.

A group of kinds (kind_group.py) that finds no seat is blocked until a partition changes in which
the group may fit. So what waits costs nothing while nothing changes.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final

from ...model.account import TENANT_MARK
from ...model.kind import Kind, KindLine
from ...model.needs import parse_needs
from ...model.policy import Policy
from ...model.preferences import goes_by_name
from ...model.replies import Took
from .accounts import AccountsCopy, Room, asks_of
from .blocked import BlockedGroups
from .full_accounts import FullAccounts
from .kind_group import GroupKey, KindGroup, WaitingKind
from .reservations import BarredNodes
from .tenants import Tree
from .view import View

GROUPS_AT_ONCE: Final = 64
"""Maximum number of groups opened at a time: a freed slot is not offered to ten thousand groups."""

ACCOUNT_MARK: Final = "="
"""The first character of an account among the changes of a shard; kinds begin otherwise."""


class QueueCopy:
    """The kinds that wait, by shard.

    versions: by shard, the version that the copy has; the next look gets the changes since.
    kinds: by shard and text.
    barred: the nodes where kinds may not go.
    away: shards whose server does not answer; nothing is taken there.
    blocked: the groups without a seat.
    accounts: what the accounts of tasks hold.
    full: the kinds for which an account has no room; they are in no group.
    used_shares, work: by tenant, the mean of the shares that it held lately, and how much work its
        slots do (model/used_share.py).
    tree: the tenants; None while no kind with a tenant waits, so that the age decides.
    """

    def __init__(self, view: View, shards: int = 1) -> None:
        self._view = view
        self.shards = shards
        self.away: set[int] = set()
        self.versions = ["0"] * shards
        self.kinds: list[dict[str, WaitingKind]] = [{} for _ in range(shards)]
        self._groups: dict[GroupKey, KindGroup] = {}
        self.barred = BarredNodes()
        self._open: dict[KindGroup, None] = {}
        # groups that were never compared with the partitions
        self._fresh: dict[KindGroup, None] = {}
        self.blocked = BlockedGroups()
        self.accounts = AccountsCopy(shards, view.warm_sets)
        self.full = FullAccounts(self.accounts)
        self.tree: Tree | None = None
        # number of waiting kinds with a tenant
        self._tenant_kinds = 0
        self._policy = Policy()
        self.used_shares: Mapping[str, float] = {}
        self.work: Mapping[str, float] = {}

    @property
    def groups(self) -> Collection[KindGroup]:
        """The groups of which something waits."""
        return self._groups.values()

    def clear(self) -> None:
        """Forget everything; the next looks read all shards."""
        for shard in range(self.shards):
            self.clear_shard(shard)

    def clear_shard(self, shard: int) -> None:
        """Forget a shard; the next look reads all of it."""
        self.versions[shard] = "0"
        for text in list(self.kinds[shard]):
            self._forget(shard, text)
        for account in self.accounts.clear_shard(shard):
            self._on_account(shard, account)

    def update(self, took: Took) -> None:
        """Take in the kinds of a shard that have changed."""
        if took.anew:
            self.clear_shard(took.shard)
        self.versions[took.shard] = took.version
        self.away.discard(took.shard)
        self.accounts.on_time(took.shard, took.now_ms)
        reserved = self.accounts.settle(took.shard)
        for text, line in took.changes:
            if text.startswith(ACCOUNT_MARK) and " " not in text:  # a kind has a space
                self._set_account(took.shard, text[1:], line)
            else:
                self._set(took.shard, text, line)
        for account in reserved:
            self._on_account(took.shard, account)
        self.full.on_time(took.shard, took.now_ms)

    def _set_account(self, shard: int, account: str, line: str) -> None:
        """Take in the line of an account, or of a pattern of the policy, which ends with `*`."""
        if account.endswith("*"):
            for matching_account in self.accounts.on_pattern(shard, account):
                self._on_account(shard, matching_account)
            return
        self.accounts.set(shard, account, line)
        self._on_account(shard, account)

    def _on_account(self, shard: int, account: str) -> None:
        """Note that what an account holds has changed, or its ceiling."""
        self.full.on_account(shard, account)
        if self.tree is not None and account.startswith(TENANT_MARK):
            self.tree.on_held(account)

    def on_time(self, shard: int, now_ms: float) -> None:
        """Note the time of the server of a shard: the next token of a rate may have come."""
        self.accounts.on_time(shard, now_ms)
        self.full.on_time(shard, now_ms)

    def set_policy(self, policy: Policy) -> None:
        """Take in what the policy says of the tenants."""
        self._policy = policy
        if self.tree is not None:
            self.tree.set_policy(policy)

    def set_used_shares(
        self, used_shares: Mapping[str, float], work: Mapping[str, float] = {}
    ) -> None:
        """Take in the used share of each tenant, and the work of its slots beside a mean slot.

        A missing share is 0, a missing work is 1.
        """
        self.used_shares = used_shares
        self.work = work
        if self.tree is not None:
            self.tree.set_used_shares(used_shares, work)

    def _set(self, shard: int, text: str, line: str) -> None:
        """Take in the line of a kind; '' means that nothing of the kind waits."""
        try:
            now = KindLine.of(line) if line else None
            waiting = self.kinds[shard].get(text)
        except ValueError:
            return  # the line is damaged: the leader writes it anew, with a new version
        if now is None:
            self._forget(shard, text)
        elif waiting is None:
            self._add(shard, text, now)
        else:
            waiting.count = now.count
            waiting.first = now.first
            waiting.last = now.last
            waiting.why = now.why
            if waiting.full:
                self.full.on_line(waiting)
                return
            if self.tree is not None:
                self.tree.set(waiting, waiting.first)
            if not now.why:
                self.blocked.on_unexplained(waiting.group)

    def _add(self, shard: int, text: str, line: KindLine) -> None:
        """Add a kind that begins to wait."""
        try:
            kind = Kind.of(text)
        except ValueError:
            return  # nobody can submit such a kind: the leader repairs the line
        group = self.group_of(kind)
        waiting = WaitingKind(kind, group, line.count, line.first, line.last, line.why, shard)
        waiting.asks = asks_of(kind)
        self.kinds[shard][text] = waiting
        self._tenant_kinds += bool(kind.tenant)
        if self.tree is None and kind.tenant:
            self._plant()
        room = self.accounts.room(waiting.asks, shard)
        if room.tasks > 0:
            self._join(waiting)
        else:
            self.full.add(waiting, room)

    def find_full(self, groups: Iterable[KindGroup]) -> None:
        """Take the kinds for which an account has no room out of these groups."""
        for group in [*groups]:
            for waiting in [*group.waiting.values()]:
                if waiting.asks:
                    room = self.accounts.room(waiting.asks, waiting.shard)
                    if room.tasks <= 0:
                        self.on_full(waiting, room)

    def _plant(self) -> None:
        """Make the tree, with all kinds that are in groups."""
        self.tree = Tree(self.accounts, self._policy, self.used_shares, self.work)
        for group in self._groups.values():
            for waiting in group.waiting.values():
                self.tree.set(waiting, waiting.first)
        for group in self._open:
            self.tree.open(group)

    def _join(self, waiting: WaitingKind) -> None:
        """Put a kind into its group."""
        group = waiting.group = self._group(waiting.kind)
        group.waiting[waiting.shard, waiting.kind.text] = waiting
        if self.tree is not None:
            self.tree.set(waiting, waiting.first)
            if group in self._open:
                self.tree.open(group)
        if not waiting.why:
            self.blocked.on_unexplained(group)

    def _leave(self, waiting: WaitingKind) -> None:
        """Take a kind out of its group."""
        group = waiting.group
        if self.tree is not None:
            self.tree.discard(waiting)
        del group.waiting[waiting.shard, waiting.kind.text]
        if not group.waiting:
            del self._groups[group.key]
            self._open.pop(group, None)
            self._fresh.pop(group, None)
            self.blocked.discard(group)

    def on_full(self, waiting: WaitingKind, room: Room) -> None:
        """Take a kind out of its group, because an account has no room for it."""
        self._leave(waiting)
        self.full.add(waiting, room)

    def group_of(self, kind: Kind) -> KindGroup:
        """Return the group of a kind, even if nothing of the kind waits any more."""
        knowers = self._view.knowers(kind.name)
        barred = self.barred.of(kind)
        needs = self._view.settled(kind.needs)
        name = kind.name if kind.prefer and goes_by_name(kind.prefer) else ""
        return self._groups.get((needs, kind.prefer, knowers, barred, name)) or KindGroup(
            parse_needs(needs), knowers, kind.prefer, barred, name
        )

    def _group(self, kind: Kind) -> KindGroup:
        """Return the group of a kind that waits.

        A new group is compared with the partitions first.
        """
        group = self.group_of(kind)
        if group.key not in self._groups:
            self._groups[group.key] = group
            self.block(group)
            self._fresh[group] = None
        return group

    def _forget(self, shard: int, text: str) -> None:
        """Drop a kind of which nothing waits any more."""
        waiting = self.kinds[shard].pop(text, None)
        if waiting is None:
            return
        if waiting.full:
            self.full.discard(waiting)
        else:
            self._leave(waiting)
        self._tenant_kinds -= bool(waiting.kind.tenant)
        if not self._tenant_kinds:
            self.tree = None

    def forget_reasons(self, shard: int | None = None) -> None:
        """Forget the reasons in the lines of a shard, or of all shards if `shard` is None.

        Another scheduler may have written other reasons meanwhile.
        """
        for kinds in self.kinds if shard is None else [self.kinds[shard]]:
            for waiting in kinds.values():
                waiting.why = None
                if waiting.full:
                    self.full.unexplained[waiting] = None
                elif waiting.group in self.blocked:
                    self.blocked.on_unexplained(waiting.group)

    def set_barred(self, barred: BarredNodes) -> bool:
        """Take in which nodes are barred for which kinds.

        Returns True if the kinds must be grouped again.
        """
        before = self.barred
        self.barred = barred
        if not before and not barred:
            return False
        waiting_kinds = chain.from_iterable(kinds.values() for kinds in self.kinds)
        return any(before.of(w.kind) != barred.of(w.kind) for w in waiting_kinds)

    def regroup(self) -> None:
        """Group all kinds again, because nodes or bookings have changed."""
        self._groups = {}
        self.blocked = BlockedGroups()
        self._open.clear()
        self._fresh.clear()
        waiting_kinds = [*chain.from_iterable(kinds.values() for kinds in self.kinds)]
        is_tree = any(waiting.kind.tenant for waiting in waiting_kinds)
        self.tree = None
        if is_tree:
            self.tree = Tree(self.accounts, self._policy, self.used_shares, self.work)
        for waiting in waiting_kinds:
            if not waiting.full:
                self._join(waiting)

    # -- seats -------------------------------------------------------------------------------------

    @property
    def any_open(self) -> bool:
        """True if some group may find a seat, or an account is to be marked as full."""
        return bool(self._open or self._fresh) or self.full.any_due

    def open_kinds(
        self, changed: Collection[int], tried: Collection[KindGroup]
    ) -> list[WaitingKind]:
        """Return the kinds that may find a seat.

        changed: partitions that have changed; the oldest GROUPS_AT_ONCE of the blocked groups that
            may fit there are opened.
        tried: groups that are left out.
        """
        self._reopen(changed, tried)
        return [
            waiting
            for group in self._open
            if group not in tried
            for waiting in group.waiting.values()
            if waiting.shard not in self.away
        ]

    def begin_plan(self) -> None:
        """Let the tree know what all nodes have, and what is used."""
        assert self.tree is not None, "without tenants the age decides"
        self.tree.set_totals(self._view.totals())
        self.tree.set_used(self._view.used())

    def open_groups(self, changed: Collection[int], tried: Collection[KindGroup]) -> bool:
        """Open groups as `open_kinds` does, in the tree; return whether a kind may be picked."""
        assert self.tree is not None, "without tenants the age decides"
        self._reopen(changed, tried)
        return self.tree.pick() is not None

    def end_plan(self, seated: Collection[WaitingKind], left_out: Collection[KindGroup]) -> None:
        """Put the tree in the state before a plan: its reserved tasks may not come.

        seated: kinds that have got seats. left_out: groups that were closed for the plan.
        """
        assert self.tree is not None, "without tenants the age decides"
        for waiting in seated:
            if not waiting.full:
                self.tree.set(waiting, waiting.first)
        for group in {*left_out, *(waiting.group for waiting in seated)}:
            if group in self._open:
                self.tree.open(group)

    def block(self, group: KindGroup) -> None:
        """Mark a group that found no seat.

        The group is tried again when a partition has changed in which it may fit.
        """
        group.blocked = True
        self._open.pop(group, None)
        self.blocked.add(group)
        if self.tree is not None:
            self.tree.close(group)

    def _reopen(self, changed: Collection[int], tried: Collection[KindGroup]) -> None:
        """Open the oldest blocked groups that may fit into a changed partition, or that are new."""
        for waiting in self.full.leave() if self.full.any_roomier else ():
            self._join(waiting)
        partitions = self._view.partitions
        candidates = self.blocked.fitting([partitions[p] for p in changed])
        if len(self._fresh) <= GROUPS_AT_ONCE:
            candidates += self._fresh
        else:
            likely = max(partitions, key=lambda partition: partition.free_count)
            likely_groups = dict.fromkeys(self.blocked.fitting([likely], list(self._fresh)))
            other_groups = [group for group in self._fresh if group not in likely_groups]
            self._fresh = likely_groups | dict.fromkeys(
                self.blocked.fitting(partitions, other_groups)
            )
            candidates += self._fresh
        candidates = [group for group in dict.fromkeys(candidates) if group not in tried]
        if len(candidates) > GROUPS_AT_ONCE:
            candidates = heapq.nsmallest(GROUPS_AT_ONCE, candidates, key=lambda group: group.first)
        for group in candidates:
            group.blocked = False
            self.blocked.discard(group)
            self._fresh.pop(group, None)
            self._open[group] = None
            if self.tree is not None:
                self.tree.open(group)

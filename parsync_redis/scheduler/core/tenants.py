"""The tree of tenants: whose task is placed next. Pure.

Each tenant chooses one of its children: the one that holds less than its `at_least`, then the one
with the least share for its weight, then the one whose task is first in the order. If the policy
says `strict`, the place in the policy's document decides. A tenant's share is the largest part of
any amount of the open nodes that its tasks hold (the dominant share of DRF). If the policy gives
the tenant a half-life, its used share is added: the mean of the shares that it held lately
(model/used_share.py). If the policy counts work, a share is multiplied by how much work a slot of
the tenant does. The priority of a task counts within its tenant only.

The tasks that a tenant has besides those of its children count to a child `-` of the tenant. So a
task without a tenant counts to the child `-` of the root.

The tree has a branch for each tenant and each group of kinds (kind_group.py) with tasks of the
tenant. The branches of a tenant have rankings that are kept between plans: a plan opens groups and
picks tasks, and does not look at the kinds of all tenants. The key of a branch may be outdated if
it has grown since; it is renewed when it comes up.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ...model.account import NO_TENANT, TENANT_MARK
from ...model.policy import (
    ABOVE_GUARANTEE,
    STRICT,
    Policy,
    TenantEntry,
    Turn,
    parent_of,
    turn_of,
)
from .accounts import AccountAmounts, AccountsCopy, amounts_of
from .kind_group import KindGroup, WaitingKind
from .ranking import Ranking

ROOT: Final = ""
"""The name of the tenant above all."""


class Tenant:
    """A tenant of which tasks wait.

    name: `research/anna`; `research/-` for the tasks that research has besides its children's.
    turn: as far as its account is known.
    branches: by group, of the groups in which its tasks wait.
    """

    __slots__ = ("account", "branches", "entry", "is_own", "name", "parent", "strict", "turn")

    def __init__(self, name: str, parent: "Tenant | None", policy: Policy) -> None:
        self.name = name
        self.parent = parent
        self.is_own = parent is not None and parent.name != ROOT and name.endswith(f"/{NO_TENANT}")
        self.account = TENANT_MARK + name
        self.entry = TenantEntry()
        self.strict = False
        self.turn: Turn = (ABOVE_GUARANTEE, 0.0)
        self.branches: dict[KindGroup, Branch] = {}
        self.set_policy(policy)

    def set_policy(self, policy: Policy) -> None:
        """Take in the entries of the tenant and of its parent."""
        self.entry = policy.tenant(self.name)
        self.strict = self.parent is not None and self.parent.entry.children == STRICT


class Branch:
    """The tasks of a tenant that wait in one group.

    ranking: its children by their turns, or its kinds by the orders of their first tasks.
    """

    __slots__ = ("children", "group", "parent", "ranking", "tenant")

    def __init__(self, tenant: Tenant, group: KindGroup, parent: "Branch | None") -> None:
        self.tenant = tenant
        self.group = group
        self.parent = parent
        self.children: dict[Tenant, Branch] = {}
        self.ranking: Ranking[Any] = Ranking()

    @property
    def key(self) -> tuple[float, ...]:
        """The turn of the tenant, and the order of the task that it would start first."""
        return (*self.tenant.turn, self.first)

    @property
    def first(self) -> float:
        """The order of the task that the tenant would start first."""
        top = self.top()
        return 0.0 if top is None else float(top[0][-1])

    def top(self) -> tuple[tuple[float, ...], Any] | None:
        """Return the least key and its child, or kind; None if the branch is empty."""
        while (top := self.ranking.top()) is not None and self.children:
            key, child = top
            if (now := child.key) == key:
                return top
            self.ranking.set(child, now)
        return top


class Tree:
    """The tenants of which tasks wait, and the groups whose tasks may be placed now.

    A tree knows what all open nodes have, and what their tasks hold that counts to no tenant.
    used_shares: by tenant, a part of the nodes.
    work: by tenant, how much work its slots do beside a mean slot; 1 if missing.
    """

    def __init__(
        self,
        accounts: AccountsCopy,
        policy: Policy,
        used_shares: Mapping[str, float] = {},
        work: Mapping[str, float] = {},
    ) -> None:
        self._accounts = accounts
        self.policy = policy
        self._used_shares = used_shares
        self._work = work
        self._root = Tenant(ROOT, None, policy)
        self._tenants: dict[str, Tenant] = {ROOT: self._root}
        self._open: Ranking[Branch] = Ranking()
        self._totals: AccountAmounts = {}
        self._unnamed: dict[str, int] = {}

    # -- what waits --------------------------------------------------------------------------------

    def set(self, waiting: WaitingKind, order: float) -> None:
        """Add a kind, or change the order of its first task."""
        branch = self._leaf(waiting)
        branch.ranking.set(waiting, (order,))
        self._lift(branch)

    def discard(self, waiting: WaitingKind) -> None:
        """Remove a kind, if it is here."""
        tenant = self._tenants.get(_own(waiting.kind.tenant))
        branch = tenant and tenant.branches.get(waiting.group)
        if not branch:
            return
        branch.ranking.discard(waiting)
        while not len(branch.ranking):
            del branch.tenant.branches[branch.group]
            parent = branch.parent
            if parent is None:
                self._open.discard(branch)
                return
            if not branch.tenant.branches:
                del self._tenants[branch.tenant.name]
            del parent.children[branch.tenant]
            parent.ranking.discard(branch)
            branch = parent

    def _leaf(self, waiting: WaitingKind) -> Branch:
        """Return the branch that has a kind; make it, and those above it, if they are missing."""
        group = waiting.group
        name = _own(waiting.kind.tenant)
        tenant = self._tenants.get(name)
        if tenant is not None and group in tenant.branches:
            return tenant.branches[group]
        tenant = self._root
        branch = self._root.branches.get(group)
        if branch is None:
            branch = self._root.branches[group] = Branch(self._root, group, None)
        words = name.split("/")
        for depth in range(len(words)):
            tenant = self._tenant("/".join(words[: depth + 1]), tenant)
            child = tenant.branches.get(group)
            if child is None:
                child = tenant.branches[group] = Branch(tenant, group, branch)
                branch.children[tenant] = child
            branch = child
        return branch

    def _tenant(self, name: str, parent: Tenant) -> Tenant:
        """Return a tenant; make it if it is missing."""
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant(name, parent, self.policy)
            tenant.turn = self._turn_of(tenant)
        return tenant

    def _lift(self, branch: Branch) -> None:
        """Renew the keys of a branch and of those above it."""
        while (parent := branch.parent) is not None:
            if not parent.ranking.set(branch, branch.key):
                return
            branch = parent
        if branch in self._open:
            self._open.set(branch, _key_of(branch))

    # -- turns -------------------------------------------------------------------------------------

    def set_policy(self, policy: Policy) -> None:
        """Take in what the policy says of the tenants."""
        self.policy = policy
        for tenant in self._tenants.values():  # a parent is before its children
            tenant.set_policy(policy)
        self._renew_all()

    def set_totals(self, totals: AccountAmounts) -> None:
        """Take in what all open nodes have."""
        if totals != self._totals:
            self._totals = totals
            self._renew_all()

    def set_used_shares(
        self, used_shares: Mapping[str, float], work: Mapping[str, float] = {}
    ) -> None:
        """Take in the used share of each tenant, and how much work its slots do."""
        if used_shares != self._used_shares or work != self._work:
            self._used_shares = used_shares
            self._work = work
            self._renew_all()

    def set_used(self, used: AccountAmounts) -> None:
        """Take in what tasks hold on all open nodes now."""
        self._unnamed = _minus(used, self._accounts.held_below(TENANT_MARK))
        self._renew(self._tenants.get(NO_TENANT))

    def on_held(self, account: str) -> None:
        """Note that what a tenant holds has changed."""
        name = account.removeprefix(TENANT_MARK)
        self._renew(self._tenants.get(name))
        self._renew(self._tenants.get(f"{name}/{NO_TENANT}"))

    def on_reserved(self, waiting: WaitingKind, tasks: int) -> None:
        """Note that tasks of a kind have got seats; what its accounts hold has changed."""
        if not waiting.kind.tenant:
            for name, amount in amounts_of(waiting.group.needs).items():
                self._unnamed[name] = self._unnamed.get(name, 0) + amount * tasks
        tenant = self._tenants.get(_own(waiting.kind.tenant))
        while tenant is not None and tenant is not self._root:
            self._renew(tenant)
            tenant = tenant.parent

    def _renew_all(self) -> None:
        for tenant in self._tenants.values():
            self._renew(tenant)

    def _renew(self, tenant: Tenant | None) -> None:
        """Compute the turn of a tenant. A branch with a later turn is moved when it comes up."""
        if tenant is None or tenant is self._root:
            return
        before = tenant.turn
        tenant.turn = self._turn_of(tenant)
        if tenant.turn < before:
            for branch in tenant.branches.values():
                self._lift(branch)

    def _turn_of(self, tenant: Tenant) -> Turn:
        """Return the turn of a tenant."""
        amounts = self._held(tenant)
        share = self.share(amounts) * self._work.get(tenant.name, 1.0)
        used_share = self._used_shares.get(tenant.name, 0.0)
        return turn_of(tenant.entry, tenant.strict, amounts, share, used_share)

    def share(self, amounts: AccountAmounts) -> float:
        """Return the largest part of any amount of the open nodes: the dominant share."""
        totals = self._totals
        share = 0.0
        for name, amount in amounts.items():
            total = totals.get(name)
            if total and amount > share * total:
                share = amount / total
        return share

    def _held(self, tenant: Tenant) -> AccountAmounts:
        """Return what a tenant holds: by its account, or what is left besides other accounts."""
        accounts = self._accounts
        if tenant.is_own:
            above = parent_of(tenant.account)
            return _minus(accounts.held(above), accounts.held_below(above))
        return self._unnamed if tenant.name == NO_TENANT else accounts.held(tenant.account)

    # -- picks -------------------------------------------------------------------------------------

    def open(self, group: KindGroup) -> None:
        """Let tasks of a group be picked."""
        branch = self._root.branches.get(group)
        if branch is not None:
            self._open.set(branch, _key_of(branch))

    def close(self, group: KindGroup) -> None:
        """Let no task of a group be picked."""
        branch = self._root.branches.get(group)
        if branch is not None:
            self._open.discard(branch)

    @contextmanager
    def only_open(self, groups: Iterable[KindGroup]) -> Iterator[None]:
        """Let tasks of these blocked groups be picked, and no others, until the context ends."""
        before = self._open
        self._open = Ranking()
        for group in groups:
            self.open(group)
        try:
            yield
        finally:
            self._open = before

    def pick(self) -> WaitingKind | None:
        """Return the kind whose first task is next; None if no group is open."""
        branch = self._least_open()
        if branch is None:
            return None
        while True:
            top = branch.top()
            assert top is not None, "an empty branch is removed"
            if not branch.children:
                waiting: WaitingKind = top[1]
                return waiting
            tenant = top[1].tenant
            branches = tenant.branches.values()
            if len(branches) == 1:
                branch = top[1]
                continue
            opened = self._open
            branch = min(
                (b for b in branches if self._root.branches[b.group] in opened), key=_key_of
            )

    def waiting_tenants(self) -> Collection[Tenant]:
        """Return the tenants of which tasks wait, with those above them, the root first."""
        return self._tenants.values()

    def tenants_of(self, waiting: WaitingKind) -> list[Tenant]:
        """Return the tenants that a kind of the tree counts to, from below the root down."""
        tenants: list[Tenant] = []
        branch: Branch | None = self._leaf(waiting)
        while branch is not None and branch.parent is not None:
            tenants.append(branch.tenant)
            branch = branch.parent
        return tenants[::-1]

    def first_of(self, group: KindGroup) -> WaitingKind | None:
        """Return the kind of a group whose task is next; None if nothing of the group waits."""
        branch = self._root.branches.get(group)
        while branch is not None and (top := branch.top()) is not None:
            if not branch.children:
                waiting: WaitingKind = top[1]
                return waiting
            branch = top[1]
        return None

    def goes_before(self, tenant: str, other_tenant: str) -> bool:
        """Return whether a tenant's turn is before that of another tenant, by their names."""
        parent = self._root
        words = _own(tenant).split("/")
        other_words = _own(other_tenant).split("/")
        for depth in range(1, 1 + min(len(words), len(other_words))):
            name = "/".join(words[:depth])
            other_name = "/".join(other_words[:depth])
            if name != other_name:
                return self._turn(name, parent) < self._turn(other_name, parent)
            parent = self._tenants.get(name) or Tenant(name, parent, self.policy)
        return False

    def _turn(self, name: str, parent: Tenant) -> Turn:
        """Return the turn of a tenant, also if none of its tasks waits."""
        tenant = self._tenants.get(name)
        return tenant.turn if tenant else self._turn_of(Tenant(name, parent, self.policy))

    def is_alone(self, waiting: WaitingKind) -> bool:
        """Return whether no other kind could be picked."""
        branch: Branch | None = self._leaf(waiting)
        while branch is not None:
            if len(branch.ranking) > 1:
                return False
            branch = branch.parent
        return len(self._open) == 1

    def _least_open(self) -> Branch | None:
        """Return the root's branch whose first tenant is next; None if no group is open."""
        while (top := self._open.top()) is not None:
            key, branch = top
            if (now := _key_of(branch)) == key:
                return branch
            self._open.set(branch, now)
        return None


def _own(tenant: str) -> str:
    """Return the name of the child that has a tenant's own tasks."""
    return f"{tenant}/{NO_TENANT}" if tenant else NO_TENANT


def _key_of(branch: Branch) -> tuple[float, ...]:
    """Return the key of what a branch would give first."""
    top = branch.top()
    return () if top is None else top[0]


def _minus(amounts: AccountAmounts, without: Mapping[str, int]) -> dict[str, int]:
    """Return amounts without others; nothing is below 0."""
    return {name: max(0, amount - without.get(name, 0)) for name, amount in amounts.items()}

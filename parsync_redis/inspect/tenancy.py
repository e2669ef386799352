"""Tenants and limits as people see them: the policy, what is held, and what waits."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import AccessDenied, DamagedState, InvalidInput
from ..model.account import KEY_MARK, check_limit, check_tenant, is_limit
from ..model.account_views import (
    HolderView,
    LimitView,
    TenantView,
    limit_views,
    offered_amounts,
    tenant_views,
)
from ..model.devices import fold
from ..model.ids import check_name, close_to, shown
from ..model.policy import Policy
from ..model.used_share import SharesByTenant
from ..model.views import NodeView
from ..store.policy import read_declaring, usual_policy
from ..store.reads.accounts import read_account_holders, read_accounts, read_oldest_holders
from ..store.reads.cancel import server_ms
from ..store.reads.demand import ShardLine, read_lines
from ..store.reads.views import Directory, read_node_views
from ..store.store import Store


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The tenants and the limits of a cluster at one moment."""

    tenants: Sequence[TenantView] = ()
    limits: Sequence[LimitView] = ()


def read_tenancy(store: Store, kinds: Sequence[ShardLine], nodes: Sequence[NodeView]) -> Tenancy:
    """Read the tenants and limits. kinds, nodes: as they were read. Raises ServerUnreachable."""
    stored = usual_policy(store)
    policy = stored.in_force
    now_ms = server_ms(store)
    reading = read_accounts(store, kinds)
    present = [node for node in nodes if node.state != "down"]
    offered = offered_amounts((node.slots, fold(node.resources.items())) for node in present)
    shares = read_noted_shares(store, policy)
    tenants = tenant_views(
        policy,
        reading.lines,
        reading.waiting,
        reading.oldest_ms,
        offered,
        shares.at(now_ms, policy),
        shares.work(policy),
    )
    held_limits = [name for name, line in reading.lines.items() if is_limit(name)]
    oldest = read_oldest_holders(store, held_limits)
    uncovered = [name for name in policy.limits if name not in stored.policy.limits]
    apps = read_declaring(Directory(store)) if uncovered else {}
    declared_by = {name: sorted({app for app, _ in apps.get(name, ())}) for name in uncovered}
    limits = limit_views(policy, reading.lines, reading.waiting, oldest, now_ms, declared_by)
    return Tenancy(tenants, limits)


def read_noted_shares(store: Store, policy: Policy) -> SharesByTenant:
    """Return what the leader has noted of the shares of tenants.

    If the policy does not ask for it, nothing is read. A key that cannot be read counts as empty.
    """
    if not policy.notes_shares:
        return SharesByTenant({})
    try:
        return SharesByTenant.of(store.read("hgetall", store.keys.shared("shares")))
    except (AccessDenied, DamagedState):  # AccessDenied: a login of an earlier version
        return SharesByTenant({})


def read_limits(store: Store) -> list[LimitView]:
    """Return all limits, sorted by name."""
    return [*read_tenancy(store, [*read_lines(store)], ()).limits]


def read_tenants(store: Store) -> list[TenantView]:
    """Return all tenants, sorted by name."""
    return [*read_tenancy(store, [*read_lines(store)], read_node_views(store)).tenants]


def read_holders_of(store: Store, account: str) -> list[HolderView]:
    """Return the tasks that count to a limit, a tenant ('@acme') or a key ('~llama').

    The oldest come first.

    Raises InvalidInput for a limit that nobody knows.
    """
    if account.startswith("@"):
        check_tenant(account.removeprefix("@"))
        return read_account_holders(store, account)
    if account.startswith(KEY_MARK):
        check_name("key", account.removeprefix(KEY_MARK))
        return read_account_holders(store, account)
    check_limit(account)
    holders = read_account_holders(store, account)
    if not holders and usual_policy(store).in_force.limit(account) is None:
        names = [limit.name for limit in read_limits(store)]
        if account not in names:
            close = close_to(account, names)
            hint = f"; did you mean {close}?" if close else ""
            raise InvalidInput(
                f"no limit {shown(account)} is in the policy or declared by a worker{hint}"
            )
    return holders

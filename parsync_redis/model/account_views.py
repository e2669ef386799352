"""Views of tenants, limits and their holders for people, and the share of a tenant. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .account import NO_TENANT, TENANT_MARK, is_limit, pattern_of
from .account_line import AccountLine, Ceiling
from .amount import THOUSANDTHS, amount_number
from .policy import STRICT, DueShares, Policy, Turn, parent_of, parents_of, turn_of
from .policy_document import rate_text
from .used_share import dominant_share


@dataclass(frozen=True, slots=True)
class HolderView:
    """A task that counts to an account.

    since_ms: since when it counts (server time).
    node: where it is placed; '' if a scheduler has taken it and no claim has won yet.
    """

    id: str
    since_ms: int
    node: str


@dataclass(frozen=True, slots=True)
class LimitView:
    """A limit.

    allowed: how many units tasks may hold at once; None for any number, or if the policy does not
        have the limit.
    units: how many units tasks hold.
    holders: the number of these tasks.
    waiting: the number of waiting tasks under it.
    rate: how many units may start, '100/m'; '' for any number. burst: how many of them at once.
    used: how many of the burst are used up now.
    in_policy: whether the policy has the limit, or a pattern for it. Without that no task starts.
    damaged: whether what it holds is not known; it has room for nothing then.
    oldest: the task that counts longest, None without holders.
    declared_by: the names of the apps that declare the limit, [] if no worker declares it any more;
        None for a limit of the policy's document.
    """

    name: str
    allowed: int | None
    units: int
    holders: int
    waiting: int
    rate: str = ""
    burst: int = 0
    used: int = 0
    in_policy: bool = True
    damaged: bool = False
    oldest: HolderView | None = None
    declared_by: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant.

    share: the largest part of any amount of the nodes that its tasks hold; None if unknown.
    used_share: the mean of the shares that it held lately (model/used_share.py); None if the policy
        gives it no half-life.
    due: its part by weight, beside the others of its parent that hold something or wait.
    amounts: what its tasks hold, by name, `slots` too.
    holders: the number of these tasks; None for tasks without a tenant, which no account counts.
    waiting: the number of its waiting tasks.
    oldest_ms: since when (server time) its oldest waiting task can be taken, None without one.
    at_least, at_most: as the policy says, amounts by name.
    order: the order of its own tasks. children: how the tenants below it go, "fair" or "strict".
    damaged: whether what it holds is not known.
    """

    name: str
    weight: float
    share: float | None
    due: float
    amounts: Mapping[str, int | float]
    holders: int | None
    waiting: int
    oldest_ms: int | None
    at_least: Mapping[str, int | float]
    at_most: Mapping[str, int | float]
    order: str
    children: str
    damaged: bool = False
    used_share: float | None = None


def limit_views(
    policy: Policy,
    lines: Mapping[str, AccountLine],
    waiting: Mapping[str, int],
    oldest: Mapping[str, HolderView],
    now_ms: int,
    declared_by: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[LimitView]:
    """Return the limits that the policy names, tasks hold or tasks wait under, sorted by name.

    lines: by account. waiting: the number of waiting tasks by account. oldest: by account.
    declared_by: the apps by declared limit or pattern that no entry of the document covers.
    """
    named = {name for name in policy.limits if not name.endswith("*")}
    names = {name for name in (*lines, *waiting) if is_limit(name)} | named
    views = []
    for name in sorted(names):
        line = lines.get(name, AccountLine())
        entry = policy.limit(name)
        ceiling = Ceiling.of(entry.ceiling if entry else "")
        views.append(
            LimitView(
                name,
                entry.at_once if entry else None,
                line.units,
                line.count,
                waiting.get(name, 0),
                rate_text(entry.rate) if entry and entry.rate else "",
                ceiling.burst,
                ceiling.used(line, now_ms),
                entry is not None,
                line.is_damaged,
                oldest.get(name),
                declared_by.get(name if name in policy.limits else pattern_of(name)),
            )
        )
    return views


def tenant_views(
    policy: Policy,
    lines: Mapping[str, AccountLine],
    waiting: Mapping[str, int],
    oldest_ms: Mapping[str, int],
    offered: Mapping[str, int],
    used: Mapping[str, float] = {},
    work: Mapping[str, float] = {},
) -> list[TenantView]:
    """Return the tenants that the policy names, tasks hold for or tasks wait for, sorted by name.

    lines, waiting: by account; tasks without a tenant wait under `@-`. oldest_ms: since when the
    oldest task of each account can be taken. offered: what the open nodes have, in thousandths.
    used: the used shares by name. work: how much work a slot of a tenant does; 1 if missing.
    Without a tenant of any name there are none.
    """
    named = {TENANT_MARK + name for name in policy.tenants if not name.endswith("*")}
    accounts = {name for name in (*lines, *waiting) if name.startswith(TENANT_MARK)} | named
    no_tenant = TENANT_MARK + NO_TENANT
    if accounts <= {no_tenant} and not policy.tenants:
        return []
    names = {account.removeprefix(TENANT_MARK) for account in accounts}
    names |= {parent for name in names for parent in parents_of(name)}
    active = {
        name
        for name in names
        if waiting.get(TENANT_MARK + name) or lines.get(TENANT_MARK + name, AccountLine()).count
    }
    due_shares = DueShares(policy, active)
    views = []
    for name in sorted(names):
        account = TENANT_MARK + name
        line = lines.get(account, AccountLine())
        entry = policy.tenant(name)
        is_counted = name != NO_TENANT and not line.is_damaged
        share = min(1.0, dominant_share(line.amounts, offered) * work.get(name, 1.0))
        views.append(
            TenantView(
                name,
                entry.weight,
                share if is_counted and offered else None,
                due_shares.of(name),
                _numbers(line.amounts.items()),
                line.count if is_counted else None,
                waiting.get(account, 0),
                oldest_ms.get(account),
                _numbers(entry.at_least),
                _numbers(entry.at_most),
                entry.order,
                entry.children,
                line.is_damaged,
                used.get(name, 0.0) if entry.half_life_s else None,
            )
        )
    return views


def goes_first_by_use(
    policy: Policy,
    tenant: str,
    waiting: Iterable[str],
    lines: Mapping[str, AccountLine],
    shares: Mapping[str, float],
    used: Mapping[str, float],
) -> str:
    """Return which tenant goes first although it holds no less, because it has used less.

    The answer is a sentence, '' for no such tenant. tenant: that of a waiting task. waiting: the
    tenants of the waiting tasks. shares, used: by tenant, a part of the nodes.
    """
    rivals = {rival for name in waiting for rival in _path(name)}
    for child in _path(tenant):
        parent = parent_of(child)
        if policy.tenant(parent).children == STRICT:
            continue
        turn = _turn(policy, child, lines, shares, used)
        weighted_share = shares.get(child, 0.0) / policy.tenant(child).weight
        ahead = [
            (_turn(policy, rival, lines, shares, used), rival)
            for rival in rivals
            if parent_of(rival) == parent
            and rival != child
            and shares.get(rival, 0.0) / policy.tenant(rival).weight >= weighted_share
        ]
        first_turn, first = min(ahead, default=(turn, child))
        if first_turn < turn and first_turn[0] == turn[0]:
            return (
                f"{_tenant_shown(child)} holds {_part(policy, child, shares)} of the nodes and has "
                f"used {used.get(child, 0.0):.0%}; {_tenant_shown(first)} goes first: it holds "
                f"{_part(policy, first, shares)} and has used {used.get(first, 0.0):.0%}"
            )
    return ""


def _path(tenant: str) -> list[str]:
    """Return the children that are chosen, from the root down, for a task of a tenant."""
    return [*parents_of(tenant), tenant, f"{tenant}/{NO_TENANT}"] if tenant else [NO_TENANT]


def _turn(
    policy: Policy,
    tenant: str,
    lines: Mapping[str, AccountLine],
    shares: Mapping[str, float],
    used: Mapping[str, float],
) -> Turn:
    """Return the turn of a tenant whose siblings are not strict."""
    amounts = lines.get(TENANT_MARK + tenant, AccountLine()).amounts
    share = shares.get(tenant, 0.0)
    return turn_of(policy.tenant(tenant), False, amounts, share, used.get(tenant, 0.0))


def _tenant_shown(tenant: str) -> str:
    if tenant == NO_TENANT:
        return "a task without a tenant"
    parent = tenant.removesuffix(f"/{NO_TENANT}")
    return f"tenant {tenant}" if parent == tenant else f"a task of {parent} itself"


def _part(policy: Policy, tenant: str, shares: Mapping[str, float]) -> str:
    weight = policy.tenant(tenant).weight
    return f"{shares.get(tenant, 0.0):.0%}" + ("" if weight == 1 else f" (weight {weight:g})")


def _numbers(amounts: Iterable[tuple[str, int]]) -> dict[str, int | float]:
    return {name: amount_number(amount) for name, amount in amounts}


def offered_amounts(nodes: Iterable[tuple[int, Mapping[str, float]]]) -> dict[str, int]:
    """Return what nodes have together, in thousandths. nodes: (slots, amounts by name) of each."""
    sums: dict[str, int] = {}
    for slots, amounts in nodes:
        sums["slots"] = sums.get("slots", 0) + slots * THOUSANDTHS
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + round(amount * THOUSANDTHS)
    return sums

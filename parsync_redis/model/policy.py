"""The policy of a cluster: the tenants with their shares, and the limits. Pure.

An operator writes the policy as a TOML document (model/policy_reader.py). An entry counts for one
tenant or limit, or as a pattern for each one without an entry of its own: `*` for tenants,
`research/*` for the tenants below `research`, `customer:*` for limits (`pattern_of`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .account import NO_TENANT, TENANT_MARK, pattern_of
from .amount import MAX_AMOUNT, amount_text, shown_amount

AGE: Final = "age"
"""The order of the tasks of a tenant whose entry says none: the first submitted is the first."""
BUILT_IN_ORDERS: Final = (AGE, "shortest", "least")
"""The orders that a tenant may name without a distribution that adds orders."""
DECLARED_MARK: Final = " declared=1"
"""The end of a ceiling in a shard if an app declares the limit."""
UNBOUNDED: Final = f"slots={MAX_AMOUNT}"
"""The ceiling of an account that is never full."""
SLOTS_HELD: Final = "held"
"""Shares count what tasks hold (the default)."""
WORK: Final = "work"
"""Shares count the work that slots do: a slot on a slow node counts less."""
FAIR: Final = "fair"
STRICT: Final = "strict"

PolicyAmounts = tuple[tuple[str, int], ...]
"""Pairs of a name, `slots` or a resource, and an amount in thousandths; `slots` is first."""


@dataclass(frozen=True, slots=True)
class TenantEntry:
    """What the policy says of a tenant.

    weight: its part beside the other children of its parent, in relation to their weights.
    at_least: its tasks go first while they hold less of one of these amounts.
    at_most: the tasks never hold more.
    children: "fair" or "strict": how the tenants below it go.
    order: the name of the order of its own tasks.
    half_life_s: seconds after which past use counts half (model/used_share.py); 0: only what is
        held now counts.
    rank: the place of the entry in the document, for a parent whose children are "strict": the
        least goes first.
    """

    weight: float = 1.0
    at_least: PolicyAmounts = ()
    at_most: PolicyAmounts = ()
    children: str = FAIR
    order: str = AGE
    half_life_s: float = 0.0
    rank: int = 0

    @property
    def ceiling(self) -> str:
        """Return the ceiling of the tenant's account, 'slots=200 gpu=4'; '' for none."""
        return amounts_line(self.at_most)


class StartRate(NamedTuple):
    """How many units of a limit may start in a time: `number` in `period_ms`."""

    number: int
    period_ms: int


@dataclass(frozen=True, slots=True)
class LimitEntry:
    """What the policy says of a limit: `at_once`, `rate` or both.

    at_once: how many units tasks hold at once, at most; 0 pauses the limit. None: any number.
    burst: how many units may start at the same moment, when none started for long; 0 without rate.
    """

    at_once: int | None = None
    rate: StartRate | None = None
    burst: int = 0

    @property
    def ceiling(self) -> str:
        """Return the ceiling of the limit's account, 'units=5 rate=100/60000 burst=10'."""
        words = [] if self.at_once is None else [f"units={self.at_once}"]
        if self.rate is not None:
            words.append(f"rate={self.rate.number}/{self.rate.period_ms} burst={self.burst}")
        return " ".join(words)


def least_entry(entries: Iterable[LimitEntry]) -> LimitEntry:
    """Return what all of these entries of a limit allow: the least of each value."""
    least = LimitEntry()
    for entry in entries:
        numbers = [at_once for at_once in (least.at_once, entry.at_once) if at_once is not None]
        rated = [candidate for candidate in (least, entry) if candidate.rate is not None]
        slowest = min(rated, key=_start_pace, default=LimitEntry())
        least = LimitEntry(min(numbers, default=None), slowest.rate, slowest.burst)
    return least


def _start_pace(entry: LimitEntry) -> tuple[float, int]:
    """Return the units a millisecond that may start, and the burst."""
    return (entry.rate.number / entry.rate.period_ms if entry.rate else 0.0), entry.burst


def _no_entries() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Policy:
    """The tenants and the limits of a cluster.

    children: "fair" or "strict": how the tenants without a parent go.
    count: "held" or "work": what the shares of all tenants count.
    tenants, limits: the entries by name or pattern, in the order of the document.
    """

    children: str = FAIR
    tenants: Mapping[str, TenantEntry] = field(default_factory=_no_entries)
    limits: Mapping[str, LimitEntry] = field(default_factory=_no_entries)
    count: str = SLOTS_HELD

    @property
    def by_work(self) -> bool:
        """Whether shares count the work that slots do."""
        return self.count == WORK

    @property
    def notes_shares(self) -> bool:
        """Whether the leader notes shares: past use counts, or the work that slots do."""
        return self.by_work or self.longest_half_life_s > 0

    def tenant(self, name: str) -> TenantEntry:
        """Return what counts for a tenant: its entry, else that of its pattern, else the defaults.

        name: `research/anna`; '' is the root, `-` the tenant of tasks without one, which has no
        amounts. `research/-` are the own tasks of `research` beside its children: only the
        half-life of the children's pattern counts for them. A tenant without an entry and without a
        pattern has a rank behind all entries.
        """
        if not name:
            return TenantEntry(children=self.children)
        entry = self.tenants.get(name) or self.tenants.get(_pattern_name(name))
        if name.endswith(f"/{NO_TENANT}"):
            return TenantEntry(half_life_s=entry.half_life_s if entry else 0.0)
        if entry is None:
            return TenantEntry(rank=len(self.tenants))
        return replace(entry, at_least=(), at_most=()) if name == NO_TENANT else entry

    @property
    def longest_half_life_s(self) -> float:
        """Return the longest half-life of a tenant; 0 if past use counts for none."""
        return max((entry.half_life_s for entry in self.tenants.values()), default=0.0)

    def limit(self, name: str) -> LimitEntry | None:
        """Return what counts for a limit: its entry, else that of its pattern, else None."""
        entry = self.limits.get(name)
        return self.limits.get(pattern_of(name)) if entry is None else entry

    def with_declared(self, declared: Mapping[str, LimitEntry]) -> "Policy":
        """Return the policy with limits that apps declare, as far as no entry of it covers them."""
        uncovered = {name: entry for name, entry in declared.items() if self.limit(name) is None}
        return replace(self, limits=MappingProxyType({**self.limits, **uncovered}))

    def ceiling(self, account: str) -> str | None:
        """Return the ceiling of an account: '' is a tenant without one, None an unknown limit."""
        if account.startswith(TENANT_MARK):
            return self.tenant(account.removeprefix(TENANT_MARK)).ceiling
        entry = self.limit(account)
        return None if entry is None else entry.ceiling

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of `set_policy`: (account or pattern, ceiling), sorted.

        A tenant without `at_most` has a row too, UNBOUNDED, if a pattern would else count for it.
        """
        rows = [(name, entry.ceiling) for name, entry in self.limits.items()]
        for name, entry in self.tenants.items():
            account = TENANT_MARK + name
            if entry.at_most:
                rows.append((account, entry.ceiling))
            elif name != NO_TENANT and self.tenants.get(_pattern_name(name), entry).at_most:
                rows.append((account, UNBOUNDED))
        return sorted(rows)


class DueShares:
    """The part of the cluster that each tenant is due, by the weights of the active tenants.

    active: the tenants that hold something or wait. A tenant that does neither counts among them
    when it is asked for, because it asks for its part. If the children of a tenant are "strict",
    the first of them is due everything.
    """

    def __init__(self, policy: Policy, active: Iterable[str]) -> None:
        self._policy = policy
        # by tenant, '' for the root, its active children with their weights
        self._weights: dict[str, dict[str, float]] = {}
        # by parent, the weight of its children without an entry: one pattern counts for them all
        unnamed: dict[str, float] = {}
        own_weight = TenantEntry().weight
        for name in active:
            parent, _, word = name.rpartition("/")
            if parent and word == NO_TENANT:
                weight = own_weight
            elif name in policy.tenants or word == NO_TENANT:
                weight = policy.tenant(name).weight
            elif parent in unnamed:
                weight = unnamed[parent]
            else:
                weight = unnamed[parent] = policy.tenant(name).weight
            self._weights.setdefault(parent, {})[name] = weight
        self._sums = {parent: sum(weights.values()) for parent, weights in self._weights.items()}

    def of(self, tenant: str) -> float:
        """Return the part that a tenant is due, of 1."""
        return prod(self._part(name) for name in (*parents_of(tenant), tenant))

    def _part(self, name: str) -> float:
        """Return the part of what its parent is due."""
        parent = parent_of(name)
        weights = self._weights.get(parent, {})
        if self._policy.tenant(parent).children == STRICT:
            ranks = {child: self._policy.tenant(child).rank for child in (*weights, name)}
            return float(name == min(ranks, key=lambda child: (ranks[child], child)))
        weight = self._policy.tenant(name).weight
        return weight / (self._sums.get(parent, 0.0) + (0.0 if name in weights else weight))


def parent_of(tenant: str) -> str:
    """Return the tenant above a tenant, by names or by accounts; '' is the root."""
    return tenant.rpartition("/")[0]


def parents_of(tenant: str) -> list[str]:
    """Return the tenants above a tenant, from the root down: `a`, `a/b` of `a/b/c`."""
    words = tenant.split("/")
    return ["/".join(words[:depth]) for depth in range(1, len(words))]


Turn = tuple[float, float]
"""The turn of a tenant among its siblings, the least first.

Its class, and its share for its weight, with the used share.
"""

BELOW_GUARANTEE: Final = 0.0
"""The class of a tenant that holds less than its `at_least`."""
ABOVE_GUARANTEE: Final = 1.0
"""The class of every other tenant."""


def turn_of(
    entry: TenantEntry,
    is_strict: bool,
    amounts: Mapping[str, int],
    share: float,
    used_share: float,
) -> Turn:
    """Return the turn of a tenant. Without a half-life its used share does not count.

    is_strict: whether the children of its parent go by their places in the document. amounts: what
    the tenant holds, in thousandths. share, used_share: parts of the nodes.
    """
    if entry.half_life_s:
        share += used_share
    share /= entry.weight
    if is_strict:
        return float(entry.rank), share
    is_below = any(amounts.get(name, 0) < amount for name, amount in entry.at_least)
    return BELOW_GUARANTEE if is_below else ABOVE_GUARANTEE, share


def _pattern_name(tenant: str) -> str:
    return pattern_of(TENANT_MARK + tenant).removeprefix(TENANT_MARK)


def amounts_line(amounts: PolicyAmounts) -> str:
    """Return amounts as the scripts have them: 'slots=200 gpu=4'."""
    return " ".join(f"{name}={amount_text(amount)}" for name, amount in amounts)


def find_doubts(policy: Policy, offered: Iterable[tuple[str, int]] | None = None) -> list[str]:
    """Return what is allowed in a policy and may be a mistake, as sentences.

    offered: what all nodes have together, in thousandths, `slots` too; None if there are no nodes.
    """
    doubts = [
        f"tenants.{name}.order is {entry.order}: each process that submits needs a distribution "
        f"that adds it, because built in are {', '.join(BUILT_IN_ORDERS)}"
        for name, entry in policy.tenants.items()
        if entry.order not in BUILT_IN_ORDERS
    ]
    if offered is None:
        return doubts
    amounts_offered = dict(offered)
    sums: dict[str, int] = {}
    for name, entry in policy.tenants.items():
        if "/" in name or name == "*":
            continue
        for resource, amount in entry.at_least:
            sums[resource] = sums.get(resource, 0) + amount
    for resource, amount in sums.items():
        available = amounts_offered.get(resource, 0)
        if amount > available:
            doubts.append(
                f"at_least of tenants adds up to {resource}={shown_amount(amount)}; the nodes have "
                f"{shown_amount(available)}"
            )
    return doubts

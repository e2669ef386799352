"""The used share of a tenant: what it held lately, so that past use counts against it. Pure.

A used share is a mean of the shares that a tenant held: what it held one half-life ago counts half.
So a used share is a part of the nodes, from 0 to 1, as a share is. A tenant that has held 40 % for
many half-lives has used 40 %; one half-life after its last task it has used 20 %.
(The decayed sum of share x time in seconds is the used share x half-life in seconds / ln 2.)

The leader notes shares in each of its passes (lua/verbs/note_shares.lua):

    used=0.400000000000 share=0.250000000 work=1.000000 at=1732161994123

The work is how much work a slot of the tenant does beside a mean slot, if the policy counts work
(`work_of`); else 1.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import pow
from typing import Final, NamedTuple

from .account import NO_TENANT, TENANT_MARK, is_tenant
from .account_line import AccountLine
from .ids import readable
from .policy import Policy, parent_of, parents_of
from .text import USED_SHARE
from .times import LearntTimes

MAX_HELD_MS: Final = 60_000
"""A noted share counts for this time, in ms, at most: longer, nobody knows what the tenant held."""

KEPT_HALF_LIVES: Final = 30
"""Number of half-lives after which a used share of 1 is forgotten: it is 10^-9 then."""

MAX_WORK: Final = 1000.0
"""A slot counts as so many mean slots at most."""

LEAST_USED: Final = 1e-9
"""A used share below this is forgotten, once the tenant holds nothing."""


def half_life_ms(half_life_s: float) -> int:
    """Return a half-life in whole ms, at least 1; 0 for none."""
    return max(1, round(half_life_s * 1000)) if half_life_s > 0 else 0


def is_child(name: str) -> bool:
    """Return whether a tenant may have a child of this name: a tenant, `-` or `research/-`."""
    return name == NO_TENANT or is_tenant(name.removesuffix(f"/{NO_TENANT}"))


class UsedShare(NamedTuple):
    """The used share of a tenant, as the leader has noted it.

    used: its used share at `at_ms` (server time), a part of the nodes.
    share: what it held at that time, its dominant share times its work.
    work: how much work a slot of the tenant does beside a mean slot.
    """

    used: float
    share: float
    at_ms: int
    work: float = 1.0

    @classmethod
    def of(cls, text: str) -> "UsedShare | None":
        """Read a field of `shares`; return None for any other text."""
        fields = USED_SHARE.read(text)
        if fields is None:
            return None
        used = float(fields["used"])
        return cls(used, float(fields["share"]), int(fields["at"]), float(fields["work"]))

    @property
    def text(self) -> str:
        """Return the field of `shares`."""
        return USED_SHARE.write(
            used=f"{self.used:.12f}",
            share=f"{self.share:.9f}",
            work=f"{self.work:.6f}",
            at=self.at_ms,
        )

    def at(self, now_ms: int, half_life_s: float) -> float:
        """Return the used share at `now_ms` (server time); 0 without a half-life.

        The noted share counts as held since then, for MAX_HELD_MS at most. A time before `at_ms`
        counts as `at_ms`.
        """
        half_ms = half_life_ms(half_life_s)
        if not half_ms:
            return 0.0
        past_ms = max(0, now_ms - self.at_ms)
        idle_ms = max(0, past_ms - MAX_HELD_MS)
        faded = pow(2.0, -past_ms / half_ms)
        faded_since_held = pow(2.0, -idle_ms / half_ms)
        return self.used * faded + self.share * (faded_since_held - faded)


class SharesByTenant(NamedTuple):
    """The used shares of all tenants, as the leader has noted them.

    noted: by tenant, `-` for tasks without one, `a/-` for those of `a` besides its children's.
    unreadable: the fields that no script writes, as the server has them.
    """

    noted: Mapping[str, UsedShare]
    unreadable: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> "SharesByTenant":
        """Read the hash `shares`."""
        noted: dict[str, UsedShare] = {}
        unreadable: list[bytes] = []
        for field, text in sorted(fields.items()):
            tenant = readable(field)
            share = UsedShare.of(readable(text))
            if share is None or not is_child(tenant):
                unreadable.append(field)
            else:
                noted[tenant] = share
        return cls(noted, tuple(unreadable))

    def at(self, now_ms: int, policy: Policy) -> dict[str, float]:
        """Return the used share of each tenant at `now_ms` (server time), by its half-life."""
        used = {
            tenant: share.at(now_ms, policy.tenant(tenant).half_life_s)
            for tenant, share in self.noted.items()
        }
        return {tenant: share for tenant, share in used.items() if share >= LEAST_USED}

    def work(self, policy: Policy) -> dict[str, float]:
        """Return how much work a slot of each tenant does; {} if the policy counts no work."""
        return {name: share.work for name, share in self.noted.items()} if policy.by_work else {}


def shares_held(
    lines: Mapping[str, AccountLine], totals: Mapping[str, int], used: Mapping[str, int]
) -> dict[str, float]:
    """Return the dominant share of each tenant that holds something, by name; 1 at most.

    `-` is what tasks without a tenant hold. `a/-` is what `a` holds besides its children: all that
    `a` holds, if no child holds anything.

    lines: what the accounts hold, all shards together. totals, used: what the open nodes have, and
    what is not free there, in thousandths, `slots` too.
    """
    holdings: dict[str, Mapping[str, int]] = {}
    below: dict[str, dict[str, int]] = {}
    for account, line in lines.items():
        if account.startswith(TENANT_MARK) and line.count:
            name = account.removeprefix(TENANT_MARK)
            holdings[name] = line.amounts
            sums = below.setdefault(parent_of(name), {})
            for resource, amount in line.amounts.items():
                sums[resource] = sums.get(resource, 0) + amount
    holdings |= {
        f"{name}/{NO_TENANT}": _less(amounts, below.get(name, {}))
        for name, amounts in holdings.items()
        if name != NO_TENANT
    }
    holdings[NO_TENANT] = _less(used, below.get("", {}))
    shares = {tenant: dominant_share(amounts, totals) for tenant, amounts in holdings.items()}
    return {tenant: min(share, 1.0) for tenant, share in shares.items() if share > 0}


def shares_of_work(shares: Mapping[str, float], work: Mapping[str, float]) -> dict[str, float]:
    """Return the shares (`shares_held`) by the work that the slots do; 1 at most."""
    return {name: min(1.0, share * work.get(name, 1.0)) for name, share in shares.items()}


class HeldSlots(NamedTuple):
    """Slots that tasks of one kind hold on nodes of one class; the tenant is '' for none."""

    tenant: str
    name: str
    node_class: str
    slots: int


def work_of(
    running: Iterable[HeldSlots], slots_by_class: Mapping[str, int], learnt: LearntTimes
) -> dict[str, float]:
    """Return how much work a slot of each tenant does, beside a mean slot; about 1.

    A slot of a class counts for a task of a name as its throughput there, over the mean throughput
    of the name on all slots. It counts 1 if that is not known. The names of tenants are those of
    `shares_held`.

    slots_by_class: the slots of the open nodes.
    """
    weights: dict[str, Mapping[str, float]] = {}
    slots: dict[str, int] = {}
    work: dict[str, float] = {}
    for tenant, name, node_class, count in running:
        if name not in weights:
            weights[name] = _weights(learnt.means_of(name, slots_by_class), slots_by_class)
        weight = weights[name].get(node_class, 1.0)
        for path in (*parents_of(tenant), tenant, f"{tenant}/-") if tenant else ("-",):
            slots[path] = slots.get(path, 0) + count
            work[path] = work.get(path, 0.0) + weight * count
    return {name: total / slots[name] for name, total in work.items() if slots[name]}


def _weights(means_ms: Mapping[str, float], slots: Mapping[str, int]) -> dict[str, float]:
    """Return what a slot of each class counts by the mean run times of a name there."""
    total = sum(slots[node_class] for node_class in means_ms)
    if not total:
        return {}
    rate = sum(slots[node_class] / ms for node_class, ms in means_ms.items()) / total
    return {node_class: min(MAX_WORK, 1 / ms / rate) for node_class, ms in means_ms.items()}


def _less(amounts: Mapping[str, int], without: Mapping[str, int]) -> dict[str, int]:
    return {name: max(0, amount - without.get(name, 0)) for name, amount in amounts.items()}


def dominant_share(amounts: Mapping[str, int], totals: Mapping[str, int]) -> float:
    """Return the largest part of any amount of `totals` that `amounts` has."""
    parts = (amounts.get(name, 0) / total for name, total in totals.items() if total > 0)
    return max(parts, default=0.0)


def rows_to_note(
    shares: Mapping[str, float],
    before: SharesByTenant,
    now_ms: int,
    policy: Policy,
    work: Mapping[str, float] = {},
) -> Iterator[tuple[str | bytes, float, float, float]]:
    """Yield (tenant, share, half-life in seconds, work) of each tenant to note.

    A half-life of 0 s with the work 1 forgets the tenant.

    A tenant that holds nothing is noted once, so that nothing counts from then on, and once more
    when its used share is forgotten. A field that cannot be read is forgotten first.

    shares: what tenants hold now. before: what is noted. work: of their slots, if it counts.
    """
    yield from ((field, 0.0, 0.0, 1.0) for field in before.unreadable)
    for tenant in sorted({*shares, *before.noted}):
        half_life_s = policy.tenant(tenant).half_life_s
        share = shares.get(tenant, 0.0)
        noted = before.noted.get(tenant)
        is_faded = noted is not None and noted.at(now_ms, half_life_s) < LEAST_USED
        work_now = round(work.get(tenant, 1.0), 6) if share else 1.0
        is_new = work_now != 1.0 or (noted is not None and noted.work != 1.0)
        if (half_life_s and (share or (noted and noted.share))) or is_new:
            yield tenant, share, half_life_s, work_now
        elif is_faded:
            yield tenant, 0.0, 0.0, 1.0

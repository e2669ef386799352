"""The used share of a tenant: what it held lately, so that past use counts against it. Pure.

A used share is a mean of the shares that a tenant held: what it held one half-life ago counts half.
So a used share is a part of the nodes, from 0 to 1, as a share is. A tenant that has held 40 % for
many half-lives has used 40 %; one half-life after its last task it has used 20 %.
(The decayed sum of share x time in seconds is the used share x half-life in seconds / ln 2.)

The leader notes shares in each of its passes (lua/verbs/note_shares.lua):

    used=0.400000000000 share=0.250000000 at=1732161994123
"""

from collections.abc import Iterator, Mapping
from math import pow
from typing import Final, NamedTuple

from .account import NO_TENANT, TENANT_MARK, is_tenant
from .account_line import AccountLine
from .ids import readable
from .policy import Policy, parent_of
from .text import USED_SHARE

MAX_HELD_MS: Final = 60_000
"""A noted share counts for this time, in ms, at most: longer, nobody knows what the tenant held."""

KEPT_HALF_LIVES: Final = 30
"""Number of half-lives after which a used share of 1 is forgotten: it is 10^-9 then."""

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
    share: what it held at that time, its dominant share.
    """

    used: float
    share: float
    at_ms: int

    @classmethod
    def of(cls, text: str) -> "UsedShare | None":
        """Read a field of `shares`; return None for any other text."""
        fields = USED_SHARE.read(text)
        if fields is None:
            return None
        return cls(float(fields["used"]), float(fields["share"]), int(fields["at"]))

    @property
    def text(self) -> str:
        """Return the field of `shares`."""
        return USED_SHARE.write(used=f"{self.used:.12f}", share=f"{self.share:.9f}", at=self.at_ms)

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


def _less(amounts: Mapping[str, int], without: Mapping[str, int]) -> dict[str, int]:
    return {name: max(0, amount - without.get(name, 0)) for name, amount in amounts.items()}


def dominant_share(amounts: Mapping[str, int], totals: Mapping[str, int]) -> float:
    """Return the largest part of any amount of `totals` that `amounts` has."""
    parts = (amounts.get(name, 0) / total for name, total in totals.items() if total > 0)
    return max(parts, default=0.0)


def rows_to_note(
    shares: Mapping[str, float], before: SharesByTenant, now_ms: int, policy: Policy
) -> Iterator[tuple[str | bytes, float, float]]:
    """Yield (tenant, share, half-life in seconds) of each tenant to note; 0 s forgets the tenant.

    A tenant that holds nothing is noted once, so that nothing counts from then on, and once more
    when its used share is forgotten. A field that cannot be read is forgotten first.

    shares: what tenants hold now. before: what is noted.
    """
    yield from ((field, 0.0, 0.0) for field in before.unreadable)
    for tenant in sorted({*shares, *before.noted}):
        half_life_s = policy.tenant(tenant).half_life_s
        share = shares.get(tenant, 0.0)
        noted = before.noted.get(tenant)
        is_faded = noted is not None and noted.at(now_ms, half_life_s) < LEAST_USED
        if half_life_s and (share or (noted and noted.share)):
            yield tenant, share, half_life_s
        elif is_faded:
            yield tenant, 0.0, 0.0

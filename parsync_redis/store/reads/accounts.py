"""Read what tenants and limits hold, and who waits for them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...errors import AccessDenied
from ...model.account import KEY_MARK, NO_TENANT, TENANT_MARK, tenant_accounts
from ...model.account_line import AccountLine
from ...model.account_views import HolderView
from ...model.ids import decode_id, readable
from ...model.kind import Kind, split_kind
from ...model.needs import are_needs
from ..store import Store
from .demand import ShardLine, read_oldest

MOST_OLDEST: Final = 500
"""Maximum number of accounts of one list whose oldest holder is read."""

MOST_HOLDERS_LISTED: Final = 1000
"""Maximum number of holders of an account that are listed, the oldest first."""


@dataclass(frozen=True, slots=True)
class AccountReading:
    """What the accounts of all shards hold, and what waits for them, at one moment.

    lines: by account; an account that nobody holds may be missing.
    waiting: the number of waiting tasks by account; tasks without a tenant wait under `@-`.
    oldest_ms: since when (server time) the oldest waiting task of each tenant's account can be
        taken; empty if no task of a tenant waits.
    """

    lines: Mapping[str, AccountLine]
    waiting: Mapping[str, int]
    oldest_ms: Mapping[str, int]


class WarmKey(NamedTuple):
    """A key of the rule `warm` to which tasks count.

    tasks: the number of these tasks. needs: of the task that counts longest.
    """

    key: str
    tasks: int
    needs: str


def read_lines_of(store: Store, accounts: Collection[str]) -> dict[str, AccountLine]:
    """Return the lines of these accounts, all shards together. Raises ServerUnreachable."""
    names = [*accounts]
    if not names:
        return {}
    reads = {
        shard: [("hmget", key, names)] for shard, key in enumerate(store.keys.queues("accounts"))
    }
    pages = store.pipe_live("shard", reads).values()
    return _sum_lines(
        (name, text) for (texts,) in pages for name, text in zip(names, texts, strict=True) if text
    )


def read_account_lines(store: Store) -> dict[str, AccountLine]:
    """Return the line of each account that has one, all shards together."""
    reads = {shard: [("hgetall", key)] for shard, key in enumerate(store.keys.queues("accounts"))}
    pages = store.pipe_live("shard", reads).values()
    return _sum_lines((readable(name), text) for (lines,) in pages for name, text in lines.items())


def _sum_lines(texts: Iterable[tuple[str, bytes]]) -> dict[str, AccountLine]:
    lines: dict[str, AccountLine] = {}
    for name, text in texts:
        line = AccountLine.of(readable(text))
        lines[name] = lines[name].with_shard(line) if name in lines else line
    return lines


def read_accounts(store: Store, kinds: Sequence[ShardLine]) -> AccountReading:
    """Read what all accounts hold, and count what waits. kinds: the lines of `read_lines`."""
    waiting = Counter[str]()
    tenants: dict[str, int] = {}
    for _, text, line in kinds:
        for account in _accounts_of(text):
            waiting[account] += line.count
    has_tenants = any(_tenant_of(text) != NO_TENANT for _, text, _ in kinds)
    oldest_by_tenant = read_oldest(store, kinds, _tenant_of) if has_tenants else {}
    for tenant, oldest_ms in oldest_by_tenant.items():
        for account in (name for name, _ in tenant_accounts(tenant)):
            tenants[account] = min(oldest_ms, tenants.get(account, oldest_ms))
        if tenant == NO_TENANT:
            tenants[TENANT_MARK + NO_TENANT] = oldest_ms
    return AccountReading(read_account_lines(store), waiting, tenants)


def _tenant_of(kind: str) -> str:
    return split_kind(kind).tenant or NO_TENANT


def _accounts_of(text: str) -> list[str]:
    """Return the accounts of a kind, which may be damaged; `@-` for a kind without a tenant."""
    try:
        kind = Kind.of(text)
    except ValueError:
        return []
    none = [] if kind.tenant else [TENANT_MARK + NO_TENANT]
    return [*none, *(account for account, _ in kind.accounts)]


def read_oldest_holders(store: Store, accounts: Sequence[str]) -> dict[str, HolderView]:
    """Return the task that counts longest to each account; two round trips.

    An account without holders is missing, and every one for a login that may not read holders.
    """
    oldest = _read_oldest_ids(store, accounts)
    views = _views(store, [*oldest.values()])
    return dict(zip(oldest, views, strict=True))


def read_warm_keys(store: Store) -> list[WarmKey]:
    """Return the keys of `warm` to which tasks count, those with most tasks first.

    At most MOST_OLDEST keys; three round trips. A key is missing if its task cannot be read, and
    every key for a login that may not read holders.
    """
    counts = Counter(
        {name: line.count for name, line in read_account_lines(store).items() if line.count}
    )
    names = [name for name, _ in counts.most_common() if name.startswith(KEY_MARK)]
    oldest = _read_oldest_ids(store, names)
    records = store.records([id for id, _ in oldest.values()], extras=False) if oldest else []
    needs = {
        account: split_kind(record.line.kind).needs
        for account, record in zip(oldest, records, strict=True)
        if record.line
    }
    return [
        WarmKey(account.removeprefix(KEY_MARK), counts[account], text)
        for account, text in needs.items()
        if are_needs(text)
    ]


def read_account_holders(
    store: Store, account: str, limit: int = MOST_HOLDERS_LISTED
) -> list[HolderView]:
    """Return the tasks that count to an account, the oldest first; two round trips."""
    page = sorted(_read_holders(store, [account], limit).get(account, []))[:limit]
    return _views(store, [(id, since_ms) for since_ms, id in page])


def _read_oldest_ids(store: Store, accounts: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return (encoded id, since in ms) of the task that counts longest to each account."""
    holders = _read_holders(store, accounts[:MOST_OLDEST], 1)
    return {account: min(page)[::-1] for account, page in holders.items() if page}


def _read_holders(
    store: Store, accounts: Sequence[str], limit: int
) -> dict[str, list[tuple[int, str]]]:
    """Return (since in ms, encoded id) of the first holders of each account, by account."""
    keys: list[tuple[str, str]] = [
        (account, store.keys.prefix("holders:", shard) + account)
        for account in accounts
        for shard in range(store.keys.shards)
    ]
    commands: list[tuple[Any, ...]] = [
        ("zrange", key, 0, limit - 1, False, True) for _, key in keys
    ]
    try:
        pages = store.pipe_each(commands) if commands else []
    except AccessDenied:
        return {}
    holders: dict[str, list[tuple[int, str]]] = {}
    for (account, _), page in zip(keys, pages, strict=True):
        if not isinstance(page, Exception):
            holders.setdefault(account, []).extend((int(ms), readable(id)) for id, ms in page)
    return holders


def _views(store: Store, holders: Sequence[tuple[str, int]]) -> list[HolderView]:
    """Return the views of (encoded id, since in ms)."""
    records = store.records([id for id, _ in holders], extras=False) if holders else []
    return [
        HolderView(decode_id(id), since_ms, record.place.node if record.place else "")
        for (id, since_ms), record in zip(holders, records, strict=True)
    ]

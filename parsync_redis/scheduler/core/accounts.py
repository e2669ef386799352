"""A scheduler's copy of what accounts (model/account.py) hold, by shard, and of their room.

The scripts judge exactly. The copy saves schedulers from seats for tasks that no script would give,
and says which tenant's turn it is. What the scheduler has reserved counts as held, until the shard
has answered.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from ...model.account import ACCOUNT_WORDS, KEY_MARK, TENANT_MARK, pattern_of
from ...model.account_line import UNREAD_CEILING, AccountLine, Ceiling
from ...model.amount import THOUSANDTHS
from ...model.apart import undeclared
from ...model.kind import Kind
from ...model.needs import Resources, parse_needs
from ...model.policy import parent_of
from ...placement.account_reasons import find_block
from .warm_sets import WarmSets

UNITS: Final = "units"
"""The amount of a limit."""

AccountAmounts = Mapping[str, int]
"""{name of an amount -> thousandths}; slots and units are in thousandths too."""

NO_AMOUNTS: Final[AccountAmounts] = {}

NO_LINE: Final = (AccountLine(), "")
"""What is known of an account without a line."""


class Ask(NamedTuple):
    """What one task holds of an account."""

    account: str
    amounts: AccountAmounts


class Room(NamedTuple):
    """How many tasks of a kind its accounts have room for; inf without a ceiling.

    tasks: less than 0 if the tasks hold more than they may.
    account: the account that has the least room, '' for none.
    due_ms: when the rate of the account gives its next token (server time); inf if tasks wait for
        another reason.
    by_rate: the tokens of a rate are the bound.
    """

    tasks: float
    account: str = ""
    due_ms: float = inf
    by_rate: bool = False


UNLIMITED: Final = Room(inf)


@lru_cache(maxsize=4096)
def ceiling_of(account: str, text: str) -> Ceiling | None:
    """Return the ceiling of an account by its text.

    None for a limit that the policy has not, and for a ceiling that cannot be read: the account has
    room for nothing.
    """
    is_unknown = text == "-" and not account.startswith(TENANT_MARK)
    return None if is_unknown or text == UNREAD_CEILING else Ceiling.of(text)


@lru_cache(maxsize=4096)
def amounts_of(needs: Resources) -> AccountAmounts:
    """Return what a task of these needs holds of a tenant's account."""
    amounts = {
        name: amount
        for name, amount in needs.amounts
        if amount and not undeclared(name) and name not in ACCOUNT_WORDS
    }
    return {"slots": needs.slots * THOUSANDTHS, **amounts}


def asks_of(kind: Kind) -> tuple[Ask, ...]:
    """Return what a task of a kind holds of its accounts that may have a ceiling."""
    if not kind.tenant and not kind.limits:
        return ()
    amounts = amounts_of(parse_needs(kind.needs)) if kind.tenant else NO_AMOUNTS
    return tuple(
        Ask(name, amounts if name.startswith(TENANT_MARK) else {UNITS: units * THOUSANDTHS})
        for name, units in kind.accounts
        if not name.startswith(KEY_MARK)
    )


class AccountsCopy:
    """What accounts hold, as far as this scheduler knows. An account without a line has room."""

    def __init__(self, shards: int, warm_sets: WarmSets) -> None:
        """warm_sets: take in the lines of keys, whose accounts have no ceilings."""
        self._warm_sets = warm_sets
        # by shard and account, what its holders hold, and its ceiling
        self._lines: list[dict[str, tuple[AccountLine, str]]] = [{} for _ in range(shards)]
        self._reserved: list[dict[str, dict[str, int]]] = [{} for _ in range(shards)]
        self._now_ms = [0.0] * shards
        # by tenant's account: what it holds in all shards, and what its children hold
        self._held: dict[str, dict[str, int]] = {}
        self._held_below: dict[str, dict[str, int]] = {}

    def set(self, shard: int, account: str, text: str) -> None:
        """Take in the line of an account in a shard; '' if nothing is known."""
        if account.startswith(KEY_MARK):
            self._warm_sets.on_line(shard, account.removeprefix(KEY_MARK), text)
            return
        before, _ = self._lines[shard].pop(account, NO_LINE)
        line = AccountLine.of(text)
        if text:
            self._lines[shard][account] = line, text.partition(" of ")[2]
        if account.startswith(TENANT_MARK):
            self._add(account, before.amounts, -1)
            self._add(account, line.amounts, 1)

    def on_pattern(self, shard: int, pattern: str) -> list[str]:
        """Note that the ceiling of a pattern has changed; return the accounts that it may be of.

        Their ceilings are not known until a take tells them: an account may have an entry of its
        own, and only accounts with a line are told one by one.
        """
        accounts = [account for account in self._lines[shard] if pattern_of(account) == pattern]
        for account in accounts:
            line, _ = self._lines[shard][account]
            self._lines[shard][account] = line, ""
        return accounts

    def clear_shard(self, shard: int) -> list[str]:
        """Forget a shard; return the accounts that had a line or a reservation there."""
        accounts = [*{**self._lines[shard], **self._reserved[shard]}]
        self.settle(shard)
        self._warm_sets.clear_shard(shard)
        self._now_ms[shard] = 0.0
        for account in accounts:
            self.set(shard, account, "")
        return accounts

    def on_time(self, shard: int, now_ms: float) -> None:
        """Note the time of the server of a shard."""
        self._warm_sets.on_time(now_ms)
        self._now_ms[shard] = max(self._now_ms[shard], now_ms)

    def reserve(self, shard: int, asks: Iterable[Ask], tasks: int) -> None:
        """Let so many tasks count as held, until `settle`; less than 0 take a reservation back."""
        reserved = self._reserved[shard]
        for account, amounts in asks:
            total = {name: amount * tasks for name, amount in amounts.items()}
            _add_to(reserved.setdefault(account, {}), total, 1)
            if not any(reserved[account].values()):
                del reserved[account]
            if account.startswith(TENANT_MARK):
                self._add(account, total, 1)

    def settle(self, shard: int) -> list[str]:
        """Forget what is reserved in a shard, which has answered; return the accounts."""
        reserved = self._reserved[shard]
        self._reserved[shard] = {}
        for account, amounts in reserved.items():
            if account.startswith(TENANT_MARK):
                self._add(account, amounts, -1)
        return [*reserved]

    def tenants(self) -> list[str]:
        """Return the names of the tenants that hold something."""
        return [account.removeprefix(TENANT_MARK) for account in self._held]

    def _add(self, account: str, amounts: AccountAmounts, sign: int) -> None:
        """Add to what a tenant holds in all shards, or take away."""
        above = parent_of(account) or TENANT_MARK
        for table, name in ((self._held, account), (self._held_below, above)):
            total = table.setdefault(name, {})
            _add_to(total, amounts, sign)
            if not any(total.values()):
                del table[name]

    def held(self, account: str) -> AccountAmounts:
        """Return what a tenant holds in all shards, with what is reserved for it."""
        return self._held.get(account, NO_AMOUNTS)

    def held_below(self, account: str) -> AccountAmounts:
        """Return what the children of a tenant hold; of `@`, what all tenants hold."""
        return self._held_below.get(account, NO_AMOUNTS)

    # -- room --------------------------------------------------------------------------------------

    def room(self, asks: Iterable[Ask], shard: int) -> Room:
        """Return for how many tasks the accounts of a kind have room in a shard."""
        least = UNLIMITED
        for ask in asks:
            line, text = self._lines[shard].get(ask.account, NO_LINE)
            if line is not NO_LINE[0]:
                ceiling = ceiling_of(ask.account, text)
                room = self._room_of(ask, line, ceiling, shard)
                if room.tasks <= 0 and self._must_tell(ask.account, line, ceiling, shard):
                    room = Room(1, ask.account)
                if room.tasks < least.tasks or (room.tasks <= 0 and room.due_ms > least.due_ms):
                    least = room
        return least

    def must_mark(self, room: Room, shard: int) -> bool:
        """Return whether a take must mark the account that has no room for a kind as full.

        Without the mark nobody is woken when a task leaves the account. A shard's part of a divided
        ceiling is marked by takes for which there are seats (see _must_tell).
        """
        line, text = self._lines[shard].get(room.account, NO_LINE)
        ceiling = ceiling_of(room.account, text)
        if room.by_rate or line.is_damaged or line.is_full or ceiling is None:
            return False
        return not ceiling.is_divided or bool(self._reserved[shard].get(room.account))

    def _must_tell(
        self, account: str, line: AccountLine, ceiling: Ceiling | None, shard: int
    ) -> bool:
        """Return whether a take of one task must tell the leader that tasks wait in this shard.

        The leader gives allotments to shards where a take has refused tasks.
        """
        if line.is_damaged or line.is_full or ceiling is None:
            return False
        return ceiling.is_divided and not self._reserved[shard].get(account)

    def _room_of(self, ask: Ask, line: AccountLine, ceiling: Ceiling | None, shard: int) -> Room:
        """Return for how many tasks one account has room."""
        account = ask.account
        is_open = ceiling is not None and not ceiling.amounts and ceiling.rate is None
        if is_open and account.startswith(TENANT_MARK):
            return UNLIMITED  # also if the line is damaged: no ceiling counts
        if line.is_damaged or ceiling is None:
            return Room(0, account)
        if is_open:
            return UNLIMITED
        reserved = self._reserved[shard].get(account, NO_AMOUNTS)
        tasks = inf
        for name, most in ceiling.amounts.items():
            if amount := ask.amounts.get(name, 0):
                amount_left = most - line.amounts.get(name, 0) - reserved.get(name, 0)
                tasks = min(tasks, amount_left // amount)
        if ceiling.rate is None or tasks <= 0:
            return Room(tasks, account)
        units = ask.amounts[UNITS] // THOUSANDTHS
        if units > ceiling.burst:
            return Room(0, account, by_rate=True)
        # GCRA: a task may start when its units fit into the burst
        now_ms = self._now_ms[shard]
        interval_ms = ceiling.rate.period_ms / ceiling.rate.number
        next_ms = max(line.next_ms or 0.0, now_ms)
        next_ms += reserved.get(UNITS, 0) / THOUSANDTHS * interval_ms
        due_ms = next_ms - (ceiling.burst - units) * interval_ms
        if due_ms > now_ms:
            return Room(0, account, due_ms, by_rate=True)
        starts = int((now_ms - due_ms) / (units * interval_ms)) + 1
        return Room(min(tasks, starts), account, by_rate=starts <= tasks)

    def why(self, kind: Kind, shard: int) -> str:
        """Return which account has no room for a kind, as a sentence for people; '' if all have."""
        pairs = {name: self._lines[shard].get(name, NO_LINE) for name, _ in kind.accounts}
        lines = {name: line for name, (line, _) in pairs.items()}
        ceilings = {
            name: text if text == UNREAD_CEILING or ceiling_of(name, text) else None
            for name, (_, text) in pairs.items()
        }
        block = find_block(kind, lines, ceilings, self._now_ms[shard])
        return "" if block is None else block.why


def _add_to(amounts: dict[str, int], change: AccountAmounts, sign: int) -> None:
    """Add amounts to others, or take them away."""
    for name, amount in change.items():
        amounts[name] = amounts.get(name, 0) + sign * amount

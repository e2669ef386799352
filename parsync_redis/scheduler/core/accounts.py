"""A scheduler's copy of what accounts hold, by shard, and the room that they have (model/account.py).

The scripts judge exactly. The copy saves schedulers from seats for tasks that no script would give,
and says which tenant's turn it is. What the scheduler has reserved counts as held, until the shard
has answered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from ...model.account import TENANT_MARK
from ...model.amount import THOUSANDTHS, shown_amount
from ...model.apart import undeclared
from ...model.kind import Kind
from ...model.needs import Resources, parse_needs

UNITS: Final = "units"
"""The amount of a limit."""

Amounts = Mapping[str, int]
"""{name of an amount -> thousandths}; slots and units are in thousandths too."""

NO_AMOUNTS: Final[Amounts] = {}


class Ask(NamedTuple):
    """What one task holds of an account."""

    account: str
    amounts: Amounts


class Room(NamedTuple):
    """How many tasks of a kind its accounts have room for; inf without a ceiling.

    account: the account that has the least room, '' for none.
    due_ms: when the rate of the account gives its next token (server time); inf if tasks wait for
        another reason.
    """

    tasks: float
    account: str = ""
    due_ms: float = inf


UNLIMITED: Final = Room(inf)


class Ceiling(NamedTuple):
    """What the tasks of an account may hold at most.

    interval_ms: a unit may start once in this time; 0 for any time.
    burst: number of units that may start at once.
    rate: '100 in 60 s', for people.
    """

    amounts: Amounts
    interval_ms: float = 0.0
    burst: int = 1
    rate: str = ""


@dataclass(slots=True)
class AccountLine:
    """What the holders of an account hold in a shard.

    next_ms: the theoretical arrival time of the next unit (GCRA), by the server's clock.
    ceiling: None if the policy has none.
    damaged: the line cannot be read, so the account has room for nothing.
    """

    held: Amounts
    next_ms: float = 0.0
    ceiling: Ceiling | None = None
    damaged: bool = False

    @classmethod
    def of(cls, text: str) -> "AccountLine":
        """Read 'n=5 units=5 next=1732161994123.25 of units=5 rate=100/60000 burst=10'."""
        held_text, _, ceiling_text = text.partition(" of ")
        try:
            held, next_ms = _read_held(held_text)
            return cls(held, next_ms, read_ceiling(ceiling_text))
        except (ValueError, ZeroDivisionError):
            return cls(NO_AMOUNTS, damaged=True)


def _read_held(text: str) -> tuple[Amounts, float]:
    """Return the amounts of a line, and its `next`; raises ValueError."""
    held: dict[str, int] = {}
    next_ms = 0.0
    for word in text.split():
        name, _, number = word.partition("=")
        if name == "next":
            next_ms = float(number)
        elif name != "n":
            held[name] = _thousandths(number)
    return held, next_ms


def _thousandths(number: str) -> int:
    """Return an amount in thousandths; raises ValueError."""
    return int(number) * THOUSANDTHS if number.isdecimal() else round(float(number) * THOUSANDTHS)


@lru_cache(maxsize=4096)
def read_ceiling(text: str) -> Ceiling | None:
    """Return a ceiling; None for '-'. Raises ValueError or ZeroDivisionError for damaged text."""
    if text == "-":
        return None
    amounts: dict[str, int] = {}
    interval_ms = 0.0
    burst = 1
    rate = ""
    for word in text.split():
        name, _, number = word.partition("=")
        if name == "rate":
            count, _, period_ms = number.partition("/")
            interval_ms = int(period_ms) / int(count)
            rate = f"{count} in {int(period_ms) / 1000:g} s"
        elif name == "burst":
            burst = int(number)
        else:
            amounts[name] = _thousandths(number)
    if not amounts and not rate:
        raise ValueError(f"not a ceiling: {text}")
    return Ceiling(amounts, interval_ms, burst, rate)


@lru_cache(maxsize=4096)
def amounts_of(needs: Resources) -> Amounts:
    """Return what a task of these needs holds of a tenant's account."""
    amounts = {name: amount for name, amount in needs.amounts if amount and not undeclared(name)}
    return {"slots": needs.slots * THOUSANDTHS, **amounts}


def asks_of(kind: Kind) -> tuple[Ask, ...]:
    """Return what a task of a kind holds of its accounts."""
    if not kind.tenant and not kind.limits:
        return ()
    amounts = amounts_of(parse_needs(kind.needs)) if kind.tenant else NO_AMOUNTS
    return tuple(
        Ask(name, amounts if name.startswith(TENANT_MARK) else {UNITS: units * THOUSANDTHS})
        for name, units in kind.accounts
    )


def parent_of(account: str) -> str:
    """Return the account of a tenant's parent; `@` is the root."""
    return account.rpartition("/")[0] or TENANT_MARK


class Accounts:
    """What accounts hold, as far as this scheduler knows. An account without a line has room."""

    def __init__(self, shards: int) -> None:
        self._lines: list[dict[str, AccountLine]] = [{} for _ in range(shards)]
        self._reserved: list[dict[str, dict[str, int]]] = [{} for _ in range(shards)]
        self._now_ms = [0.0] * shards
        # by tenant's account: what it holds in all shards, and what its children hold
        self._held: dict[str, dict[str, int]] = {}
        self._held_below: dict[str, dict[str, int]] = {}

    def set(self, shard: int, account: str, text: str) -> None:
        """Take in the line of an account in a shard; '' if nothing is known."""
        before = self._lines[shard].pop(account, None)
        line = AccountLine.of(text) if text else None
        if line is not None:
            self._lines[shard][account] = line
        if account.startswith(TENANT_MARK):
            if before is not None:
                self._add(account, before.held, -1)
            if line is not None:
                self._add(account, line.held, 1)

    def clear_shard(self, shard: int) -> list[str]:
        """Forget a shard; return the accounts that had a line or a reservation there."""
        accounts = [*{**self._lines[shard], **self._reserved[shard]}]
        self.settle(shard)
        for account in accounts:
            self.set(shard, account, "")
        return accounts

    def on_time(self, shard: int, now_ms: float) -> None:
        """Note the time of the server of a shard."""
        self._now_ms[shard] = max(self._now_ms[shard], now_ms)

    def reserve(self, shard: int, asks: Iterable[Ask], tasks: int) -> None:
        """Let so many tasks count as held, until `settle`."""
        for account, amounts in asks:
            total = {name: amount * tasks for name, amount in amounts.items()}
            _add_to(self._reserved[shard].setdefault(account, {}), total, 1)
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

    def _add(self, account: str, amounts: Amounts, sign: int) -> None:
        """Add to what a tenant holds in all shards, or take away."""
        _add_to(self._held.setdefault(account, {}), amounts, sign)
        _add_to(self._held_below.setdefault(parent_of(account), {}), amounts, sign)

    def held(self, account: str) -> Amounts:
        """Return what a tenant holds in all shards, with what is reserved for it."""
        return self._held.get(account, NO_AMOUNTS)

    def held_below(self, account: str) -> Amounts:
        """Return what the children of a tenant hold; of `@`, what all tenants hold."""
        return self._held_below.get(account, NO_AMOUNTS)

    # -- room --------------------------------------------------------------------------------------

    def room(self, asks: Iterable[Ask], shard: int) -> Room:
        """Return for how many tasks the accounts of a kind have room in a shard."""
        least = UNLIMITED
        lines = self._lines[shard]
        for ask in asks:
            line = lines.get(ask.account)
            if line is None or (line.ceiling is None and ask.account.startswith(TENANT_MARK)):
                continue
            room = self._room_of(ask, line, shard)
            if room.tasks < least.tasks or room.tasks == 0 == least.tasks and room.due_ms == inf:
                least = room
        return least

    def _room_of(self, ask: Ask, line: AccountLine, shard: int) -> Room:
        """Return for how many tasks one account has room."""
        ceiling = line.ceiling
        if line.damaged or ceiling is None:
            return Room(0, ask.account)
        reserved = self._reserved[shard].get(ask.account, NO_AMOUNTS)
        tasks: float = inf
        for name, most in ceiling.amounts.items():
            if asked := ask.amounts.get(name, 0):
                left = most - line.held.get(name, 0) - reserved.get(name, 0)
                tasks = min(tasks, max(0, left // asked))
        if not ceiling.interval_ms or not tasks:
            return Room(tasks, ask.account)
        units = ask.amounts[UNITS] / THOUSANDTHS
        if units > ceiling.burst:
            return Room(0, ask.account)
        now_ms = self._now_ms[shard]
        next_ms = max(line.next_ms, now_ms)
        next_ms += reserved.get(UNITS, 0) / THOUSANDTHS * ceiling.interval_ms
        # a task may start when its units fit into the burst
        due_ms = next_ms + (units - ceiling.burst) * ceiling.interval_ms
        if due_ms > now_ms:
            return Room(0, ask.account, due_ms)
        tokens = int((now_ms - due_ms) / (units * ceiling.interval_ms)) + 1
        return Room(min(tasks, tokens), ask.account)

    def why(self, asks: Iterable[Ask], shard: int) -> str:
        """Return which account has no room for a kind, as a sentence for people; '' if all have."""
        room = self.room(asks, shard)
        if room.tasks:
            return ""
        account = room.account
        line = self._lines[shard][account]
        is_tenant = account.startswith(TENANT_MARK)
        shown = f"tenant {account.removeprefix(TENANT_MARK)}" if is_tenant else f"limit {account}"
        if line.damaged:
            return f"{shown}: what is held is damaged, and will be counted again"
        ceiling = line.ceiling
        if ceiling is None:
            return f"no {shown} is in the policy"
        if room.due_ms < inf:
            return f"{shown}: the rate of {ceiling.rate} is used up"
        amounts = next(ask.amounts for ask in asks if ask.account == account)
        reserved = self._reserved[shard].get(account, NO_AMOUNTS)
        if amounts.get(UNITS, 0) > ceiling.burst * THOUSANDTHS and ceiling.interval_ms:
            return f"{shown}: a task needs more units than the burst of {ceiling.burst}"
        for name, most in ceiling.amounts.items():
            held = line.held.get(name, 0) + reserved.get(name, 0)
            if amounts.get(name, 0) > most - held:
                if is_tenant:
                    return (
                        f"{shown} holds {shown_amount(held)} of at most {shown_amount(most)} {name}"
                    )
                return f"{shown}: {shown_amount(held)} of {shown_amount(most)} are held"
        return ""


def _add_to(amounts: dict[str, int], change: Amounts, sign: int) -> None:
    """Add amounts to others, or take them away."""
    for name, amount in change.items():
        amounts[name] = amounts.get(name, 0) + sign * amount

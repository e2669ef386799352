"""The line of an account: what its holders hold, and the ceiling. Pure.

    n=3 slots=12 gpu=3                                of slots=200 gpu=4
    n=3 units=4 next=1732161994123.250                of units=5 rate=100/60000 burst=10
    n=0                                               of -
    damaged                                           of ?

A ceiling of `-` is none. A ceiling of `?` cannot be read, so the account has room for nothing. A
shard of the queue has the part before `of` (lua/lib/kind/accounts.lua); a scheduler hears both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .amount import AMOUNT_PATTERN, THOUSANDTHS, read_amount
from .policy import LimitEntry, StartRate

UNREAD_CEILING: Final = "?"
"""The text of a ceiling that a script cannot read."""

_HELD_LINE: Final = re.compile(
    r"n=(?P<count>\d{1,15})(?P<amounts>(?: [a-z][a-z0-9_.]*=" + AMOUNT_PATTERN + r")*?)"
    r"(?: next=(?P<next>\d{1,16}(?:\.\d{1,3})?))?(?P<full> full)?",
    re.ASCII,
)
_CEILING_RATE: Final = re.compile(r"rate=(\d{1,15})/(\d{1,15})(?: burst=(\d{1,15}))?", re.ASCII)
_CEILING_AMOUNT: Final = re.compile(
    rf"(?:^| )([a-z][a-z0-9_.]*)=({AMOUNT_PATTERN})(?= |$)", re.ASCII
)


def read_amounts(text: str) -> dict[str, int]:
    """Return the amounts of a line by name, in thousandths; other words are left out."""
    return {name: read_amount(amount) for name, amount in _CEILING_AMOUNT.findall(text)}


@dataclass(frozen=True, slots=True)
class AccountLine:
    """What the holders of an account hold.

    count: the number of holders.
    amounts: by name, `units` of a limit, `slots` and resources of a tenant, in thousandths.
    next_ms: until when (server time) the rate of a limit is used up, as GCRA counts; None if no
        task started lately.
    is_full: whether a take has refused tasks because of the account: a scheduler is woken when a
        task leaves it.
    is_damaged: whether the line cannot be read: the account has room for nothing until the leader
        has counted its holders.
    """

    count: int = 0
    amounts: Mapping[str, int] = field(default_factory=dict)
    next_ms: float | None = None
    is_damaged: bool = False
    is_full: bool = False

    @classmethod
    def of(cls, text: str) -> "AccountLine":
        """Read a line, with or without its ceiling; '' is an account that nobody holds."""
        match = _HELD_LINE.fullmatch(text.partition(" of ")[0] or "n=0")
        if match is None:
            return cls(is_damaged=True)
        amounts = read_amounts(match["amounts"])
        next_ms = float(match["next"]) if match["next"] else None
        return cls(int(match["count"]), amounts, next_ms, is_full=bool(match["full"]))

    @property
    def units(self) -> int:
        """Return how many units of a limit are held."""
        return self.amounts.get("units", 0) // THOUSANDTHS

    def with_shard(self, of_shard: "AccountLine") -> "AccountLine":
        """Return the sum of this line and the line of the same account in another shard."""
        amounts = dict(self.amounts)
        for name, amount in of_shard.amounts.items():
            amounts[name] = amounts.get(name, 0) + amount
        moments = [ms for ms in (self.next_ms, of_shard.next_ms) if ms is not None]
        return AccountLine(
            self.count + of_shard.count,
            amounts,
            max(moments, default=None),
            self.is_damaged or of_shard.is_damaged,
            self.is_full or of_shard.is_full,
        )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the holders of an account may hold at most.

    amounts: by name, in thousandths; a name that is missing has no bound.
    rate, burst: how often units of a limit may start; None for any rate.
    is_divided: whether the queue has several shards, each with a part (model/allotment.py).
    """

    amounts: Mapping[str, int] = field(default_factory=dict)
    rate: StartRate | None = None
    burst: int = 0
    is_divided: bool = False

    @classmethod
    def of(cls, text: str) -> "Ceiling":
        """Read the text of a ceiling; '' and '-' are none."""
        rate = _CEILING_RATE.search(text)
        amounts = read_amounts(text)
        amounts.pop("burst", None)
        amounts.pop("declared", None)
        is_divided = bool(amounts.pop("shards", 0))
        if rate is None:
            return cls(amounts, is_divided=is_divided)
        start_rate = StartRate(int(rate[1]), int(rate[2]))
        return cls(amounts, start_rate, int(rate[3] or 1), is_divided)

    @property
    def limit_entry(self) -> LimitEntry | None:
        """Return the entry of a limit with this ceiling; None if it bounds nothing."""
        units = self.amounts.get("units")
        if units is None and self.rate is None:
            return None
        at_once = None if units is None else units // THOUSANDTHS
        return LimitEntry(at_once, self.rate, self.burst)

    def used(self, line: AccountLine, now_ms: float) -> int:
        """Return how many units of the burst are used up now."""
        if self.rate is None or line.next_ms is None:
            return 0
        ahead_ms = max(0.0, line.next_ms - now_ms)
        return min(self.burst, round(ahead_ms * self.rate.number / self.rate.period_ms))

    def start_ms(self, line: AccountLine, units: int, now_ms: float) -> float:
        """Return when (server time) the rate lets a task of so many units start, `now_ms` for now.

        A task of more units than the burst never starts: the caller checks that first.
        """
        if self.rate is None or line.next_ms is None:
            return now_ms
        ahead_ms = (self.burst - units) * self.rate.period_ms / self.rate.number
        return max(now_ms, line.next_ms - ahead_ms)

"""Accounts in the store in memory: what tasks count to while they are taken, placed or running.

lua/lib/kind/accounts.lua, ceilings.lua and changing.lua do the same.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Final

from ...model.account import pattern_of
from ...model.amount import THOUSANDTHS, amount_text, read_amount
from ...model.apart import undeclared
from ...model.kind import Kind
from ...model.needs import parse_needs
from .records import World

_CEILING_WORD: Final = re.compile(r"([a-z][a-z0-9_.]*)=([\d.]+)")
_RATE: Final = re.compile(r"rate=(\d+)/(\d+)(?: burst=(\d+))?")


@dataclass(slots=True)
class KeptAccount:
    """What counts to an account.

    holders: id -> since when (ms). amounts: what they hold, in thousandths. next_ms: until when the
    rate is used up. full: a take has refused tasks because of the account.
    """

    holders: dict[str, int] = field(default_factory=dict)
    amounts: dict[str, int] = field(default_factory=dict)
    next_ms: float | None = None
    full: bool = False

    def add(self, share: Mapping[str, int], factor: int) -> None:
        """Add `factor` times what one task holds."""
        for name, amount in share.items():
            self.amounts[name] = max(0, self.amounts.get(name, 0) + factor * amount)

    @property
    def text(self) -> str:
        """The stored line, without the mark `full`."""
        names = ["slots", "units", *sorted(self.amounts.keys() - {"slots", "units"})]
        words = [f"n={len(self.holders)}"]
        words += [
            f"{name}={amount_text(self.amounts[name])}" for name in names if self.amounts.get(name)
        ]
        words += [] if self.next_ms is None else [f"next={self.next_ms:.3f}"]
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class KeptCeiling:
    """What an account may hold (thousandths), and the interval (ms) and the burst of a rate."""

    allowed: Mapping[str, int]
    interval_ms: float = 0.0
    burst: int = 1

    @classmethod
    def of(cls, text: str) -> "KeptCeiling":
        """Read the text of a ceiling."""
        rate = _RATE.search(text)
        allowed = {
            name: read_amount(amount)
            for name, amount in _CEILING_WORD.findall(text)
            if name not in ("rate", "burst")
        }
        if rate is None:
            return cls(allowed)
        return cls(allowed, int(rate[2]) / int(rate[1]), int(rate[3] or 1))


class Accounts:
    """The accounts of a shard, and their ceilings."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: dict[str, KeptAccount] = {}
        self.ceilings: dict[str, str] = {}
        self.touched: set[str] = set()
        self.has_room = False

    def ceiling_text(self, account: str) -> str | None:
        """Return the ceiling of an account, None without one."""
        return self.ceilings.get(account, self.ceilings.get(pattern_of(account)))

    def line(self, account: str) -> str:
        """Return 'HELD of CEILING', as a scheduler hears it."""
        line = self.lines.get(account) or KeptAccount()
        return f"{line.text} of {self.ceiling_text(account) or '-'}"

    def _line(self, account: str) -> KeptAccount:
        return self.lines.setdefault(account, KeptAccount())

    def room(self, kind: str, limit: int) -> int:
        """Return how many tasks of a kind may be taken, `limit` at most."""
        room = limit
        for account, share in shares_of(kind):
            room = min(room, self._room_in(account, share, limit))
        return room

    def _room_in(self, account: str, share: Mapping[str, int], limit: int) -> int:
        line = self._line(account)
        text = self.ceiling_text(account)
        room = limit
        if text is None and not account.startswith("@"):
            room = 0
        ceiling = KeptCeiling.of(text or "")
        for name, allowed in ceiling.allowed.items():
            if room > 0 and share.get(name):
                room = min(room, (allowed - line.amounts.get(name, 0)) // share[name])
        if room < limit and not line.full:
            line.full = True
            self.touched.add(account)
        if room > 0 and ceiling.interval_ms:
            now = self._world.now_ms
            ahead = max(line.next_ms or 0, now) - now
            tokens = floor(ceiling.burst - ahead / ceiling.interval_ms + 1e-6)
            room = min(room, tokens * THOUSANDTHS // share["units"])
        return max(room, 0)

    def enter(self, kind: str, id: str) -> None:
        """Let a taken task count."""
        for account, share in shares_of(kind):
            line = self._line(account)
            self.touched.add(account)
            line.holders[id] = self._world.now_ms
            line.add(share, 1)
            ceiling = KeptCeiling.of(self.ceiling_text(account) or "")
            if ceiling.interval_ms:
                begin = max(line.next_ms or 0, self._world.now_ms)
                line.next_ms = begin + share["units"] // THOUSANDTHS * ceiling.interval_ms

    def leave(self, kind: str, id: str, undone: bool = False) -> None:
        """Let a task count no more, if it counts. undone: its take is undone."""
        for account, share in shares_of(kind):
            line = self._line(account)
            self.touched.add(account)
            if line.holders.pop(id, None) is None:
                continue
            line.add(share, -1)
            self.has_room |= line.full
            line.full = False
            if undone and line.next_ms is not None:
                ceiling = KeptCeiling.of(self.ceiling_text(account) or "")
                line.next_ms -= share["units"] // THOUSANDTHS * ceiling.interval_ms

    def write(self) -> list[str]:
        """End a script: forget accounts that nothing counts to. Returns the touched accounts."""
        names = sorted(self.touched)
        self.touched.clear()
        for account in names:
            line = self._line(account)
            if line.next_ms is not None:
                line.next_ms = float(f"{line.next_ms:.3f}")
        for account, line in list(self.lines.items()):
            next_ms = line.next_ms or 0
            is_used = line.full or (next_ms > self._world.now_ms if account in names else next_ms)
            if not line.holders and not is_used:
                del self.lines[account]
        return names

    def let_try(self, changes: Iterable[str]) -> None:
        """Let the accounts that refused tasks, or whose ceilings changed, be tried again."""
        for account in {*changes, *self.lines}:
            self._line(account).full = False
            self.touched.add(account)

    def take_room(self) -> bool:
        """Return once whether a task has left a full account."""
        had_room = self.has_room
        self.has_room = False
        return had_room


def shares_of(kind: str) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield the accounts of a kind, and what one task holds of each, in thousandths."""
    parsed = Kind.of(kind)
    needs = parse_needs(parsed.needs)
    share = {"slots": needs.slots * THOUSANDTHS}
    share |= {name: amount for name, amount in needs.amounts if not undeclared(name)}
    for account in parsed.accounts:
        if account.is_tenant:
            yield account.name, share
        else:
            yield account.name, {"units": account.units * THOUSANDTHS}

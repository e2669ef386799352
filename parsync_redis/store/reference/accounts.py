"""Accounts in the store in memory: what tasks count to while they are taken, placed or running.

lua/lib/kind/accounts.lua, ceilings.lua and changing.lua do the same.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import floor
from typing import Final

from ...model.account import ACCOUNT_WORDS, KEY_MARK, pattern_of
from ...model.amount import THOUSANDTHS, amount_text, read_amount
from ...model.apart import undeclared
from ...model.kind import Kind
from ...model.needs import parse_needs
from ...model.policy import DECLARED_MARK, LimitEntry
from .records import World

_CEILING_WORD: Final = re.compile(r"([a-z][a-z0-9_.]*)=([\d.]+)")
_RATE: Final = re.compile(r"rate=(\d+)/(\d+)(?: burst=(\d+))?")


@dataclass(slots=True)
class KeptAccount:
    """What counts to an account.

    holders: id -> since when (ms). amounts: what they hold, in thousandths. next_ms: until when the
    rate is used up. full: a take has refused tasks because of the account. is_shut: a take found
    room for no task.
    """

    holders: dict[str, int] = field(default_factory=dict)
    amounts: dict[str, int] = field(default_factory=dict)
    next_ms: float | None = None
    full: bool = False
    is_shut: bool = False

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
    least_interval_ms: float = 0.0
    divided: bool = False

    @classmethod
    def of(cls, text: str) -> "KeptCeiling":
        """Read the text of a ceiling."""
        rate = _RATE.search(text)
        allowed = {
            name: read_amount(amount)
            for name, amount in _CEILING_WORD.findall(text)
            if name not in ("rate", "burst", "shards", "declared")
        }
        divided = " shards=" in text
        if rate is None:
            return cls(allowed, divided=divided)
        interval_ms = int(rate[2]) / int(rate[1])
        return cls(allowed, interval_ms, int(rate[3] or 1), interval_ms, divided)

    def part(self, allotment: str | None) -> "KeptCeiling":
        """Return what an allotment leaves of the ceiling."""
        parts = dict(_CEILING_WORD.findall(allotment or ""))
        burst = min(self.burst, int(parts.get("burst", 0)))
        return replace(
            self,
            allowed={
                name: min(size, read_amount(parts.get(name, "0")))
                for name, size in self.allowed.items()
            },
            interval_ms=self.interval_ms * self.burst / (burst or self.burst),
            burst=burst,
        )


def is_covered(ceilings: Mapping[str, str], name: str) -> bool:
    """Return whether an entry of the policy counts for a limit in place of what an app declares."""
    texts = [ceilings.get(name), ceilings.get(pattern_of(name))]
    return any(text and DECLARED_MARK not in text for text in texts)


class Accounts:
    """The accounts of a shard, and their ceilings."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: dict[str, KeptAccount] = {}
        self.ceilings: dict[str, str] = {}
        self.allotments: dict[str, str] = {}
        self.seal = ""
        self.touched: set[str] = set()
        self.has_room = False

    def ceiling_text(self, account: str) -> str | None:
        """Return the ceiling of an account, None without one."""
        return self.ceilings.get(account, self.ceilings.get(pattern_of(account)))

    def declare(self, limits: Mapping[str, LimitEntry], shards: str) -> bool:
        """Add limits that an app declares and that the shard does not know; return whether any."""
        suffix = f" shards={shards}" if shards.isdecimal() and int(shards) > 1 else ""
        new = {
            name: entry.ceiling + DECLARED_MARK + suffix
            for name, entry in limits.items()
            if name not in self.ceilings and not is_covered(self.ceilings, name)
        }
        self.ceilings |= new
        if new:
            self.let_try(new)
        return bool(new)

    def _ceiling(self, account: str) -> KeptCeiling:
        """Return what the account may hold in this shard."""
        ceiling = KeptCeiling.of(self.ceiling_text(account) or "")
        return ceiling.part(self.allotments.get(account)) if ceiling.divided else ceiling

    def line(self, account: str) -> str:
        """Return 'HELD of CEILING', as a scheduler hears it."""
        line = self.lines.get(account) or KeptAccount()
        mark = " full" if line.full else ""
        return f"{line.text}{mark} of {self._own_text(account)}"

    def _own_text(self, account: str) -> str:
        text = self.ceiling_text(account) or "-"
        allowance = self._ceiling(account)
        if not allowance.divided:
            return text
        words = {
            name: f"{name}={amount_text(amount)}" for name, amount in allowance.allowed.items()
        }
        if rate := _RATE.search(text):
            words["burst"] = f"burst={allowance.burst}"
            whole = int(rate[3] or 1)
            words["rate"] = f"rate={max(1, int(rate[1]) * allowance.burst)}/{int(rate[2]) * whole}"
        names = re.findall(r"([a-z][a-z0-9_.]*)=", text.partition(" shards=")[0])
        return " ".join([*(words[name] for name in names), text.split()[-1]])

    def allot(
        self, seal: str, salt: str, rows: Iterable[tuple[str, str, str]]
    ) -> tuple[str, list[str]] | None:
        """Write allotments; return the seal and the accounts to tell of, None for another seal."""
        if seal not in ("", self.seal):
            return None
        names = []
        for account, text, _ in rows:
            names.append(account)
            self.allotments.pop(account, None)
            if text:
                self.allotments[account] = text
        for account, _, next_ms in rows:
            line = self._line(account)
            self.touched.add(account)
            if next_ms:
                line.full = False
                if self._ceiling(account).interval_ms:
                    line.next_ms = max(line.next_ms or 0.0, float(next_ms))
        if names or not seal:
            self.seal = f"{int(self.seal.partition('.')[0] or 0) + 1}.{salt}"
        return self.seal, names or sorted(self.allotments)

    def allotment_words(self, account: str) -> list[str]:
        """Return what `allot` tells of an account: ceiling, allotment and line."""
        line = self.lines.get(account) or KeptAccount()
        text = line.text + (" full" if line.full else "")
        allotment = self.allotments.get(account, "") if self._ceiling(account).divided else ""
        return [self.ceiling_text(account) or "-", allotment, text]

    def _line(self, account: str) -> KeptAccount:
        return self.lines.setdefault(account, KeptAccount())

    def room(self, kind: str, limit: int) -> int:
        """Return how many tasks of a kind may be taken, `limit` at most. Keys have no ceilings.

        With a limit of 0, the accounts without room for a task are marked as full.
        """
        tasks = max(1, limit)
        rooms = [
            self._room_in(account, share, tasks)
            for account, share in shares_of(kind)
            if not account.startswith(KEY_MARK)
        ]
        return min([limit, *rooms])

    def _room_in(self, account: str, share: Mapping[str, int], limit: int) -> int:
        line = self._line(account)
        text = self.ceiling_text(account)
        room = limit
        if text is None and not account.startswith("@"):
            room = 0
        ceiling = self._ceiling(account)
        for name, allowed in ceiling.allowed.items():
            if room > 0 and share.get(name):
                room = min(room, (allowed - line.amounts.get(name, 0)) // share[name])
        line.is_shut = line.is_shut or room <= 0
        is_full = room < limit
        if room > 0 and ceiling.interval_ms:
            now = self._world.now_ms
            ahead = max(line.next_ms or 0, now) - now
            tokens = floor(ceiling.burst - ahead / ceiling.interval_ms + 1e-6)
            room = min(room, tokens * THOUSANDTHS // share["units"])
            is_full |= ceiling.divided and room < limit
        if is_full and not line.full:
            line.full = True
            self.touched.add(account)
        if line.full and ceiling.divided:
            self.allotments.setdefault(account, "0")
        return max(room, 0)

    def enter(self, kind: str, id: str) -> None:
        """Let a taken task count."""
        for account, share in shares_of(kind):
            line = self._line(account)
            self.touched.add(account)
            line.holders[id] = self._world.now_ms
            line.add(share, 1)
            ceiling = self._ceiling(account)
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
                least_ms = self._ceiling(account).least_interval_ms
                line.next_ms -= share["units"] // THOUSANDTHS * least_ms

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
            is_waited_for = line.full and (line.is_shut or self._ceiling(account).divided)
            is_used = is_waited_for or (
                next_ms > self._world.now_ms if account in names else next_ms
            )
            if not line.holders and not is_used:
                del self.lines[account]
            line.is_shut = line.full and not line.holders
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
    share |= {
        name: amount
        for name, amount in needs.amounts
        if not undeclared(name) and name not in ACCOUNT_WORDS
    }
    for account in parsed.accounts:
        if account.is_tenant:
            yield account.name, share
        else:
            yield account.name, {"units": account.units * THOUSANDTHS}

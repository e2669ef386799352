"""The duty to divide the ceilings of accounts among the shards of the queue.

A shard holds at most its allotment (lua/lib/kind/allotments.lua). This leader moves allotments:
first down; the answer says what the shard still holds. Then up elsewhere, as far as all shards
together may hold no more than the ceiling.

A leader first seals all shards, and then reads them. If all shards have its seals at the read,
nobody else has changed an allotment between, and nobody else can do so later without breaking a
seal. So two leaders at once, and messages that come late, twice or never, give out nothing twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from secrets import token_hex
from typing import Final

from ...model.account_line import AccountLine
from ...model.allotment import (
    AllotReply,
    AllotRow,
    PartAmounts,
    ShardPart,
    allotment_text,
    equal_parts,
    whole_of,
)
from ...model.limits import MAX_BATCH
from ...store.store import Store

WANTS_PASSES: Final = 3
"""Number of passes for which a shard counts as wanting after tasks were refused there."""

OWN_TIME_PASSES: Final = 8
"""Number of passes for which a shard goes first among those that had a turn for nothing.

In all accounts it is the same shard.
"""

IDLE_PASSES: Final = 100
"""Number of passes after which an account that nobody uses loses its allotments."""


@dataclass(slots=True)
class Sharing:
    """What this leader knows of the way in which shards share an account.

    used: the pass in which the account was used last.
    refused: by shard, the pass in which tasks were refused last.
    first: the shard whose turn it is to have the whole ceiling, because tasks there do not fit into
    an equal part; None if nobody has a turn. whole_since: the pass in which `first` had got all.
    given_next_ms: until when the rate was used up as the turn began.
    turn_ends: by shard, the pass in which its last turn ended.
    unserved: the shards whose last turn let no task start: the tasks do not fit into the ceiling,
    or wait for another account too.
    """

    used: int
    refused: dict[int, int] = field(default_factory=dict)
    first: int | None = None
    whole_since: int = 0
    given_next_ms: float = 0.0
    turn_ends: dict[int, int] = field(default_factory=dict)
    unserved: set[int] = field(default_factory=set)

    def plan(self, parts: Sequence[ShardPart], now_pass: int, now_ms: int) -> list[dict[str, int]]:
        """Return what each shard should have, by what the shards say in this pass."""
        whole = whole_of(parts)
        wants = self._see(parts, now_pass)
        shares = equal_parts(whole, parts, wants)
        first = self._turn(whole, parts, shares, now_pass, now_ms)
        if first is None:
            return shares
        return [dict(whole) if shard == first else {} for shard in range(len(parts))]

    def is_idle(self, now_pass: int) -> bool:
        """Return whether nobody has used the account for IDLE_PASSES."""
        return now_pass - self.used > IDLE_PASSES

    def _see(self, parts: Sequence[ShardPart], now_pass: int) -> list[bool]:
        """Note what the shards say; return which shards want more."""
        for shard, part in enumerate(parts):
            if part.line.is_full:
                self.refused[shard] = now_pass
            if part.line.count:
                self.unserved.discard(shard)
            if part.line.is_full or part.line.count:
                self.used = now_pass
        for shard in [s for s, last in self.refused.items() if last <= now_pass - WANTS_PASSES]:
            del self.refused[shard]
        return [shard in self.refused for shard in range(len(parts))]

    def _turn(
        self,
        whole: PartAmounts,
        parts: Sequence[ShardPart],
        equal: Sequence[PartAmounts],
        now_pass: int,
        now_ms: int,
    ) -> int | None:
        """Return the shard that has the whole ceiling now, None if all have equal parts.

        The shards have turns, the one that had none for the longest time first. A shard whose turn
        let no task start has its next turn in its own time: so the accounts of a task come
        together in one shard.
        """
        if self.first is not None and self._is_over(self.first, whole, parts, now_pass, now_ms):
            self.turn_ends[self.first] = now_pass
            self.first = None
        if self.first is None:
            own_shard = now_pass // OWN_TIME_PASSES % len(parts)
            starving = [
                shard
                for shard, part in enumerate(parts)
                if part.line.is_full
                and (shard == own_shard or shard not in self.unserved)
                and _has(part, equal[shard])
                and not _progresses(part, now_ms)
            ]
            if starving:
                self.first = min(starving, key=lambda shard: self._rank(shard, own_shard))
                self.whole_since = 0
                self.given_next_ms = latest_next(parts)
        return self.first

    def _rank(self, shard: int, own_shard: int) -> tuple[bool, int, int]:
        return (
            shard != own_shard or shard not in self.unserved,
            self.turn_ends.get(shard, 0),
            shard,
        )

    def _is_over(
        self, first: int, whole: PartAmounts, parts: Sequence[ShardPart], now_pass: int, now_ms: int
    ) -> bool:
        """Return whether a turn is over: a task has started, or none wants to or can."""
        part = parts[first]
        if first not in self.refused:
            return True
        if not _has(part, whole):
            return False
        self.whole_since = self.whole_since or now_pass
        if part.line.count or (part.line.next_ms or 0) > max(self.given_next_ms, now_ms):
            return True
        if _progresses(part, now_ms) or now_pass < self.whole_since + WANTS_PASSES:
            return False
        self.unserved.add(first)
        return True


def _has(part: ShardPart, amounts: PartAmounts) -> bool:
    return all(part.allotted.get(name, 0) >= amount for name, amount in amounts.items())


def _progresses(part: ShardPart, now_ms: int) -> bool:
    """Return whether tasks start in a shard, or will as soon as its rate allows."""
    if part.ceiling and part.ceiling.rate and not part.allotted.get("burst"):
        return False
    return part.line.count > 0 or (part.line.next_ms or 0) > now_ms


def latest_next(parts: Sequence[ShardPart]) -> float:
    """Return until when (ms) the rate of an account is used up in any shard, 0 if it is not."""
    return max((part.line.next_ms or 0.0 for part in parts), default=0.0)


class AllotmentDuty:
    """The duty of this leader to divide ceilings. With one shard there is nothing to do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seals: list[str] = []
        self._passes = count(1)
        self._sharings: dict[str, Sharing] = {}

    def work(self) -> None:
        """Do one pass: read, lower, raise. After an error the next pass seals the shards anew."""
        if self._store.keys.shards == 1:
            return
        seals = self._seals
        self._seals = []
        if not seals:
            seals = _seals_of(self._allot([""] * self._store.keys.shards))
        replies = self._allot(seals)
        if all(_seals_of(replies)):
            self._seals = self._move(replies)

    def _allot(
        self, seals: Sequence[str], rows: Mapping[int, Sequence[AllotRow]] | None = None
    ) -> list[AllotReply]:
        """Run `allot` in every shard, or in those of the rows, all in one round trip."""
        shards = range(len(seals)) if rows is None else [*rows]
        salt = token_hex(8)
        return self._store.run_all(
            [
                self._store.commands.allot(seals[shard], salt, (rows or {}).get(shard, ()), shard)
                for shard in shards
            ]
        )

    def _move(self, replies: Sequence[AllotReply]) -> list[str]:
        """Move allotments by what the shards say; return the seals, [] if one was broken."""
        seals = _seals_of(replies)
        accounts = _parts_by_account(replies)
        plans = self._plans(accounts, max(reply.now_ms for reply in replies))
        lowered = _rows_by_shard(_lowered(name, accounts[name], plans[name]) for name in plans)
        if not self._write(seals, lowered, accounts):
            return []
        raised = _rows_by_shard(_raised(name, accounts[name], plans[name]) for name in plans)
        return seals if self._write(seals, raised, accounts) else []

    def _plans(
        self, accounts: Mapping[str, Sequence[ShardPart]], now_ms: int
    ) -> dict[str, list[dict[str, int]] | None]:
        """Return what each shard should have of accounts, None for no allotment in any shard.

        Accounts that have what they should have are missing; MAX_BATCH accounts at most.
        """
        now_pass = next(self._passes)
        self._sharings = {name: self._sharings.get(name) or Sharing(now_pass) for name in accounts}
        plans: dict[str, list[dict[str, int]] | None] = {}
        for name, parts in accounts.items():
            sharing = self._sharings[name]
            plan = sharing.plan(parts, now_pass, now_ms)
            if sharing.is_idle(now_pass) and latest_next(parts) <= now_ms:
                plans[name] = None
            elif _differs(parts, plan):
                plans[name] = plan
        names = sorted(plans)
        start = now_pass * MAX_BATCH % max(1, len(names))
        return {name: plans[name] for name in (names[start:] + names[:start])[:MAX_BATCH]}

    def _write(
        self,
        seals: list[str],
        rows: Mapping[int, Sequence[AllotRow]],
        accounts: Mapping[str, list[ShardPart]],
    ) -> bool:
        """Write allotments, and put new seals and parts in their places.

        Returns whether no seal was broken.
        """
        replies = self._allot(seals, rows) if rows else []
        for shard, reply in zip(rows, replies, strict=True):
            seals[shard] = reply.seal
            for name, part in reply.parts.items():
                accounts[name][shard] = part
        return all(seals)


def _seals_of(replies: Sequence[AllotReply]) -> list[str]:
    return [reply.seal for reply in replies]


def _parts_by_account(replies: Sequence[AllotReply]) -> dict[str, list[ShardPart]]:
    """Return the parts of all shards by account.

    A shard without an allotment is not listed, and what it holds is not known yet.
    """
    accounts: dict[str, list[ShardPart]] = {}
    for name in {name for reply in replies for name in reply.parts}:
        ceiling = next(reply.parts[name].ceiling for reply in replies if name in reply.parts)
        unlisted = ShardPart(ceiling, {}, AccountLine(), False)
        accounts[name] = [reply.parts.get(name, unlisted) for reply in replies]
    return accounts


def _differs(parts: Sequence[ShardPart], plan: Sequence[PartAmounts]) -> bool:
    """Return whether a shard should have another allotment than it has."""
    return any(
        part.allotted.get(name, 0) != share.get(name, 0)
        for part, share in zip(parts, plan, strict=True)
        for name in {*part.allotted, *share}
    )


def _rows_by_shard(rows: Iterable[Iterable[tuple[int, AllotRow]]]) -> dict[int, list[AllotRow]]:
    by_shard: dict[int, list[AllotRow]] = {}
    for shard, row in chain.from_iterable(rows):
        by_shard.setdefault(shard, []).append(row)
    return by_shard


def _lowered(
    account: str, parts: Sequence[ShardPart], plan: Sequence[PartAmounts] | None
) -> Iterator[tuple[int, AllotRow]]:
    """Yield the rows that lower allotments, by shard.

    A shard without an allotment gets one of nothing, so that it tells what it holds.
    """
    for shard, part in enumerate(parts):
        if plan is None:
            yield shard, AllotRow(account, "")
            continue
        amounts = {
            name: min(size, plan[shard].get(name, 0)) for name, size in part.allotted.items()
        }
        if amounts != part.allotted or not part.is_listed:
            yield shard, AllotRow(account, allotment_text(amounts))


def _raised(
    account: str, parts: Sequence[ShardPart], plan: Sequence[PartAmounts] | None
) -> Iterator[tuple[int, AllotRow]]:
    """Yield the rows that raise allotments, by shard.

    Nothing is raised while a shard does not say what it holds.
    """
    if plan is None or not all(part.is_listed and not part.line.is_damaged for part in parts):
        return
    remaining = {
        name: amount - sum(part.may_hold(name) for part in parts)
        for name, amount in whole_of(parts).items()
    }
    for shard, part in enumerate(parts):
        amounts = dict(part.allotted)
        for name in remaining.keys() & plan[shard].keys():
            raised = min(plan[shard][name], part.may_hold(name) + max(0, remaining[name]))
            if raised > amounts.get(name, 0):
                amounts[name] = raised
                remaining[name] -= max(0, raised - part.may_hold(name))
        if amounts != part.allotted:
            yield shard, AllotRow(account, allotment_text(amounts), f"{latest_next(parts):.3f}")

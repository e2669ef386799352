"""A scheduler's copy of the queue: which kinds of task wait in each shard, how many of each, and
from which order on.

A group of kinds (kind_group.py) that finds no seat is blocked until a partition changes in which it
may fit. So what waits costs nothing while nothing changes.
"""

import heapq
from collections.abc import Collection
from typing import Final

from ...model.kind import Kind, KindLine
from ...model.needs import parse_needs
from ...model.replies import Took
from .blocked import Blocked
from .kind_group import BLOCK, GroupKey, KindGroup, WaitingKind
from .reservations import Bars
from .view import View

AT_ONCE: Final = 64
"""Groups that are opened at a time: one freed slot is not offered to ten thousand."""

Entry = tuple[float, int, float, int, WaitingKind]
"""A kind in the order in which seats are given: block, rank of its shard, order, a number that
breaks ties, kind.
"""


def first_of(group: KindGroup) -> int:
    """Return the order of a group's first task."""
    return min(waiting.first for waiting in group.waiting.values())


class QueueCopy:
    """The kinds that wait, by shard.

    versions: what `take` is told to get the changes of each shard since.

    home: the shard whose tasks go first among those of one block; the others follow by their
    numbers. away: shards whose server does not answer; nothing is taken there.
    """

    def __init__(self, view: View, shards: int = 1) -> None:
        self._view = view
        self.shards = shards
        self.home = 0
        self.away: set[int] = set()
        self.versions = ["0"] * shards
        self.kinds: list[dict[str, WaitingKind]] = [{} for _ in range(shards)]
        self._groups: dict[GroupKey, KindGroup] = {}
        self.bars = Bars()
        self._open: dict[KindGroup, None] = {}
        self._fresh: dict[KindGroup, None] = {}  # they were never compared with the partitions
        self.blocked = Blocked()

    @property
    def groups(self) -> Collection[KindGroup]:
        """The groups of which something waits."""
        return self._groups.values()

    def clear(self) -> None:
        """Forget everything; the next looks read all shards."""
        for shard in range(self.shards):
            self.clear_shard(shard)

    def clear_shard(self, shard: int) -> None:
        """Forget a shard; the next look reads all of it."""
        self.versions[shard] = "0"
        for text in list(self.kinds[shard]):
            self._forget(shard, text)

    def update(self, took: Took) -> None:
        """Take in the lines of kinds of a shard that have changed."""
        if took.anew:
            self.clear_shard(took.shard)
        self.versions[took.shard] = took.version
        self.away.discard(took.shard)
        for text, line in took.changes:
            self._set(took.shard, text, line)

    def _set(self, shard: int, text: str, line: str) -> None:
        try:
            now = KindLine.of(line) if line else None
            known = self.kinds[shard].get(text)
        except ValueError:
            return  # damaged: the leader writes it anew, with a new version
        if now is None:
            self._forget(shard, text)
        elif known is None:
            self._add(shard, text, now)
        else:
            known.count = now.count
            known.first = now.first
            known.last = now.last
            known.why = now.why
            if not now.why:
                self.blocked.on_unexplained(known.group)

    def _add(self, shard: int, text: str, line: KindLine) -> None:
        try:
            kind = Kind.of(text)
        except ValueError:
            return  # nobody can submit it: the leader repairs it
        group = self._group(kind)
        waiting = WaitingKind(kind, group, line.count, line.first, line.last, line.why, shard)
        self.kinds[shard][text] = group.waiting[shard, text] = waiting
        if not line.why:
            self.blocked.on_unexplained(group)

    def group_of(self, kind: Kind) -> KindGroup:
        """Return the group of a kind, also of one of which nothing waits any more."""
        knowers = self._view.knowers(kind.name)
        barred = self.bars.of(kind)
        needs = self._view.settled(kind.needs)
        return self._groups.get((needs, knowers, barred)) or KindGroup(
            parse_needs(needs), knowers, barred
        )

    def _group(self, kind: Kind) -> KindGroup:
        group = self.group_of(kind)
        if group.key not in self._groups:
            self._groups[group.key] = group
            self.block(group)
            self._fresh[group] = None
        return group

    def _forget(self, shard: int, text: str) -> None:
        gone = self.kinds[shard].pop(text, None)
        if gone is None:
            return
        group = gone.group
        del group.waiting[shard, text]
        if not group.waiting:
            del self._groups[group.key]
            self._open.pop(group, None)
            self._fresh.pop(group, None)
            self.blocked.discard(group)

    def forget_reasons(self, shard: int | None = None) -> None:
        """Forget which reasons the lines of a shard, or all, have: others wrote some, or they were
        not written.
        """
        for kinds in self.kinds if shard is None else [self.kinds[shard]]:
            for waiting in kinds.values():
                waiting.why = None
                if waiting.group in self.blocked:
                    self.blocked.on_unexplained(waiting.group)

    def set_bars(self, bars: Bars) -> bool:
        """Take in which nodes are barred for which kinds.

        Returns True if the kinds are to be grouped again.
        """
        before = self.bars
        self.bars = bars
        if not before and not bars:
            return False
        return any(
            before.of(one.kind) != bars.of(one.kind)
            for kinds in self.kinds
            for one in kinds.values()
        )

    def regroup(self) -> None:
        """Group all kinds again: nodes have changed, and with them which nodes know which name; or
        bookings have.
        """
        self._groups = {}
        self.blocked = Blocked()
        self._open.clear()
        self._fresh.clear()
        for shard, kinds in enumerate(self.kinds):
            for text, waiting in kinds.items():
                waiting.group = self._group(waiting.kind)
                waiting.group.waiting[shard, text] = waiting

    # -- seats -------------------------------------------------------------------------------------

    @property
    def any_open(self) -> bool:
        """True if some group may find a seat."""
        return bool(self._open or self._fresh)

    def open_kinds(self, changed: Collection[int], tried: Collection[KindGroup]) -> list[Entry]:
        """Return a heap of the kinds that may find a seat, in the order in which seats are given.

        changed: partitions that have changed; the blocked groups that may fit there now are opened,
        the oldest AT_ONCE of them. tried: groups that are left out.
        """
        self._reopen(changed, tried)
        found = (
            waiting
            for group in self._open
            if group not in tried
            for waiting in group.waiting.values()
        )
        heap = [
            self.entry(one, 0, number)
            for number, one in enumerate(found)
            if one.shard not in self.away
        ]
        heapq.heapify(heap)
        return heap

    def entry(self, waiting: WaitingKind, done: int, number: int) -> Entry:
        """Return where a kind stands in that order if `done` of its tasks have seats.

        With one shard the age decides.

        With several, those of one block go shard by shard, so that a round trip takes from few
        shards.
        """
        order = float(waiting.order(done))
        if self.shards == 1:
            return order, 0, order, number, waiting
        return order // BLOCK, (waiting.shard - self.home) % self.shards, order, number, waiting

    def ahead(self, waiting: WaitingKind, done: int, following: Entry) -> int:
        """Estimate how many tasks of a kind, from number `done` on, go before another kind; at
        least 1.
        """
        if following[-1].shard == waiting.shard:
            return waiting.before(following[2], done)
        block = max(following[0], waiting.order(done) // BLOCK + 1)
        return waiting.before(block * BLOCK - 1, done)

    def block(self, group: KindGroup) -> None:
        """Mark a group that found no seat: it is not tried again until a partition changes in which
        it may fit.
        """
        group.blocked = True
        self._open.pop(group, None)
        self.blocked.add(group)

    def _reopen(self, changed: Collection[int], tried: Collection[KindGroup]) -> None:
        """Open the oldest of the blocked groups that may fit into a changed partition, or that are
        new.
        """
        partitions = self._view.partitions
        found = self.blocked.fitting([partitions[p] for p in changed])
        if len(self._fresh) <= AT_ONCE:
            found += self._fresh
        else:
            likely = max(partitions, key=lambda partition: partition.free_count)
            some = dict.fromkeys(self.blocked.fitting([likely], list(self._fresh)))
            rest = [group for group in self._fresh if group not in some]
            self._fresh = some | dict.fromkeys(self.blocked.fitting(partitions, rest))
            found += self._fresh
        found = [group for group in dict.fromkeys(found) if group not in tried]
        if len(found) > AT_ONCE:
            found = heapq.nsmallest(AT_ONCE, found, key=first_of)
        for group in found:
            group.blocked = False
            self.blocked.discard(group)
            self._fresh.pop(group, None)
            self._open[group] = None

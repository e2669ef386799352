"""A scheduler's copy of the queue: which kinds of task wait, how many of each, and from which order on.

A group of kinds (kind_group.py) that finds no seat is blocked until a partition changes in which it may fit. So what
waits costs nothing while nothing changes.
"""

import heapq
from collections.abc import Collection
from typing import Final

from ..model.kind import Kind, KindLine
from ..model.needs import parse_resources
from ..model.replies import Took
from .blocked import Blocked
from .kind_group import KindGroup, WaitingKind
from .offers import Knowers
from .view import View

AT_ONCE: Final = 64
"""Groups that are opened at a time: one freed slot is not offered to ten thousand."""


def first_of(group: KindGroup) -> int:
    """Return the order of a group's first task."""
    return min(waiting.first for waiting in group.waiting.values())


class QueueCopy:
    """The kinds that wait. version: what `take` is told to get the changes since."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.version = "0"
        self.kinds: dict[str, WaitingKind] = {}
        self._groups: dict[tuple[str, Knowers], KindGroup] = {}
        self._open: dict[KindGroup, None] = {}
        self._fresh: dict[KindGroup, None] = {}  # they were never compared with the partitions
        self.blocked = Blocked()

    def clear(self) -> None:
        """Forget everything; the next look reads the whole queue."""
        self.version = "0"
        self.kinds.clear()
        self._groups.clear()
        self._open.clear()
        self._fresh.clear()
        self.blocked = Blocked()

    def update(self, took: Took) -> None:
        """Take in the lines of kinds that have changed."""
        if took.anew:
            self.clear()
        self.version = took.version
        for text, line in took.changes:
            self._set(text, line)

    def _set(self, text: str, line: str) -> None:
        try:
            now, known = KindLine.of(line) if line else None, self.kinds.get(text)
        except ValueError:
            return  # damaged: the leader writes it anew, with a new version
        if now is None:
            self._forget(text)
        elif known is None:
            self._add(text, now)
        else:
            known.count, known.first, known.last, known.why = now.count, now.first, now.last, now.why
            if not now.why:
                self.blocked.on_unexplained(known.group)

    def _add(self, text: str, line: KindLine) -> None:
        try:
            kind = Kind.of(text)
        except ValueError:
            return  # nobody can submit it: the leader repairs it
        group = self._group(kind)
        self.kinds[text] = group.waiting[text] = WaitingKind(kind, group, line.count, line.first, line.last, line.why)
        if not line.why:
            self.blocked.on_unexplained(group)

    def group_of(self, kind: Kind) -> KindGroup:
        """Return the group of a kind, also of one of which nothing waits any more."""
        knowers = self._view.knowers(kind.name)
        return self._groups.get((kind.needs, knowers)) or KindGroup(parse_resources(kind.needs), knowers)

    def _group(self, kind: Kind) -> KindGroup:
        knowers = self._view.knowers(kind.name)
        group = self._groups.get((kind.needs, knowers))
        if group is None:
            group = self._groups[kind.needs, knowers] = KindGroup(parse_resources(kind.needs), knowers)
            self.block(group)
            self._fresh[group] = None
        return group

    def _forget(self, text: str) -> None:
        gone = self.kinds.pop(text, None)
        if gone is None:
            return
        group = gone.group
        del group.waiting[text]
        if not group.waiting:
            del self._groups[group.needs.text, group.knowers]
            self._open.pop(group, None)
            self._fresh.pop(group, None)
            self.blocked.discard(group)

    def forget_reasons(self) -> None:
        """Forget which reasons the lines have: other schedulers have written some since, which no version tells."""
        for waiting in self.kinds.values():
            waiting.why = None
        for group in self.blocked:
            self.blocked.on_unexplained(group)

    def regroup(self) -> None:
        """Group all kinds again: nodes have changed, and with them which nodes know which name."""
        kinds = self.kinds
        self.kinds, self._groups, self.blocked = {}, {}, Blocked()
        self._open.clear()
        self._fresh.clear()
        for text, old in kinds.items():
            old.group = self._group(old.kind)
            self.kinds[text] = old.group.waiting[text] = old

    # -- seats -------------------------------------------------------------------------------------------------------

    @property
    def any_open(self) -> bool:
        """True if some group may find a seat."""
        return bool(self._open or self._fresh)

    def open_kinds(
        self, changed: Collection[int], tried: Collection[KindGroup]
    ) -> list[tuple[float, int, WaitingKind]]:
        """Return a heap of the kinds that may find a seat: (order of the first, a number that breaks ties, kind).

        changed: partitions that have changed; the blocked groups that may fit there now are opened, the oldest AT_ONCE
        of them. tried: groups that are left out.
        """
        self._reopen(changed, tried)
        found = (waiting for group in self._open if group not in tried for waiting in group.waiting.values())
        heap = [(float(waiting.first), number, waiting) for number, waiting in enumerate(found)]
        heapq.heapify(heap)
        return heap

    def block(self, group: KindGroup) -> None:
        """Mark a group that found no seat: it is not tried again until a partition changes in which it may fit."""
        group.blocked = True
        self._open.pop(group, None)
        self.blocked.add(group)

    def _reopen(self, changed: Collection[int], tried: Collection[KindGroup]) -> None:
        """Open the oldest of the blocked groups that may fit into a changed partition, or that are new."""
        partitions = self._view.partitions
        found = self.blocked.fitting([partitions[p] for p in changed])
        if self._fresh:
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

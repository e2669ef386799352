"""The large kinds that find no room; the leader's work books nodes for them."""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from ...model.apart import undeclared
from ...model.needs import Resources
from .kind_group import KindGroup, WaitingKind

MAX_LARGE_KINDS: Final = 32
"""Maximum number of large kinds, the oldest first."""


class LargeKind(NamedTuple):
    """A kind that smaller tasks may keep waiting.

    shards: where its tasks wait.
    first: the order of its first task.
    turn_numbers: the places of its tasks in the order of bookings, the oldest task first; the other
        tasks get no booking. None without tenants: the orders of all tasks decide.
    """

    kind: str
    shards: tuple[int, ...]
    first: int
    turn_numbers: tuple[int, ...] | None = None


class LeastAsked:
    """The least amount of each resource that tasks have lately asked for.

    Tasks count whether they waited long or not. keep_s: how long an amount counts after it was
    seen.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._seen_s: dict[tuple[str, int], float] = {}
        self._least: dict[str, int] = {}

    def see(self, groups: Iterable[KindGroup], now_s: float) -> None:
        """Take in groups that wait now, at `now_s` (monotonic)."""
        for group in groups:
            for name, amount in group.needs.amounts:
                if amount and not undeclared(name):
                    self._seen_s[name, amount] = now_s
        self._seen_s = {
            key: seen_s for key, seen_s in self._seen_s.items() if now_s - seen_s <= self._keep_s
        }
        self._least = {}
        for name, amount in self._seen_s:
            self._least[name] = min(amount, self._least.get(name, amount))

    def exceeded_by(self, needs: Resources) -> bool:
        """Return whether some tasks ask for less of a resource than these needs do."""
        return any(self._least.get(name, amount) < amount for name, amount in needs.amounts)

    def makes_large(self, needs: Resources) -> bool:
        """Return whether tasks of these needs are large.

        Smaller tasks could keep them waiting for ever.
        """
        return needs.slots > 1 or self.exceeded_by(needs)


def find_large(groups: Iterable[KindGroup], least: LeastAsked) -> tuple[LargeKind, ...]:
    """Return the large kinds among these groups, the oldest first.

    Tasks of several slots are large, and tasks that ask for more of a resource than other tasks do.
    A stream of smaller tasks could keep them waiting for ever. All other tasks get their turn when
    they are the oldest.
    """
    large = large_kinds(large_groups(groups, least))
    return tuple(heapq.nsmallest(MAX_LARGE_KINDS, large, key=lambda kind: kind.first))


def large_groups(groups: Iterable[KindGroup], least: LeastAsked) -> list[KindGroup]:
    """Return the groups whose tasks are large."""
    return [group for group in groups if least.makes_large(group.needs)]


def large_kinds(groups: Iterable[KindGroup]) -> list[LargeKind]:
    """Return the kinds of these groups."""
    by_text: dict[str, list[WaitingKind]] = {}
    for group in groups:
        for waiting in group.waiting.values():
            by_text.setdefault(waiting.kind.text, []).append(waiting)
    large = list[LargeKind]()
    for text, in_shards in by_text.items():
        shards = sorted(waiting.shard for waiting in in_shards)
        first = min(waiting.first for waiting in in_shards)
        large.append(LargeKind(text, tuple(shards), first))
    return large

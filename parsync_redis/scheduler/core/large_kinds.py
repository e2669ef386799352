"""The large kinds that find no room: the leader's scheduler tells the leader's work, which books
nodes for them.
"""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from ...model.apart import undeclared
from ...model.needs import Resources
from .kind_group import KindGroup, WaitingKind

MOST: Final = 32
"""So many kinds are told, the oldest first."""


class Large(NamedTuple):
    """A kind whose tasks need more than any node has free, the shards where they wait, and the
    order of the first.
    """

    kind: str
    shards: tuple[int, ...]
    first: int


class LeastAsked:
    """The amounts of each resource that tasks asked for lately, whether they waited long or not.

    keep_s: so long an amount counts after it was seen last.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._seen_s: dict[tuple[str, int], float] = {}
        self._least: dict[str, int] = {}

    def see(self, groups: Iterable[KindGroup], now_s: float) -> None:
        """Take in groups that wait now."""
        asked_now = (asked for group in groups for asked in group.needs.amounts)
        self._seen_s |= {
            asked: now_s for asked in asked_now if asked[1] and not undeclared(asked[0])
        }
        self._seen_s = {
            asked: at_s for asked, at_s in self._seen_s.items() if now_s - at_s <= self._keep_s
        }
        self._least = {}
        for name, amount in self._seen_s:
            self._least[name] = min(amount, self._least.get(name, amount))

    def exceeded_by(self, needs: Resources) -> bool:
        """Return whether some tasks ask for less of a resource than these needs do."""
        return any(self._least.get(name, amount) < amount for name, amount in needs.amounts)

    def makes_large(self, needs: Resources) -> bool:
        """Return whether tasks with these needs are large: smaller tasks could keep them waiting
        for ever.
        """
        return needs.slots > 1 or self.exceeded_by(needs)


def find_large(groups: Iterable[KindGroup], least: LeastAsked) -> tuple[Large, ...]:
    """Return the large kinds of some groups, the oldest first.

    Tasks of several slots are large, and those that ask for more of a resource than others do. A
    stream of smaller tasks could keep them waiting for ever. Other tasks get their turn as the
    oldest.
    """
    waits: dict[str, list[WaitingKind]] = {}
    for group in groups:
        if not least.makes_large(group.needs):
            continue
        for waiting in group.waiting.values():
            waits.setdefault(waiting.kind.text, []).append(waiting)
    large = (
        Large(kind, tuple(sorted(one.shard for one in shards)), min(one.first for one in shards))
        for kind, shards in waits.items()
    )
    return tuple(heapq.nsmallest(MOST, large, key=lambda one: one.first))

"""The large kinds that find no room: the leader's scheduler tells the leader's work, which books nodes for them."""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from .kind_group import KindGroup, WaitingKind

MOST: Final = 32
"""So many kinds are told, the oldest first."""


class Large(NamedTuple):
    """A kind whose tasks need slots or amounts that no node has free, and the order of its first task."""

    kind: str
    shard: int
    first: int


def find_large(groups: Iterable[KindGroup]) -> tuple[Large, ...]:
    """Return the kinds of some groups, the oldest first: each in the shard where its first task is."""
    first: dict[str, WaitingKind] = {}
    for group in groups:
        for waiting in group.waiting.values():
            other = first.get(waiting.kind.text)
            if other is None or waiting.first < other.first:
                first[waiting.kind.text] = waiting
    oldest = heapq.nsmallest(MOST, first.values(), key=lambda waiting: waiting.first)
    return tuple(Large(one.kind.text, one.shard, one.first) for one in oldest)

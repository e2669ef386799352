"""Read since when the oldest tasks wait, with a bounded number of requests."""

from collections.abc import Callable, Sequence
from typing import Final

from ...model.ids import readable
from ...model.kind import KindLine, split_kind
from ..store import Store

_LEVEL: Final = 10**12
"""An order is (9 - priority) * 10^12 + the number of the submission."""

MOST_MIXED: Final = 100
"""Kinds with tasks of several priorities whose first task of each priority is looked for: those
with most tasks.
"""

Line = tuple[int, str, KindLine]
"""The shard, the kind and the line of a kind."""


def read_oldest(
    store: Store, lines: Sequence[Line], group_of: Callable[[str], str]
) -> dict[str, int]:
    """Return by group of names since when (server time, ms) its task that was submitted first can
    be taken.

    group_of: the group of a task's name. A group whose task has just gone is left out. Raises
    ServerUnreachable.
    """
    firsts = {(shard, kind): [line.first] for shard, kind, line in lines}
    mixed = sorted((line for line in lines if _levels(line[2])), key=lambda line: -line[2].count)[
        :MOST_MIXED
    ]
    reads = [(shard, kind, level) for shard, kind, line in mixed for level in _levels(line)]
    pages = _pages(store, [(shard, kind, level * _LEVEL) for shard, kind, level in reads])
    for (shard, kind, _), page in zip(reads, pages, strict=True):
        firsts[shard, kind] += [int(order) for _, order in page]
    oldest: dict[str, tuple[int, int, int, str]] = {}
    for (shard, kind), orders in firsts.items():
        first = min(orders, key=lambda order: order % _LEVEL)
        found = (first % _LEVEL, first, shard, kind)
        group = group_of(split_kind(kind).name)
        oldest[group] = min(oldest.get(group, found), found)
    if not oldest:
        return {}
    pages = _pages(store, [(shard, kind, order) for _, order, shard, kind in oldest.values()])
    ids = {group: readable(page[0][0]) for group, page in zip(oldest, pages, strict=True) if page}
    records = store.records(ids.values(), extras=False)
    return {group: one.line.ready_ms for group, one in zip(ids, records, strict=True) if one.line}


def _levels(line: KindLine) -> range:
    """Return the lower priorities, as levels of the order, that a kind may have besides that of its
    first task.
    """
    return range(line.first // _LEVEL + 1, min(line.last // _LEVEL, 9) + 1)


def _pages(store: Store, reads: Sequence[tuple[int, str, int]]) -> list[list[tuple[bytes, float]]]:
    """Return the first task, (id, order), of each shard, kind and lowest order, within the priority
    of that order.

    Nothing where there is none, where the key is damaged, or where its server is away.
    """
    commands = []
    for shard, kind, order in reads:
        end = (order // _LEVEL + 1) * _LEVEL - 1
        commands.append(
            (
                "zrange",
                store.keys.pending(kind, shard),
                order,
                end,
                False,
                True,
                float,
                True,
                False,
                0,
                1,
            )
        )
    replies = store.pipe_each(commands) if commands else []
    return [[] if isinstance(reply, Exception) else reply for reply in replies]

"""Read since when the oldest tasks wait, with a bounded number of requests."""

from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Final

from ...model.ids import readable
from ...model.kind import KindLine, split_kind
from ..store import Store

_ORDERS_PER_PRIORITY: Final = 10**12
"""Number of orders of a priority: an order is (9 - priority) * 10^12 + the submission's number."""

MAX_MIXED_KINDS: Final = 100
"""Maximum number of kinds with several priorities whose first task of each priority is read.

The kinds with the most tasks are chosen.
"""

ShardLine = tuple[int, str, KindLine]
"""(shard, kind, line of the kind)"""


def read_oldest(
    store: Store, lines: Sequence[ShardLine], group_of: Callable[[str], str]
) -> dict[str, int]:
    """Return, by group, since when (server time, ms) its first submitted waiting task can be taken.

    group_of: returns the group of a task's name. A group whose task has just left the queue is
    missing. Raises ServerUnreachable.
    """
    firsts = {(shard, kind): [line.first] for shard, kind, line in lines}
    mixed = [line for line in lines if _levels(line[2])]
    mixed = nlargest(MAX_MIXED_KINDS, mixed, key=lambda shard_line: shard_line[2].count)
    reads = [(shard, kind, level) for shard, kind, line in mixed for level in _levels(line)]
    pages = _pages(
        store, [(shard, kind, level * _ORDERS_PER_PRIORITY) for shard, kind, level in reads]
    )
    for (shard, kind, _), page in zip(reads, pages, strict=True):
        firsts[shard, kind] += [int(order) for _, order in page]
    # by group: (submission's number, order, shard, kind)
    oldest: dict[str, tuple[int, int, int, str]] = {}
    for (shard, kind), orders in firsts.items():
        first = min(orders, key=lambda order: order % _ORDERS_PER_PRIORITY)
        candidate = (first % _ORDERS_PER_PRIORITY, first, shard, kind)
        group = group_of(split_kind(kind).name)
        oldest[group] = min(oldest.get(group, candidate), candidate)
    if not oldest:
        return {}
    pages = _pages(store, [(shard, kind, order) for _, order, shard, kind in oldest.values()])
    ids = {group: readable(page[0][0]) for group, page in zip(oldest, pages, strict=True) if page}
    records = store.records(ids.values(), extras=False)
    return {
        group: record.line.ready_ms
        for group, record in zip(ids, records, strict=True)
        if record.line
    }


def _levels(line: KindLine) -> range:
    """Return the levels of priority that later tasks of a kind may have.

    A level is 9 - priority. The first task's own level is left out; the bound comes from the kind's
    last order.
    """
    return range(
        line.first // _ORDERS_PER_PRIORITY + 1, min(line.last // _ORDERS_PER_PRIORITY, 9) + 1
    )


def _pages(store: Store, reads: Sequence[tuple[int, str, int]]) -> list[list[tuple[bytes, float]]]:
    """Return the first task of each (shard, kind, lowest order), as a list [(id, order)].

    Only a task with the priority of the lowest order counts. The list is empty if there is no such
    task, if the key is damaged, or if its server is away.
    """
    commands = []
    for shard, kind, order in reads:
        end = (order // _ORDERS_PER_PRIORITY + 1) * _ORDERS_PER_PRIORITY - 1
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

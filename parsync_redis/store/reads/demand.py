"""Read which tasks wait, by kind, and since when: the demand that the nodes do not meet now."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from ...model.ids import readable, shown
from ...model.kind import Kind, KindLine
from ...model.order import ORDERS_OF_PRIORITY
from ...model.views import KindView
from ..store import Store

log = logging.getLogger("parsync.store")

_DAMAGED_SHOWN: Final = 3
"""Number of damaged lines that one message of the log names."""

LOSS_FIELDS: Final = ("lost", "died")
"""Fields of `meta` that count lost attempts and tasks that died."""

MAX_MIXED_KINDS: Final = 100
"""Maximum number of kinds with several priorities whose first task of each priority is read.

The kinds with the most tasks are chosen.
"""

ShardLine = tuple[int, str, KindLine]
"""(shard, kind, line of the kind)"""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of tasks by state, and two counters that only grow.

    later: tasks that are not due yet.
    taken: tasks that a scheduler took and that are not placed yet.
    placed: tasks that are placed or run.
    dead: tasks that are dead.
    lost: attempts that were lost.
    died: tasks that died, also those that were requeued since.
    """

    later: int
    taken: int
    placed: int
    dead: int
    lost: int
    died: int


def count_tasks(store: Store) -> Counts:
    """Count the tasks that are in no line of a kind, in the shards that answer.

    Raises ServerUnreachable.
    """
    reads = [("zcard", "later"), ("hlen", "taken"), ("hlen", "running"), ("zcard", "dead")]
    queue = store.keys.queue
    groups = {
        q: [
            *((command, queue(kind, q)) for command, kind in reads),
            ("hmget", queue("meta", q), LOSS_FIELDS),
        ]
        for q in range(store.keys.shards)
    }
    replies = store.pipe_live("shard", groups).values()
    numbers = [
        [*counts, *(int(text) if text and text.isdigit() else 0 for text in texts)]
        for *counts, texts in replies
    ]
    return Counts(*map(sum, zip(*numbers, strict=True)))


def read_demand(store: Store) -> list[KindView]:
    """Return the kinds of which tasks wait, in the order of their first tasks.

    Unreadable lines are left out, and a warning in the log names some of them; the leader repairs
    the lines. Raises ServerUnreachable.
    """
    damaged: list[str] = []
    return demand_of(read_lines(store, damaged), damaged)


def demand_of(lines: Iterable[ShardLine], damaged: list[str]) -> list[KindView]:
    """Return what `read_demand` returns, from lines that were read.

    damaged: the kinds whose line could not be read.
    """
    views = []
    for text, waits in sorted(_gather(lines).items(), key=lambda item: item[1].first):
        try:
            kind = Kind.of(text)
        except ValueError:
            damaged.insert(0, text)  # First, so that the log names kinds that no client submits.
            continue
        views.append(
            KindView(
                text, kind.name, kind.needs, kind.strategy, waits.count, waits.priority, waits.why
            )
        )
    if damaged:
        named = ", ".join(map(shown, damaged[:_DAMAGED_SHOWN])) + (
            ", ..." if len(damaged) > _DAMAGED_SHOWN else ""
        )
        log.warning(
            "lines of kinds that cannot be read are left out: %d, of %s", len(damaged), named
        )
    return views


def read_lines(store: Store, damaged: list[str] | None = None) -> Iterator[ShardLine]:
    """Yield (shard, kind, line) of each kind of which tasks wait.

    damaged: the list to which kinds are added whose line cannot be read.
    """
    reads = {shard: [("hgetall", key)] for shard, key in enumerate(store.keys.queues("kinds"))}
    for shard, (lines,) in store.pipe_live("shard", reads).items():
        for kind, line in lines.items():
            try:
                yield shard, readable(kind), KindLine.of(readable(line))
            except ValueError:
                if damaged is not None:
                    damaged.append(readable(kind))


def read_kinds(store: Store) -> dict[str, KindLine]:
    """Return the line of each kind of which tasks wait, all shards together."""
    return _gather(read_lines(store))


def _gather(lines: Iterable[ShardLine]) -> dict[str, KindLine]:
    lines_by_kind: dict[str, KindLine] = {}
    for _, kind, line in lines:
        lines_by_kind[kind] = (
            line.with_shard(lines_by_kind[kind]) if kind in lines_by_kind else line
        )
    return lines_by_kind


def read_oldest(
    store: Store, lines: Sequence[ShardLine], group_of: Callable[[str], str]
) -> dict[str, int]:
    """Return, by group, since when (server time, ms) a waiting task of it can be taken.

    It is the task that should start first, whatever its priority. group_of: returns the group of a
    kind by its text. A group whose task has just left the queue is missing. Raises
    ServerUnreachable.
    """
    firsts = {(shard, kind): [line.first] for shard, kind, line in lines}
    mixed = [line for line in lines if _levels(line[2])]
    mixed = nlargest(MAX_MIXED_KINDS, mixed, key=lambda shard_line: shard_line[2].count)
    reads = [(shard, kind, level) for shard, kind, line in mixed for level in _levels(line)]
    pages = _pages(
        store, [(shard, kind, level * ORDERS_OF_PRIORITY) for shard, kind, level in reads]
    )
    for (shard, kind, _), page in zip(reads, pages, strict=True):
        firsts[shard, kind] += [int(order) for _, order in page]
    # by group: (the time by which the task should start, order, shard, kind)
    oldest: dict[str, tuple[int, int, int, str]] = {}
    for (shard, kind), orders in firsts.items():
        first = min(orders, key=lambda order: order % ORDERS_OF_PRIORITY)
        candidate = (first % ORDERS_OF_PRIORITY, first, shard, kind)
        group = group_of(kind)
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
    return range(line.first // ORDERS_OF_PRIORITY + 1, min(line.last // ORDERS_OF_PRIORITY, 9) + 1)


def _pages(store: Store, reads: Sequence[tuple[int, str, int]]) -> list[list[tuple[bytes, float]]]:
    """Return the first task of each (shard, kind, lowest order), as a list [(id, order)].

    Only a task with the priority of the lowest order counts. The list is empty if there is no such
    task, if the key is damaged, or if its server is away.
    """
    commands = []
    for shard, kind, order in reads:
        end = (order // ORDERS_OF_PRIORITY + 1) * ORDERS_OF_PRIORITY - 1
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

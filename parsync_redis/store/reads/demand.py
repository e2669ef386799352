"""Read which tasks wait, by kind: the demand that the nodes do not meet now."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ...model.ids import readable, shown
from ...model.kind import Kind, KindLine
from ...model.views import KindView
from ..store import Store

log = logging.getLogger("parsync.store")

_DAMAGED_SHOWN: Final = 3
"""Number of damaged lines that one message of the log names."""

LOSS_FIELDS: Final = ("lost", "died")
"""Fields of `meta` that count lost attempts and tasks that died."""


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


def demand_of(lines: Iterable[tuple[int, str, KindLine]], damaged: list[str]) -> list[KindView]:
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


def read_lines(
    store: Store, damaged: list[str] | None = None
) -> Iterator[tuple[int, str, KindLine]]:
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


def read_kinds(store: Store, damaged: list[str] | None = None) -> dict[str, KindLine]:
    """Return the line of each kind of which tasks wait, all shards together.

    damaged: the list to which kinds are added whose line cannot be read.
    """
    return _gather(read_lines(store, damaged))


def _gather(lines: Iterable[tuple[int, str, KindLine]]) -> dict[str, KindLine]:
    lines_by_kind: dict[str, KindLine] = {}
    for _, kind, line in lines:
        lines_by_kind[kind] = (
            line.with_shard(lines_by_kind[kind]) if kind in lines_by_kind else line
        )
    return lines_by_kind

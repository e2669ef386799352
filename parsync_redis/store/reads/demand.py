"""Read what waits, by kind: the demand that the nodes do not meet now."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ...model.ids import readable, shown
from ...model.kind import Kind, KindLine
from ...model.views import KindView
from ..store import Store

log = logging.getLogger("parsync.store")

_SHOWN: Final = 3

LOSSES: Final = ("lost", "died")
"""Counts in `meta`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tasks: not due yet, taken, placed or running, dead.

    Counts of lost attempts, and of tasks that died.

    The last two only grow.
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
            ("hmget", queue("meta", q), LOSSES),
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

    Raises ServerUnreachable.

    Lines that cannot be read are left out, and a warning in the log names some: the leader repairs
    them.
    """
    damaged: list[str] = []
    return demand_of(read_lines(store, damaged), damaged)


def demand_of(lines: Iterable[tuple[int, str, KindLine]], damaged: list[str]) -> list[KindView]:
    """Return what `read_demand` returns, by lines that were read.

    damaged: those that could not be read.
    """
    views = []
    for text, waits in sorted(_gather(lines).items(), key=lambda item: item[1].first):
        try:
            kind = Kind.of(text)
        except ValueError:
            damaged.insert(0, text)  # the log names kinds first that nobody could submit
            continue
        views.append(
            KindView(
                text, kind.name, kind.needs, kind.strategy, waits.count, waits.priority, waits.why
            )
        )
    if damaged:
        named = ", ".join(map(shown, damaged[:_SHOWN])) + (", ..." if len(damaged) > _SHOWN else "")
        log.warning(
            "lines of kinds that cannot be read are left out: %d, of %s", len(damaged), named
        )
    return views


def read_lines(
    store: Store, damaged: list[str] | None = None
) -> Iterator[tuple[int, str, KindLine]]:
    """Yield the line of each kind of which tasks wait in a shard; `damaged` takes the kinds whose
    line is damaged.
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
    """Return the line of each kind of which tasks wait, of all shards together; `damaged` as for
    read_lines.
    """
    return _gather(read_lines(store, damaged))


def _gather(lines: Iterable[tuple[int, str, KindLine]]) -> dict[str, KindLine]:
    found: dict[str, KindLine] = {}
    for _, kind, line in lines:
        found[kind] = line.with_shard(found[kind]) if kind in found else line
    return found

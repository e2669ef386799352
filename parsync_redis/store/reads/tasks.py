"""List tasks for people, from the keys of their states."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.status import TaskStatus
from ...model.task import FINAL, TaskState
from ..store import Store
from .demand import read_lines

_SCAN_STEPS: Final = 2000
_SCAN_COUNT: Final = 1000
_PAGE: Final = 10_000
"""Ids of an index that are read at a time."""

_KINDS: Final = 100
"""Kinds whose first tasks are read at a time."""

GENERATIONS: Final = ("ended", "ended_1", "ended_2")
"""Keys of the tasks that have ended, the newest first."""

ANY: Final = frozenset(TaskState)
HOLDING: Final = frozenset((TaskState.PLACED, TaskState.RUNNING))
UNENDED: Final = HOLDING | {TaskState.WAITING}


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """Tasks, and why the answer is only a part; '' if it is whole."""

    tasks: Sequence[TaskStatus]
    part: str = ""


def list_tasks(store: Store, states: Collection[TaskState], limit: int) -> list[TaskStatus]:
    """Return up to `limit` tasks in any of these states: running, placed, waiting, then final ones.

    The dead are listed the latest first; of each generation of those that have ended, 2 million are
    looked at. Raises ServerUnreachable.
    """
    return list(list_some(store, states, limit, None).tasks)


def list_some(
    store: Store, states: Collection[TaskState], limit: int, most_looked: int | None
) -> FoundTasks:
    """Return what `list_tasks` returns, and look at about `most_looked` tasks at most.

    Raises ServerUnreachable.
    """
    found: list[TaskStatus] = []
    seen: set[str] = set()
    for ids in _ids(store, states, limit):
        fresh = [id for id in dict.fromkeys(ids) if id not in seen]
        seen.update(fresh)
        for at in range(0, len(fresh), MAX_BATCH):
            some = store.statuses(fresh[at : at + MAX_BATCH])
            found += [
                task for task in some if task.state is not TaskState.GONE and task.state in states
            ]
            if len(found) >= limit:
                return FoundTasks(found[:limit])
        if most_looked is not None and len(seen) >= most_looked:
            return FoundTasks(found, f"{len(seen):,} tasks were looked at")
    return FoundTasks(found)


def _ids(store: Store, states: Collection[TaskState], limit: int) -> Iterator[list[str]]:
    """Yield ids in batches, from the keys of these states."""
    queues = store.keys.queues
    if TaskState.RUNNING in states or TaskState.PLACED in states:
        yield from _scan(store, queues("running"))
    if TaskState.WAITING in states:
        yield from _scan(store, queues("taken"))
        yield waiting_ids(store, limit)
        yield later_ids(store, limit)
    if TaskState.DEAD in states:
        yield [id for _, id in latest_dead(store, limit)]
    if FINAL & set(states):
        for generation in GENERATIONS:
            yield from _scan(store, queues(generation))


def later_ids(store: Store, limit: int) -> list[str]:
    """Return the ids of the first tasks that are not due yet, the next to be due in front."""
    firsts = [_first(store, key, limit) for key in store.keys.queues("later")]
    return [id for _, id in sorted(chain.from_iterable(firsts))]


def latest_dead(store: Store, limit: int) -> list[tuple[float, str]]:
    """Return when tasks died (ms), and their ids, the latest first; 10,000 of each
    shard at most.
    """
    pages = store.pipe(
        [("zrange", key, -limit, -1, False, True) for key in store.keys.queues("dead")]
    )
    return sorted(chain.from_iterable(map(_pairs, pages)), reverse=True)


def waiting_ids(store: Store, limit: int, name: str = "*") -> list[str]:
    """Return the ids of the first tasks of all kinds whose name matches, in their order."""
    lines = read_lines(store)
    kinds = sorted(
        (at.first, shard, kind)
        for shard, kind, at in lines
        if fnmatchcase(kind.partition(" ")[0], name)
    )
    found: list[tuple[float, str]] = []
    for at in range(0, len(kinds), _KINDS):
        if len(found) == limit and found[-1][0] < kinds[at][0]:
            break  # all of the others come later
        keys = [store.keys.pending(kind, shard) for _, shard, kind in kinds[at : at + _KINDS]]
        if limit > _PAGE:
            firsts = [_first(store, key, limit) for key in keys]
        else:
            firsts = [
                _pairs(page)
                for page in store.pipe([("zrange", key, 0, limit - 1, False, True) for key in keys])
            ]
        found = sorted({*found, *chain.from_iterable(firsts)})[:limit]
    return [id for _, id in found]


def _pairs(page: Sequence[tuple[bytes, float]]) -> list[tuple[float, str]]:
    return [(order, readable(id)) for id, order in page]


def _first(store: Store, key: str, limit: int) -> list[tuple[float, str]]:
    """Return the first of an ordered index, (order, id).

    More than one page is read by rank from the end.

    While this reads, schedulers remove ids from the front. That does not change ranks counted from
    the end, so no id is skipped. An id that is added at the end meanwhile may appear twice, and is
    dropped once.
    """

    def page(start: int, end: int) -> list[tuple[bytes, float]]:
        return list(store.pipe([("zrange", key, start, end, False, True)])[0])

    if limit <= _PAGE:
        pages = [page(0, limit - 1)]
    else:
        pages = [page(-_PAGE, -1)]
        while len(pages[-1]) == _PAGE:
            end = -len(pages) * _PAGE
            pages.append(page(end - _PAGE, end - 1))
    return _pairs(list(dict.fromkeys(chain.from_iterable(reversed(pages)))))[:limit]


def _scan(store: Store, keys: Sequence[str]) -> Iterator[list[str]]:
    """Yield the fields of some hashes in pages."""
    for key in keys:
        cursor: Any = 0
        for _ in range(_SCAN_STEPS):
            cursor, fields = store.pipe([("hscan", key, cursor, None, _SCAN_COUNT)])[0]
            yield [readable(field) for field in fields]
            if not int(cursor):
                break

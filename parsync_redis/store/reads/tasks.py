"""List tasks for people, from the keys of their states."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final

from ...model.ids import readable
from ...model.kind import split_kind
from ...model.limits import MAX_BATCH
from ...model.status import TaskStatus
from ...model.task import FINAL, TaskState
from ..store import Store
from .demand import read_lines

_SCAN_STEPS: Final = 2000
_SCAN_COUNT: Final = 1000
_IDS_PER_READ: Final = 10_000
"""Ids of an index that are read at a time."""

_KINDS_PER_READ: Final = 100
"""Kinds whose first tasks are read at a time."""

GENERATIONS: Final = ("ended", "ended_1", "ended_2")
"""Keys of the ended tasks, the newest generation first."""

ANY: Final = frozenset(TaskState)
HOLDING: Final = frozenset((TaskState.PLACED, TaskState.RUNNING))
UNENDED: Final = HOLDING | {TaskState.WAITING}


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """The tasks that were found.

    part: why the answer is only a part, '' for a whole answer.
    """

    tasks: Sequence[TaskStatus]
    part: str = ""


def list_tasks(store: Store, states: Collection[TaskState], limit: int) -> list[TaskStatus]:
    """Return up to `limit` tasks in any of these states.

    Running and placed tasks come first, then waiting tasks, dead tasks and other ended tasks. Dead
    tasks are sorted, the latest first. At most 2 million tasks of each generation of ended tasks
    are read. Raises ServerUnreachable.
    """
    return list(list_bounded(store, states, limit, None).tasks)


def list_bounded(
    store: Store, states: Collection[TaskState], limit: int, most_looked: int | None
) -> FoundTasks:
    """Return what `list_tasks` returns, after about `most_looked` tasks at most.

    most_looked: None for no bound. Raises ServerUnreachable.
    """
    tasks: list[TaskStatus] = []
    ids_seen: set[str] = set()
    for ids in _ids(store, states, limit):
        fresh = [id for id in dict.fromkeys(ids) if id not in ids_seen]
        ids_seen.update(fresh)
        for start in range(0, len(fresh), MAX_BATCH):
            statuses = store.statuses(fresh[start : start + MAX_BATCH])
            tasks += [
                task
                for task in statuses
                if task.state is not TaskState.GONE and task.state in states
            ]
            if len(tasks) >= limit:
                return FoundTasks(tasks[:limit])
        if most_looked is not None and len(ids_seen) >= most_looked:
            return FoundTasks(tasks, f"{len(ids_seen):,} tasks were looked at")
    return FoundTasks(tasks)


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
    """Return the ids of up to `limit` tasks of each shard that are not due yet, by due time."""
    firsts = [_first(store, key, limit) for key in store.keys.queues("later")]
    return [id for _, id in sorted(chain.from_iterable(firsts))]


def latest_dead(store: Store, limit: int) -> list[tuple[float, str]]:
    """Return (time of death in ms, id) of up to `limit` tasks of each shard, the latest first."""
    pages = store.pipe(
        [("zrange", key, -limit, -1, False, True) for key in store.keys.queues("dead")]
    )
    return sorted(chain.from_iterable(map(_pairs, pages)), reverse=True)


def waiting_ids(
    store: Store, limit: int, name: str = "*", accounts: Collection[str] = ()
) -> list[str]:
    """Return the ids of the first tasks of some kinds, in queue order.

    name: a pattern of the names. accounts: to which the tasks must count.
    """
    kinds = sorted(
        (line.first, shard, kind)
        for shard, kind, line in read_lines(store)
        if fnmatchcase(kind.partition(" ")[0], name) and counts_to(kind, accounts)
    )
    first_ids: list[tuple[float, str]] = []
    for start in range(0, len(kinds), _KINDS_PER_READ):
        batch = kinds[start : start + _KINDS_PER_READ]
        if len(first_ids) == limit and first_ids[-1][0] < batch[0][0]:
            break  # The tasks of all further kinds come later.
        keys = [store.keys.pending(kind, shard) for _, shard, kind in batch]
        if limit > _IDS_PER_READ:
            firsts = [_first(store, key, limit) for key in keys]
        else:
            pages = store.pipe([("zrange", key, 0, limit - 1, False, True) for key in keys])
            firsts = [_pairs(page) for page in pages]
        first_ids = sorted({*first_ids, *chain.from_iterable(firsts)})[:limit]
    return [id for _, id in first_ids]


def counts_to(kind: str, accounts: Collection[str]) -> bool:
    """Return whether tasks of a kind count to each of these accounts."""
    return not accounts or set(accounts) <= {account.name for account in split_kind(kind).accounts}


def _pairs(page: Sequence[tuple[bytes, float]]) -> list[tuple[float, str]]:
    return [(order, readable(id)) for id, order in page]


def _first(store: Store, key: str, limit: int) -> list[tuple[float, str]]:
    """Return the first `limit` entries of an ordered index, (order, id).

    Several pages are read by rank from the end. While this reads, schedulers remove ids from the
    front, which does not change ranks counted from the end. So no id is skipped. An id that is
    added at the end meanwhile may appear twice, and is returned once.
    """

    def page(start: int, end: int) -> list[tuple[bytes, float]]:
        return list(store.pipe([("zrange", key, start, end, False, True)])[0])

    if limit <= _IDS_PER_READ:
        pages = [page(0, limit - 1)]
    else:
        pages = [page(-_IDS_PER_READ, -1)]
        while len(pages[-1]) == _IDS_PER_READ:
            end = -len(pages) * _IDS_PER_READ
            pages.append(page(end - _IDS_PER_READ, end - 1))
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

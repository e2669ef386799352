"""Lists tasks for people: by their indexes while under way, by a bounded scan of records once they are final."""

import logging
from collections.abc import Iterator
from typing import Any, Final

from ..errors import AccessDenied
from ..model.ids import readable
from ..model.task import FINAL, TaskState, TaskStatus
from .store import Store
from .views import pipe

log = logging.getLogger("parsync.store")

_SCAN_STEPS: Final = 2000
_SCAN_COUNT: Final = 1000


def list_tasks(store: Store, state: TaskState | None, limit: int) -> list[TaskStatus]:
    """Up to `limit` tasks, of one state or of any: those under way first (running, placed, taken, pending), then final.

    The dead are listed, the latest first; other final records are found by SCAN, which stops after 2 million keys of
    the server. Raises ServerUnreachable.
    """
    found: list[TaskStatus] = []
    seen: set[str] = set()
    for ids in _ids(store, state, limit):
        fresh = [id for id in dict.fromkeys(ids) if id not in seen]
        seen.update(fresh)
        found += [
            task
            for task in (store.statuses(fresh) if fresh else ())
            if task.state is not TaskState.GONE and state in (None, task.state)
        ]
        if len(found) >= limit:
            break
    return found[:limit]


def _ids(store: Store, state: TaskState | None, limit: int) -> Iterator[list[str]]:
    """Ids in batches, from the indexes in which tasks of that state stand."""
    keys = store.keys
    if state in (None, TaskState.RUNNING, TaskState.PLACED):
        yield from _scan(store, "hscan", keys.queue("placed"))
    if state in (None, TaskState.TAKEN):
        yield from _scan(store, "hscan", keys.queue("taken"))
    if state in (None, TaskState.PENDING):
        for kind in ("pending", "later"):
            yield [readable(id) for id in pipe(store, [("zrange", keys.queue(kind), 0, limit - 1)])[0]]
    if state in (None, TaskState.DEAD):
        yield [readable(id) for id in reversed(pipe(store, [("zrange", keys.queue("dead"), -limit, -1)])[0])]
    if state is None or state in FINAL - {TaskState.DEAD}:
        try:
            for names in _scan(store, "scan", None):
                yield [name.removeprefix(keys.task_prefix) for name in names]
        except AccessDenied:
            if state is not None:
                raise
            log.warning("final tasks are not listed: this login may not SCAN (parsync acl --scan)")


def _scan(store: Store, command: str, key: str | None) -> Iterator[list[str]]:
    cursor: Any = 0
    for _ in range(_SCAN_STEPS):
        if key is None:
            call: tuple[Any, ...] = (command, cursor, store.keys.task_prefix + "*", _SCAN_COUNT)
        else:
            call = (command, key, cursor, None, _SCAN_COUNT)
        cursor, names = pipe(store, [call])[0]
        yield [readable(name) for name in names]
        if not int(cursor):
            return

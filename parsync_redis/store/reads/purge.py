"""Purge tasks: cancel those that wait, delete the records of those that have ended."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from ...errors import InvalidInput
from ...model.ids import encode_id, is_id, shown
from ...model.limits import MAX_BATCH
from ...model.status import TaskStatus
from ...model.task import FINAL, TaskState
from ..store import Store
from .cancel import Selection, cancel_tasks, find_selected
from .tasks import list_tasks

MOST: Final = 1_000_000
"""So many tasks are purged at a time."""

PURGED: Final = (TaskState.WAITING.value, *sorted(state.value for state in FINAL))
"""States that can be purged. A task that is placed or runs is cancelled by its id."""


def find_purgeable(
    store: Store,
    state: str = TaskState.WAITING,
    name: str = "*",
    older_than_s: float = 0.0,
    known: Collection[str] | None = None,
) -> list[TaskStatus]:
    """Return the tasks in this state whose name matches and that were submitted, or have ended, so
    long ago.

    known: only these names. Raises InvalidInput for a state that cannot be purged, and
    ServerUnreachable.
    """
    if state not in PURGED:
        raise InvalidInput(
            f"state={shown(state)} cannot be purged: it must be one of {', '.join(PURGED)}"
        )
    found = (
        _waiting(store, name)
        if state == TaskState.WAITING
        else list_tasks(store, {TaskState(state)}, MOST)
    )
    step = "submitted" if state == TaskState.WAITING else "finished"
    latest_ms = server_ms(store) - older_than_s * 1000
    return [
        task
        for task in found
        if is_id(task.id)  # what no script has written may be there as well
        and fnmatchcase(task.name, name)
        and (known is None or task.name in known)
        and (not older_than_s or (task.times.get(step) or 0) <= latest_ms)
    ]


def _waiting(store: Store, name: str) -> list[TaskStatus]:
    ids = find_selected(store, Selection(name=name))
    found = [
        task
        for at in range(0, len(ids), MAX_BATCH)
        for task in store.statuses(ids[at : at + MAX_BATCH])
    ]
    return [task for task in found if task.state is TaskState.WAITING]


def purge_tasks(store: Store, tasks: Sequence[TaskStatus]) -> int:
    """Purge tasks that `find_purgeable` found.

    Returns how many; tasks in another state by now stay as they are.
    """
    done = 0
    for state in dict.fromkeys(task.state for task in tasks):
        ids = [encode_id(task.id) for task in tasks if task.state == state]
        if state == TaskState.WAITING:
            done += sum(
                word == "cancelled"
                for word, _ in cancel_tasks(store, ids, "purged", TaskState.WAITING)
            )
            continue
        for at in range(0, len(ids), MAX_BATCH):
            done += store.run(store.commands.purge(state, ids[at : at + MAX_BATCH])).count("purged")
    return done


def server_ms(store: Store) -> int:
    """Return the server's time in ms, by INFO, which every login may ask."""
    info: Any = store.pipe([("info", "server")])[0]
    return int(info.get("server_time_usec", 0)) // 1000

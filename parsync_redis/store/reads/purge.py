"""Purge tasks: cancel waiting tasks, delete the records of ended tasks."""

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

MAX_PURGED: Final = 1_000_000
"""Maximum number of tasks that are purged at a time."""

PURGEABLE_STATES: Final = (TaskState.WAITING.value, *sorted(state.value for state in FINAL))
"""States that can be purged. A placed or running task is cancelled by its id instead."""


def find_purgeable(
    store: Store,
    state: str = TaskState.WAITING,
    name: str = "*",
    older_than_s: float = 0.0,
    allowed_names: Collection[str] | None = None,
) -> list[TaskStatus]:
    """Return the tasks in a state, of a name and an age.

    name: a pattern.
    older_than_s: seconds since the task was submitted or, in a final state, has ended.
    allowed_names: only these names, None for all.

    Raises InvalidInput for a state that cannot be purged, and ServerUnreachable.
    """
    if state not in PURGEABLE_STATES:
        raise InvalidInput(
            f"state={shown(state)} cannot be purged: it must be one of "
            f"{', '.join(PURGEABLE_STATES)}"
        )
    tasks = (
        _waiting(store, name)
        if state == TaskState.WAITING
        else list_tasks(store, {TaskState(state)}, MAX_PURGED)
    )
    step = "submitted" if state == TaskState.WAITING else "finished"
    latest_ms = server_ms(store) - older_than_s * 1000
    return [
        task
        for task in tasks
        if is_id(task.id)  # A key may also have entries that no script has written.
        and fnmatchcase(task.name, name)
        and (allowed_names is None or task.name in allowed_names)
        and (not older_than_s or (task.times.get(step) or 0) <= latest_ms)
    ]


def _waiting(store: Store, name: str) -> list[TaskStatus]:
    ids = find_selected(store, Selection(name=name))
    tasks = [
        task
        for start in range(0, len(ids), MAX_BATCH)
        for task in store.statuses(ids[start : start + MAX_BATCH])
    ]
    return [task for task in tasks if task.state is TaskState.WAITING]


def purge_tasks(store: Store, tasks: Sequence[TaskStatus]) -> int:
    """Purge tasks that `find_purgeable` returned; return the number of purged tasks.

    A task that has left its state meanwhile stays as it is.
    """
    done = 0
    for state in dict.fromkeys(task.state for task in tasks):
        ids = [encode_id(task.id) for task in tasks if task.state == state]
        if state == TaskState.WAITING:
            answers = cancel_tasks(store, ids, "purged", TaskState.WAITING)
            done += sum(word == "cancelled" for word, _ in answers)
            continue
        for start in range(0, len(ids), MAX_BATCH):
            done += store.run(store.commands.purge(state, ids[start : start + MAX_BATCH])).count(
                "purged"
            )
    return done


def server_ms(store: Store) -> int:
    """Return the server's time in ms, by INFO, which every login may ask for."""
    info: Any = store.pipe([("info", "server")])[0]
    return int(info.get("server_time_usec", 0)) // 1000

"""Cancel many tasks, by their ids or all of a selection, and purge tasks.

A purge cancels waiting tasks, and deletes the records of ended tasks.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from ...errors import InvalidInput
from ...model.ids import encode_id, is_id, readable, shown
from ...model.kind import Kind
from ...model.limits import MAX_BATCH
from ...model.status import TaskStatus
from ...model.task import FINAL, TaskState, state_word
from ..store import Store
from .tasks import list_tasks

CALLS_PER_ROUND_TRIP: Final = 4
"""Calls that are sent together, so that the server always has a next call to execute."""

_MEMBERS_PER_SCAN: Final = 1000
"""Members of a set that are asked for at a time."""

_KINDS_PER_SCAN: Final = 100
"""Kinds whose tasks are read together."""

_HOW_BY_STATE: Final = {"waiting": "waiting", "placed": "placed", "running": "SIGTERM"}
"""The states that a selection may have, and `how` of cancel for tasks in such a state."""

MAX_PURGED: Final = 1_000_000
"""Maximum number of tasks that are purged at a time."""

PURGEABLE_STATES: Final = (TaskState.WAITING.value, *sorted(state.value for state in FINAL))
"""States that can be purged. A placed or running task is cancelled by its id instead."""


def cancel_tasks(
    store: Store, ids: Sequence[str], why: str = "cancelled", how: str = "SIGTERM"
) -> list[tuple[str, str]]:
    """Cancel any number of tasks by encoded id. Returns per task what `commands.cancel` does."""
    calls = [
        store.commands.cancel(ids[start : start + MAX_BATCH], why, how)
        for start in range(0, len(ids), MAX_BATCH)
    ]
    answers: list[tuple[str, str]] = []
    for start in range(0, len(calls), CALLS_PER_ROUND_TRIP):
        for batch in store.run_all(calls[start : start + CALLS_PER_ROUND_TRIP]):
            answers += batch
    return answers


def cancel_words(answers: Sequence[tuple[str, str]]) -> list[str]:
    """Return a word per task, for people: cancelled, asked, or the state of the task."""
    return [state_word(state) if word == "none" else word for word, state in answers]


@dataclass(frozen=True, slots=True)
class Selection:
    """Tasks in a state (waiting, placed or running), of names that match a pattern, of a kind.

    kind: as `parsync kinds` shows it, None for all kinds.
    """

    state: str = TaskState.WAITING
    name: str = "*"
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.state not in _HOW_BY_STATE:
            raise InvalidInput(
                f"state={shown(self.state)} cannot be cancelled: it must be one of "
                f"{', '.join(_HOW_BY_STATE)}"
            )
        try:
            _ = self.kind is None or Kind.of(self.kind)
        except ValueError:
            raise InvalidInput(
                f"kind={shown(self.kind)} is not valid: it must be as `parsync kinds` shows it, "
                "'proj.render slots=1'"
            ) from None

    @property
    def how(self) -> str:
        """The `how` of cancel for these tasks: a task that has left the state stays as it is."""
        return _HOW_BY_STATE[self.state]

    @property
    def everything(self) -> bool:
        """True if the selection has all tasks in its state."""
        return self.name == "*" and self.kind is None

    def has_kind(self, text: str) -> bool:
        """Return whether tasks of a kind are selected."""
        return fnmatchcase(text.partition(" ")[0], self.name) and self.kind in (None, text)


def find_selected(store: Store, selection: Selection) -> list[str]:
    """Return the encoded ids of the selected tasks. Raises AccessDenied and ServerUnreachable.

    A task that begins to wait, or starts, during this call may be left out.
    """
    unique_ids: dict[str, None] = {}
    for ids in (
        _waiting(store, selection)
        if selection.state == TaskState.WAITING
        else _placed(store, selection)
    ):
        unique_ids |= dict.fromkeys(ids)
    return list(unique_ids)


def _waiting(store: Store, selection: Selection) -> Iterator[list[str]]:
    """Yield the ids of waiting tasks: first delayed tasks, then tasks in queues, then taken tasks.

    A task moves on in this order, so a task that moves on during the reads is not missed.
    """
    keys = store.keys
    for ids in _scan(store, "zscan", keys.queues("later")):
        yield _of_kind(store, selection, ids)
    waiting = store.pipe([("hgetall", key) for key in keys.queues("kinds")])
    kinds = [(readable(kind), shard) for shard, lines in enumerate(waiting) for kind in lines]
    queues = [keys.pending(kind, shard) for kind, shard in kinds if selection.has_kind(kind)]
    for start in range(0, len(queues), _KINDS_PER_SCAN):
        yield from _scan(store, "zscan", queues[start : start + _KINDS_PER_SCAN])
    for ids in _scan(store, "hscan", keys.queues("taken")):
        yield _of_kind(store, selection, ids)


def _placed(store: Store, selection: Selection) -> Iterator[list[str]]:
    for ids in _scan(store, "hscan", store.keys.queues("running")):
        yield _of_kind(store, selection, ids, selection.state)


def _scan(store: Store, command: str, keys: list[str]) -> Iterator[list[str]]:
    """Yield the members of sorted sets ("zscan") or the fields of hashes ("hscan") in pages.

    A page has entries of each key.
    """
    pages = dict.fromkeys(keys, 0)
    while pages:
        replies = store.pipe(
            [(command, key, cursor, None, _MEMBERS_PER_SCAN) for key, cursor in pages.items()]
        )
        members = [
            member[0] if command == "zscan" else member for _, page in replies for member in page
        ]
        yield [readable(member) for member in members]
        pages = {
            key: int(cursor) for key, (cursor, _) in zip(pages, replies, strict=True) if int(cursor)
        }


def _of_kind(store: Store, selection: Selection, ids: list[str], state: str = "") -> list[str]:
    """Return the tasks that have a selected kind and, if `state` is given, this state."""
    if not ids or (selection.everything and not state):
        return ids
    return [
        task.id
        for task in store.records(ids, extras=False)
        if state in ("", task.state) and selection.has_kind(task.line.kind if task.line else "")
    ]


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
        _waiting_tasks(store, name)
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


def _waiting_tasks(store: Store, name: str) -> list[TaskStatus]:
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

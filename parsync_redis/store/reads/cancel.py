"""Cancel many tasks: by their ids, or all that a selection finds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ...errors import InvalidInput
from ...model.ids import readable, shown
from ...model.kind import Kind
from ...model.limits import MAX_BATCH
from ...model.task import TaskState, state_word
from ..store import Store

PIPELINED: Final = 4
"""So many calls are sent together: the next is read while one is executed."""

_PAGE: Final = 1000
"""Members of a set that are asked for at a time."""

_KINDS: Final = 100
"""Kinds whose tasks are read together."""

_ENDING: Final = {"waiting": "waiting", "placed": "placed", "running": "SIGTERM"}
"""The states that can be selected, and how such a task is cancelled."""


def cancel_tasks(
    store: Store, ids: Sequence[str], why: str = "cancelled", how: str = "SIGTERM"
) -> list[tuple[str, str]]:
    """Cancel any number of tasks by their encoded ids; return of each what `commands.cancel`
    returns.
    """
    calls = [
        store.commands.cancel(ids[at : at + MAX_BATCH], why, how)
        for at in range(0, len(ids), MAX_BATCH)
    ]
    found: list[tuple[str, str]] = []
    for at in range(0, len(calls), PIPELINED):
        for some in store.run_all(calls[at : at + PIPELINED]):
            found += some
    return found


def cancel_words(answers: Sequence[tuple[str, str]]) -> list[str]:
    """Return for people what was done with each task: cancelled, asked, or the state
    that it is in.
    """
    return [state_word(state) if word == "none" else word for word, state in answers]


@dataclass(frozen=True, slots=True)
class Selection:
    """Tasks in a state (waiting, placed, running), of names that match a pattern, and of one kind
    if it is given.
    """

    state: str = TaskState.WAITING
    name: str = "*"
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.state not in _ENDING:
            raise InvalidInput(
                f"state={shown(self.state)} cannot be cancelled: it must be one of "
                f"{', '.join(_ENDING)}"
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
        """Return how to cancel these tasks, so that one that has got further is left alone."""
        return _ENDING[self.state]

    @property
    def everything(self) -> bool:
        """True if the state alone decides."""
        return self.name == "*" and self.kind is None

    def has_kind(self, text: str) -> bool:
        """Return whether tasks of a kind are selected."""
        return fnmatchcase(text.partition(" ")[0], self.name) and self.kind in (None, text)


def find_selected(store: Store, selection: Selection) -> list[str]:
    """Return the encoded ids of the selected tasks. Raises AccessDenied and ServerUnreachable.

    A task that comes to wait, or starts, while this reads may be left out.
    """
    found: dict[str, None] = {}
    for ids in (
        _waiting(store, selection)
        if selection.state == TaskState.WAITING
        else _placed(store, selection)
    ):
        found |= dict.fromkeys(ids)
    return list(found)


def _waiting(store: Store, selection: Selection) -> Iterator[list[str]]:
    """Yield ids in the order in which tasks go: not due, waiting, taken.

    So none is missed that goes on meanwhile.
    """
    keys = store.keys
    for ids in _scan(store, "zscan", keys.queues("later")):
        yield _of_kind(store, selection, ids)
    waiting = store.pipe([("hgetall", key) for key in keys.queues("kinds")])
    kinds = [(readable(kind), shard) for shard, some in enumerate(waiting) for kind in some]
    queues = [keys.pending(kind, shard) for kind, shard in kinds if selection.has_kind(kind)]
    for at in range(0, len(queues), _KINDS):
        yield from _scan(store, "zscan", queues[at : at + _KINDS])
    for ids in _scan(store, "hscan", keys.queues("taken")):
        yield _of_kind(store, selection, ids)


def _placed(store: Store, selection: Selection) -> Iterator[list[str]]:
    for ids in _scan(store, "hscan", store.keys.queues("running")):
        yield _of_kind(store, selection, ids, selection.state)


def _scan(store: Store, command: str, keys: list[str]) -> Iterator[list[str]]:
    """Yield the members of some sets ("zscan") or the fields of hashes ("hscan") in pages; one of
    each key together.
    """
    pages = dict.fromkeys(keys, 0)
    while pages:
        replies = store.pipe([(command, key, cursor, None, _PAGE) for key, cursor in pages.items()])
        members = [
            member[0] if command == "zscan" else member for _, page in replies for member in page
        ]
        yield [readable(member) for member in members]
        pages = {
            key: int(cursor) for key, (cursor, _) in zip(pages, replies, strict=True) if int(cursor)
        }


def _of_kind(store: Store, selection: Selection, ids: list[str], state: str = "") -> list[str]:
    """Return those of these tasks that are of a selected kind, and in this state if it is given."""
    if not ids or (selection.everything and not state):
        return ids
    return [
        task.id
        for task in store.records(ids, extras=False)
        if state in ("", task.state) and selection.has_kind(task.line.kind if task.line else "")
    ]

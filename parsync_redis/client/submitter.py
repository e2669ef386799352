"""Submit tasks by name, with the options that the workers' apps declare for them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..model.ids import decode_id, new_id
from ..model.limits import MAX_BATCH
from ..model.options import TaskOptions
from ..model.parameters import without_parameters
from ..model.task import Submission
from ..store.reads.views import Apps, Directory
from ..submission import (
    Declared,
    Item,
    explain_refusal,
    make_submission,
    numbered,
    parse_item,
)
from .requests import Requests


class Submitter:
    """The part of ParsyncClient that makes and sends submissions."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._directory = Directory(requests.store)
        self._apps: Apps | None = None

    def declared(self, names: Iterable[str], pauses: Iterator[float] | None = None) -> Declared:
        """Return the options that the workers' apps declare for these task names.

        pauses: as for `Requests.submit`.
        """
        return self._read(pauses).declared(names)

    def options_of(self, item: Item) -> TaskOptions:
        """Return the options that a submitted task would have; raises InvalidInput.

        A declared tenant or limit that needs an argument of the call is left out.
        """
        name = item["name"]
        declared = {
            name: options and without_parameters(options)
            for name, options in self._read().declared({name}).items()
        }
        return make_submission(item, declared).options

    def submit_one(self, item: Item) -> str:
        """Submit one task and return its id; a new id belongs to a shard whose server answers."""
        make_id = new_id
        if self._requests.store.several and item.get("id") is None:
            make_id = self._requests.make_ids()
        ((task, word),) = self.submit([item], make_id)
        if refusal := explain_refusal(self._requests.store, task, word):
            raise refusal
        return decode_id(task.id)

    def submit_many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """Submit tasks, MAX_BATCH a round trip, and return their ids.

        An error names the index of its task.
        """
        ids: list[str] = []
        remaining = iter(tasks)
        while batch := list(islice(remaining, MAX_BATCH)):
            first = len(ids)
            items = numbered(parse_item, batch, first)
            submitted = self.submit(items, self._requests.make_ids(), first)
            for number, (task, word) in enumerate(submitted, first):
                if refusal := explain_refusal(self._requests.store, task, word):
                    raise type(refusal)(f"task {number}: {refusal}")
                ids.append(decode_id(task.id))
        return ids

    def submit(
        self,
        items: Sequence[Item],
        make_id: Callable[[], str] = new_id,
        first: int | None = None,
        submissions: Sequence[Submission] | None = None,
    ) -> list[tuple[Submission, str]]:
        """Submit tasks with what their apps declare; return each task with submit's word for it.

        first: the number of the first task, for errors; None for a single task.
        submissions: of the items, without what their apps declare, if the caller has made them. The
            apps are read once. If they have changed since, submit writes nothing in that shard and
            says so; then the apps are read again, and the tasks keep their ids.
        """
        apps = self._apps
        if apps is None:
            # made before the apps are read: bad input is refused before the server is asked
            submissions = submissions or _make(items, None, make_id, first)
            apps = self._read()
        tasks = (
            _make(items, apps, make_id, first)
            if submissions is None
            else _declare(items, submissions, apps, first)
        )
        words = self._requests.submit(tasks, apps=apps.stamps)
        if "changed" in words:
            tasks = _make(_with_ids(items, tasks), self._read(), make_id, first)
            # no stamp: apps that change in this moment may come too late for it
            words = self._requests.submit(tasks)
        return list(zip(tasks, words, strict=True))

    def _read(self, pauses: Iterator[float] | None = None) -> Apps:
        self._apps = self._requests.do(self._directory.read, pauses)
        return self._apps


def _make(
    items: Sequence[Item], apps: Apps | None, make_id: Callable[[], str], first: int | None
) -> list[Submission]:
    """Return the submissions of items.

    apps: the declared options; None for the callers' options alone.
    """
    names = {name for item in items if isinstance(name := item.get("name"), str)}
    declared = None if apps is None else apps.declared(names)

    def make(item: Item) -> Submission:
        return make_submission(item, declared, make_id)

    return [make(item) for item in items] if first is None else numbered(make, items, first)


def _declare(
    items: Sequence[Item], submissions: Sequence[Submission], apps: Apps, first: int | None
) -> list[Submission]:
    """Return the submissions with what the apps of their tasks declare.

    A submission of a task whose app declares nothing is returned as it is.
    """
    declared = apps.declared({task.name for task in submissions})

    def declare(pair: tuple[Item, Submission]) -> Submission:
        item, task = pair
        is_bare = declared.get(task.name, ()) is None
        return task if is_bare else make_submission(item, declared)

    pairs = list(zip(_with_ids(items, submissions), submissions, strict=True))
    return list(map(declare, pairs)) if first is None else numbered(declare, pairs, first)


def _with_ids(items: Sequence[Item], tasks: Sequence[Submission]) -> list[Item]:
    """Return the items with the ids of their submissions."""
    return [{**item, "id": decode_id(task.id)} for item, task in zip(items, tasks, strict=True)]

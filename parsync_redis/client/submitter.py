"""Submit tasks by name, with the options that the workers' apps declare for them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ..model.ids import decode_id
from ..model.limits import MAX_BATCH
from ..model.options import TaskOptions
from ..model.task import Submission
from ..store.reads.views import Apps, Directory
from ..submission import (
    ACCEPTED,
    Declared,
    Item,
    explain_refusal,
    make_submission,
    numbered,
    parse_item,
    with_declared,
)
from .requests import Requests


class Submitter:
    """Makes submissions from what callers ask, and sends them; see ParsyncClient."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._directory = Directory(requests.store)
        self._apps: Apps | None = None

    def declared(self, names: Iterable[str], pauses: Iterator[float] | None = None) -> Declared:
        """Return the options that the workers' apps declare for these task names; pauses: as for
        Requests.submit.
        """
        return self._read(pauses).declared(names)

    def options_of(self, item: Item) -> TaskOptions:
        """Return the options of a task as it would be submitted; raises InvalidInput."""
        return make_submission(item, self._read().declared({item["name"]})).options

    def one(self, item: Item) -> str:
        """Submit one task and return its id; a new id is of a shard that is not known
        to be away.
        """
        made = make_submission(item)
        if item.get("id") is None and self._requests.is_away(made.id):
            made = make_submission(item, make_id=self._requests.make_ids())
        ((task, word),) = self.submit([item], [made])
        if refusal := explain_refusal(self._requests.store, task, word):
            raise refusal
        return decode_id(task.id)

    def many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """Submit tasks, MAX_BATCH a round trip, and return their ids; errors say the number of the
        task.
        """
        ids: list[str] = []
        rest = iter(tasks)
        while batch := list(islice(rest, MAX_BATCH)):
            items = numbered(parse_item, batch, len(ids))
            made = numbered(
                partial(make_submission, make_id=self._requests.make_ids()), items, len(ids)
            )
            for i, (task, word) in enumerate(self.submit(items, made)):
                if word not in ACCEPTED and (
                    refusal := explain_refusal(self._requests.store, task, word)
                ):
                    raise type(refusal)(f"task {len(ids) + i}: {refusal}")
            ids += [decode_id(task.id) for task in made]
        return ids

    def submit(
        self, items: Sequence[Item], made: Sequence[Submission]
    ) -> list[tuple[Submission, str]]:
        """Submit tasks with what their apps declare; return each as it was submitted, and submit's
        word.

        The apps are read once. If they have changed since, submit says so, and they are read again.
        """
        apps = self._apps or self._read()
        tasks = _with_declared(items, made, apps)
        words = self._requests.submit(tasks, apps=apps.stamps)
        if "changed" in words:
            tasks = _with_declared(items, made, self._read())
            # no stamp: apps that change in this moment may come too late for it
            words = self._requests.submit(tasks)
        return list(zip(tasks, words, strict=True))

    def _read(self, pauses: Iterator[float] | None = None) -> Apps:
        self._apps = self._requests.do(self._directory.read, pauses)
        return self._apps


def _with_declared(
    items: Sequence[Item], made: Sequence[Submission], apps: Apps
) -> list[Submission]:
    """Return the submissions of items, made anew where the task's app declares something or is not
    known yet.
    """
    declared = apps.declared({task.name for task in made})
    return [
        with_declared({**item, "id": decode_id(task.id)}, task, declared)
        if declared.get(task.name, ()) is not None
        else task
        for item, task in zip(items, made, strict=True)
    ]

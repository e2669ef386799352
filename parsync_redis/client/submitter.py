"""Submit tasks by name, with the options that the workers' apps declare for them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..model.ids import decode_id
from ..model.limits import MAX_BATCH
from ..model.task import Submission
from ..store.views import Directory
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
        self._requests, self._directory = requests, Directory(requests.store)

    def declared(self, names: Iterable[str], pauses: Iterator[float] | None = None) -> Declared:
        """Return the options that the workers' apps declare for these task names; pauses: as for Requests.submit."""
        return self._requests.do(lambda: self._directory.declared(names), pauses)

    def one(self, item: Item) -> str:
        """Submit one task and return its id."""
        task = self._with_declared([item], [make_submission(item)])[0]
        if refusal := explain_refusal(self._requests.store, task, self._requests.submit([task])[0]):
            raise refusal
        return decode_id(task.id)

    def many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """Submit tasks, MAX_BATCH a round trip, and return their ids; errors say the number of the task."""
        ids: list[str] = []
        rest = iter(tasks)
        while batch := list(islice(rest, MAX_BATCH)):
            items = numbered(parse_item, batch, len(ids))
            made = self._with_declared(items, numbered(make_submission, items, len(ids)))
            for i, word in enumerate(self._requests.submit(made)):
                if word not in ACCEPTED and (refusal := explain_refusal(self._requests.store, made[i], word)):
                    raise type(refusal)(f"task {len(ids) + i}: {refusal}")
            ids += [decode_id(task.id) for task in made]
        return ids

    def _with_declared(self, items: Sequence[Item], made: Sequence[Submission]) -> list[Submission]:
        """Return the submissions of items, made anew where the task's app declares something or is not known yet."""
        declared = self.declared({task.name for task in made})
        return [
            with_declared({**item, "id": decode_id(task.id)}, task, declared)
            if declared.get(task.name, ()) is not None
            else task
            for item, task in zip(items, made, strict=True)
        ]

"""The tasks that a scheduler has taken and not placed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ...model.task import Taken

MAX_LOSSES: Final = 10
"""A task that lost so many claims since it was taken goes back: another scheduler may take it."""


@dataclass(slots=True)
class UnplacedTasks:
    """The tasks that this scheduler has taken and not placed.

    claimed: by id, tasks whose claims are not judged yet.
    seatless: tasks that need another seat.
    doubtful: tasks whose claims got no answer, so that nobody knows whether the claims won; these
        tasks go back.
    losses: by id of a task, how many of its claims were lost since it was taken.
    """

    claimed: dict[str, Taken]
    seatless: list[Taken]
    doubtful: list[Taken] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.claimed) + len(self.seatless) + len(self.doubtful)

    def __iter__(self) -> Iterator[Taken]:
        return chain(self.claimed.values(), self.seatless, self.doubtful)

    def on_lost(self, task: Taken) -> None:
        """Note that a claim of a task was lost."""
        self.seatless.append(task)
        self.losses[task.id] += 1

    def take_unlucky(self) -> list[Taken]:
        """Remove and return the tasks without a seat that lost MAX_LOSSES claims."""
        unlucky = [task for task in self.seatless if self.losses[task.id] >= MAX_LOSSES]
        if unlucky:
            self.seatless = [task for task in self.seatless if self.losses[task.id] < MAX_LOSSES]
        return unlucky

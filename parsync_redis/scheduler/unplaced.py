"""The tasks that a scheduler has taken and not placed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from ..model.kind import Kind
from ..model.task import Taken


def by_kind(tasks: Iterable[Taken]) -> dict[Kind, list[Taken]]:
    """Return tasks by their kinds, in their order."""
    found: dict[Kind, list[Taken]] = {}
    for task in tasks:
        found.setdefault(task.kind, []).append(task)
    return found


@dataclass(slots=True)
class Unplaced:
    """The tasks that this scheduler has taken and not placed.

    claimed: claims are not judged yet. seatless: they need another seat. doubtful: nobody answered whether their claims
    won, so they go back.
    """

    claimed: dict[str, Taken]
    seatless: list[Taken]
    doubtful: list[Taken] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.claimed) + len(self.seatless) + len(self.doubtful)

    def __iter__(self) -> Iterator[Taken]:
        return chain(self.claimed.values(), self.seatless, self.doubtful)

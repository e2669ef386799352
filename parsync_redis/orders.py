"""By when a task should start, in milliseconds from its submission: the orders of a policy.

An order is a class with one pure function. The mechanism only takes the task with the least time. A
distribution adds orders by entry points of the group `parsync.orders`, each a class without
arguments.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from .errors import InvalidInput
from .model.ids import close_to, shown
from .model.order import EARLIEST_START_MS, LATEST_START_MS, PATIENCE_MS
from .model.policy import AGE

ORDER_ENTRY_POINTS: Final = "parsync.orders"
"""The group of entry points by which other distributions add orders."""

RUNS_OF_PATIENCE: Final = 10
"""A task waits for as many of its run times, at most, behind younger and shorter ones."""


class OrderFacts(NamedTuple):
    """What an order knows of a task that is submitted.

    name: the name of the task.
    mean_run_ms: the learnt mean run time of the name; None if no run was learnt.
    age_ms: the time since the first submission; 0 if this is the first.
    ran_ms: for how long the task has run so far.
    """

    name: str
    mean_run_ms: float | None = None
    age_ms: int = 0
    ran_ms: int = 0


class OrderPolicy(Protocol):
    """An order: it says by when a task should start. Its function is pure."""

    def start_by_ms(self, facts: OrderFacts) -> int:
        """Return in how many ms from now the task should start; negative for a time that is over.

        A time more than a day ago counts as a day ago, a time beyond a year as in a year.
        """


class Age:
    """First come, first served: a task should start within the patience of ten minutes."""

    def start_by_ms(self, facts: OrderFacts) -> int:
        """Return the rest of the patience."""
        return PATIENCE_MS - facts.age_ms


class Shortest:
    """Short tasks first: a task should start within ten of the run times learnt for its name.

    So no task waits longer than ten of its run times behind younger ones. A name without learnt
    runs has the patience of ten minutes.
    """

    def start_by_ms(self, facts: OrderFacts) -> int:
        """Return the rest of ten run times."""
        if facts.mean_run_ms is None:
            return PATIENCE_MS - facts.age_ms
        return round(RUNS_OF_PATIENCE * facts.mean_run_ms) - facts.age_ms


class Least:
    """Tasks that have run least first: a task should start within ten times what it has run so far.

    A new task should start at once. The order is for tasks that return, after a retry or in rounds.
    """

    def start_by_ms(self, facts: OrderFacts) -> int:
        """Return the rest of ten times the time for which the task has run."""
        return RUNS_OF_PATIENCE * facts.ran_ms - facts.age_ms


BUILT_IN: Final[Mapping[str, OrderPolicy]] = MappingProxyType(
    {AGE: Age(), "shortest": Shortest(), "least": Least()}
)
"""The orders that every process knows, by name."""


@cache
def find_order(name: str) -> OrderPolicy:
    """Return the order with this name; raises InvalidInput if there is none, or if it is unfit."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    added = {entry.name: entry for entry in entry_points(group=ORDER_ENTRY_POINTS)}
    if name not in added:
        names = [*BUILT_IN, *sorted(added)]
        hint = f"; did you mean {close}?" if (close := close_to(name, names)) else ""
        raise InvalidInput(f"no order {shown(name)}: known are {', '.join(names)}{hint}")
    entry = added[name]
    try:
        order = entry.load()()
    except Exception as error:  # whatever the code of another distribution raises
        raise InvalidInput(f"order {name} ({entry.value}) cannot be made: {error!r}") from error
    if not callable(getattr(order, "start_by_ms", None)):
        raise InvalidInput(
            f"order {name} ({entry.value}) is not valid: it must be a class with start_by_ms(facts)"
        )
    checked: OrderPolicy = order
    return checked


def offset_ms(order: str, facts: OrderFacts) -> int:
    """Return how long after its submission a task should start, for `Submission.start_ms`.

    order: the name of the order. Raises InvalidInput for an unknown order, and for one that fails.
    """
    policy = find_order(order)
    try:
        start_ms = policy.start_by_ms(facts)
    except Exception as error:  # whatever the code of another distribution raises
        raise InvalidInput(f"order {order} failed for {facts.name}: {error!r}") from error
    if type(start_ms) is not int:
        raise InvalidInput(
            f"order {order} returned {shown(start_ms)} for {facts.name}: it must return a whole "
            "number of milliseconds"
        )
    return min(max(start_ms, EARLIEST_START_MS), LATEST_START_MS)

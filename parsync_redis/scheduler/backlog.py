"""The backlog: the tasks that a scheduler has taken and not placed, by kind: equal tasks, that the same seats fit.

A kind that finds no seat is blocked until the view changes, so that a thousand equal tasks cost one look.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..model.limits import MAX_BATCH
from ..model.needs import Resources, parse_resources
from ..model.task import Taken
from .partition_copy import Knowers
from .plan import Plan
from .view import View

HOLD: Final = 256
"""Tasks without a seat that a scheduler holds, so that a freed slot finds a taker; more are given back for a while."""


@dataclass(slots=True)
class Kind:
    """Tasks of the same needs and strategy whose names the same nodes know, oldest first.

    blocked_at: the view's change at which none had a seat. reasons: task -> the reason that was written why it waits.
    """

    needs: Resources
    strategy: str
    knowers: Knowers
    tasks: deque[Taken] = field(default_factory=deque)
    blocked_at: int = -1
    reasons: dict[str, str] = field(default_factory=dict)

    def pop(self) -> Taken:
        """Take out the oldest task."""
        task = self.tasks.popleft()
        self.reasons.pop(task.id, None)
        return task


class Backlog:
    """The kinds of task, with their tasks."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._kinds: dict[tuple[str, str, Knowers], Kind] = {}

    def __len__(self) -> int:
        return sum(len(kind.tasks) for kind in self._kinds.values())

    @property
    def ids(self) -> set[str]:
        """The ids of all tasks."""
        return {task.id for kind in self._kinds.values() for task in kind.tasks}

    def clear(self) -> None:
        """Drop all tasks."""
        self._kinds.clear()

    def add(self, task: Taken, front: bool = False) -> Kind:
        """Add a task; at the front if it lost its claim and has waited longest."""
        knowers = self._view.knowers(task.name)
        key = (task.needs, task.strategy, knowers)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind(parse_resources(task.needs), task.strategy, knowers)
        if front:
            kind.tasks.appendleft(task)
            kind.blocked_at = -1
        else:
            kind.tasks.append(task)
        return kind

    def regroup(self) -> None:
        """Kind all tasks again: nodes have changed, and with them which nodes know which name."""
        reasons = {id: reason for kind in self._kinds.values() for id, reason in kind.reasons.items()}
        tasks = [task for kind in self._kinds.values() for task in kind.tasks]
        self._kinds = {}
        for task in sorted(tasks, key=lambda task: task.ready_ms):
            kind = self.add(task)
            if task.id in reasons:
                kind.reasons[task.id] = reasons[task.id]

    # -- kinds without a seat ---------------------------------------------------------------------------------------

    def block(self, kind: Kind) -> None:
        """Mark a kind that found no seat: it is not tried again until the view changes."""
        kind.blocked_at = self._view.changes

    def open(self) -> list[Kind]:
        """Return the kinds to try, the one whose oldest task waits longest first, so that none starves another."""
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.tasks}
        changes = self._view.changes
        found = [kind for kind in self._kinds.values() if kind.blocked_at != changes]
        return sorted(found, key=lambda kind: kind.tasks[0].ready_ms)

    def blocked(self) -> list[Kind]:
        """Return the kinds that have tasks and no seat."""
        changes = self._view.changes
        return [kind for kind in self._kinds.values() if kind.tasks and kind.blocked_at == changes]

    def explain(self, plan: Plan, blocked: Sequence[Kind], all_reasons: bool) -> None:
        """Plan to give back blocked tasks beyond HOLD and, with `all_reasons`, to write why the others wait."""
        surplus = sum(len(kind.tasks) for kind in blocked) - HOLD
        for kind in sorted(blocked, key=lambda kind: -len(kind.tasks)):
            reason = self._view.explain(kind.needs, kind.knowers) if all_reasons or surplus > 0 else ""
            while surplus > 0 and len(kind.tasks) > 1 and len(plan.give_back) < MAX_BATCH:
                task = kind.tasks.pop()
                kind.reasons.pop(task.id, None)
                plan.give_back.append((task.id, task.attempt, reason))
                surplus -= 1
            if all_reasons:
                changed = [task for task in kind.tasks if kind.reasons.get(task.id) != reason]
                for task in changed[: MAX_BATCH - len(plan.reasons)]:
                    plan.reasons.append((task.id, task.attempt, reason))
                    kind.reasons[task.id] = reason

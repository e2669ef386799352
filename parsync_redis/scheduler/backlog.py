"""The backlog: the tasks that a scheduler has taken and not placed, in groups that the same seats fit.

A group that finds no seat is blocked until the view changes, so that a thousand equal tasks cost one look.
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
class Group:
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
    """The groups; a task is in one of them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._groups: dict[tuple[str, str, Knowers], Group] = {}

    def __len__(self) -> int:
        return sum(len(group.tasks) for group in self._groups.values())

    @property
    def ids(self) -> set[str]:
        """The ids of all tasks."""
        return {task.id for group in self._groups.values() for task in group.tasks}

    def clear(self) -> None:
        """Drop all tasks."""
        self._groups.clear()

    def add(self, task: Taken, front: bool = False) -> Group:
        """Add a task; at the front if it lost its claim and has waited longest."""
        knowers = self._view.knowers(task.name)
        key = (task.needs, task.strategy, knowers)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(parse_resources(task.needs), task.strategy, knowers)
        if front:
            group.tasks.appendleft(task)
            group.blocked_at = -1
        else:
            group.tasks.append(task)
        return group

    def regroup(self) -> None:
        """Group all tasks again: nodes have changed, and with them which nodes know which name."""
        reasons = {id: reason for group in self._groups.values() for id, reason in group.reasons.items()}
        tasks = [task for group in self._groups.values() for task in group.tasks]
        self._groups = {}
        for task in sorted(tasks, key=lambda task: task.ready_ms):
            group = self.add(task)
            if task.id in reasons:
                group.reasons[task.id] = reasons[task.id]

    # -- groups without a seat ---------------------------------------------------------------------------------------

    def block(self, group: Group) -> None:
        """Mark a group that found no seat: it is not tried again until the view changes."""
        group.blocked_at = self._view.changes

    def open(self) -> list[Group]:
        """Return the groups to try, the one whose oldest task waits longest first, so that none starves another."""
        self._groups = {key: group for key, group in self._groups.items() if group.tasks}
        changes = self._view.changes
        found = [group for group in self._groups.values() if group.blocked_at != changes]
        return sorted(found, key=lambda group: group.tasks[0].ready_ms)

    def blocked(self) -> list[Group]:
        """Return the groups that have tasks and no seat."""
        changes = self._view.changes
        return [group for group in self._groups.values() if group.tasks and group.blocked_at == changes]

    def explain(self, plan: Plan, blocked: Sequence[Group], all_reasons: bool) -> None:
        """Plan to give back blocked tasks beyond HOLD and, with `all_reasons`, to write why the others wait."""
        surplus = sum(len(group.tasks) for group in blocked) - HOLD
        for group in sorted(blocked, key=lambda group: -len(group.tasks)):
            reason = self._view.explain(group.needs, group.knowers) if all_reasons or surplus > 0 else ""
            while surplus > 0 and len(group.tasks) > 1 and len(plan.give_back) < MAX_BATCH:
                task = group.tasks.pop()
                group.reasons.pop(task.id, None)
                plan.give_back.append((task.id, task.attempt, reason))
                surplus -= 1
            if all_reasons:
                changed = [task for task in group.tasks if group.reasons.get(task.id) != reason]
                for task in changed[: MAX_BATCH - len(plan.reasons)]:
                    plan.reasons.append((task.id, task.attempt, reason))
                    group.reasons[task.id] = reason

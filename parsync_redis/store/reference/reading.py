"""Reads of tasks in the store in memory. A method with `keys` and `args` is a script."""

from collections.abc import Sequence
from typing import Any

from .records import PENDING, Args
from .tasks import Tasks


class Reading(Tasks):
    """Read the records of tasks."""

    def read_tasks(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Return the records of tasks, seven values each."""
        return [
            self.world.now_ms,
            *(value for (id,) in args.rows for value in self._known(id, args.extras == "1")),
        ]

    def _known(self, id: str, extras: bool) -> tuple[Any, ...]:
        task = self.find(id)
        if task is None:
            return ("gone", "", "", "", "", "", [])
        end = "" if task.ended_ms is None else f"{task.state} {task.ended_ms} {task.ended_why}"
        if id not in self.tasks:
            history = ["history", "\n".join(task.history)] if extras and task.history else []
            return (task.state, task.line, "", task.run, end, "", history)
        attempt = "" if end else task.attempt
        kind = self.kinds.get(task.job.kind) if task.state == PENDING else None
        rare = [word for field in task.rare.items() for word in field]
        return (task.state, task.line, attempt, task.run, end, kind.line() if kind else "", rare)

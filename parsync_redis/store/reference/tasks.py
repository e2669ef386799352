"""The tasks of the store in memory: how they wait and end, and the script that reads them."""

from collections.abc import Sequence
from typing import Any

from ...model.apps import KnownTasks
from ...model.task import StoredState
from .records import MAX_OUTBOX, PENDING, Args, Task, World
from .waiting import Waiting


class Tasks(Waiting):
    """The tasks of a cluster and their indexes.

    ended: three generations of ended tasks, the newest first.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.tasks: dict[str, Task] = {}
        self.ended: tuple[dict[str, Task], dict[str, Task], dict[str, Task]] = ({}, {}, {})
        self.choices: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self.rotated_ms: int | None = None
        self.later: dict[str, int] = {}
        self.outbox: list[str] = []
        self.dead: dict[str, int] = {}
        self.expires: dict[str, int] = {}
        self.shapes: dict[str, str] = {}
        self.names: dict[str, KnownTasks] = {}
        self.apps: dict[str, int] = {}
        self.apps_ms = 0
        self.submitted = self.lost = self.died = 0
        self.shards = ""
        self.waiters: list[str] = []
        self.undone = 0  # number of undone takes

    def find(self, id: str) -> Task | None:
        """Return the record of a task, None if it is unknown."""
        newest, older, oldest = self.ended
        return self.tasks.get(id) or newest.get(id) or older.get(id) or oldest.get(id)

    def forget(self, id: str) -> None:
        """Forget a task."""
        for records in (self.tasks, *self.ended):
            records.pop(id, None)
        self.dead.pop(id, None)

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

    def _wake(self, channel: str, me: str = "") -> int:
        """Wake the newest waiter but `me`; return how many waiters were tried, 16 at most.

        If a waiter does not hear the message, the waiter before it is tried. All stay among the
        waiters.
        """
        heard = 0
        tries = 0
        while tries < min(16, len(self.waiters)) and not heard:
            name = self.waiters[-1 - tries]
            tries = tries + 1
            heard = 0 if name == me else self.world.publish(f"{channel}:{name}", "wake")
        return tries

    def _to_pending(
        self, id: str, task: Task, due: int | None, put_off: bool = False, renewed: bool = False
    ) -> None:
        """Move a task to the queue, or to `later` if it is due later.

        A successor that the task's own run submitted is lost with the run. A successor that another
        program published stays. renewed: the task has become its successor, so no run of its
        message has begun.
        """
        task.takes += bool(task.attempt)
        task.since_ms = task.ready_ms if put_off and due is not None else None
        if due is not None or task.started_ms is not None:
            task.ready_ms = self.world.now_ms if due is None else due
        task.ran_ms = task.ran_ms if task.started_ms is None else task.started_ms
        task.redelivered = task.redelivered if task.started_ms is None else not renewed
        task.state = PENDING
        task.attempt = ""
        task.place = None
        task.started_ms = None
        task.next = task.next if task.next and task.next.job.publication else None
        if due is None:
            self.enter(task.job.kind, id, task.order)
        else:
            self.later[id] = due

    def _after(self, delay_ms: str) -> int | None:
        return None if delay_ms == "" else self.world.now_ms + int(delay_ms)

    def _write_kinds(self, channel: str) -> None:
        """End a script that may have let tasks wait."""
        if self.write_kinds():
            self._wake(channel)

    def _end(self, id: str, task: Task, state: str, why: str, unseen: bool) -> None:
        """End a task.

        unseen: no worker sees the end, so an agent must tell Celery's result backend.
        """
        self.leave(task.job.kind, id)
        self.later.pop(id, None)
        task.state = StoredState(state)
        task.cancel = None
        task.next = None
        task.ended_ms = self.world.now_ms
        task.ended_why = why
        task.end_unseen = unseen
        self.ended[0][id] = self.tasks.pop(id)
        if unseen:
            self._to_outbox(id, state, why)

    def _to_outbox(self, id: str, state: str, why: str) -> None:
        self.outbox = [f"{id} {state} {why}", *self.outbox[: MAX_OUTBOX - 1]]

    def _expired(self, task: Task) -> bool:
        return task.expires_ms is not None and task.expires_ms <= self.world.now_ms

"""The tasks of the store in memory, and how they wait and end."""

from ...model.apps import KnownTasks
from ...model.task import TaskState
from .records import (
    KEEP_OUTBOX,
    PENDING,
    Task,
    World,
)
from .waiting import Waiting


class Tasks(Waiting):
    """The tasks of a cluster and their indexes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.tasks: dict[str, Task] = {}
        self.later: dict[str, int] = {}
        self.outbox: list[str] = []
        self.dead: dict[str, int] = {}
        self.expires: dict[str, int] = {}
        self.shapes: dict[str, str] = {}
        self.names: dict[str, KnownTasks] = {}
        self.apps: dict[str, int] = {}
        self.submitted = 0
        self.waiters: list[str] = []

    def forget(self, id: str) -> None:
        """Let the record of an ended task expire."""
        if id in self.tasks and self.tasks[id].state.final:
            del self.tasks[id]
            self.dead.pop(id, None)

    def _wake(self, channel: str, me: str = "") -> None:
        """Wake the newest waiter but `me`; if nobody hears that, the one before it, and so on, 16 at most."""
        heard, tries = 0, 0
        while self.waiters and not heard and tries < 16:
            name, tries = self.waiters.pop(), tries + 1
            heard = 0 if name == me else self.world.publish(f"{channel}:{name}", "wake")

    def _to_pending(self, id: str, task: Task, due: int | None) -> None:
        task.state, task.partition, task.seat, task.scheduler = PENDING, None, None, None
        task.next = task.next if task.next and task.next[0].publication else None
        task.times["ready"] = self.world.now_ms if due is None else due
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

    def _end(self, id: str, task: Task, state: str, why: str, retention_s: str, unseen: bool) -> None:
        """End a task; if its end is `unseen` by any worker, an agent must tell Celery's result backend."""
        self.leave(task.job.kind, id)
        self.later.pop(id, None)
        task.state, task.cancel, task.next, task.kept_s = TaskState(state), None, None, int(retention_s)
        task.why = why or task.why
        task.times["finished"] = self.world.now_ms
        if unseen:
            self._to_outbox(id, state, why)

    def _to_outbox(self, id: str, state: str, why: str) -> None:
        self.outbox = [f"{id} {state} {why}", *self.outbox[: KEEP_OUTBOX - 1]]

    def _expired(self, task: Task) -> bool:
        return task.expires_ms is not None and task.expires_ms <= self.world.now_ms

"""The tasks of the store in memory: how they wait and end, and the script that reads them."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ...model.apps import KnownTasks
from ...model.kind import KindLine
from ...model.order import EARLIEST_START_MS, YEAR_2020
from ...model.task import StoredState
from .accounts import Accounts
from .records import MAX_OUTBOX, PENDING, PLACED, RUNNING, TAKEN, Args, Task, World

KEPT_ENDED_KINDS: Final = 10_000
KINDS_PER_SWEEP: Final = 1000


@dataclass(slots=True)
class KindQueue:
    """The waiting tasks of a kind.

    orders: id -> order. last: an upper bound of the orders. began: no task of the kind waited
    before.
    """

    orders: dict[str, int] = field(default_factory=dict)
    last: int = 0
    why: str = ""
    began: bool = True
    # Every (order, id) of `orders`, and some that have left it.
    _heap: list[tuple[int, str]] = field(default_factory=list)

    def add(self, id: str, order: int) -> None:
        """Add a waiting task."""
        self.orders[id] = order
        self.last = max(self.last, order)
        heapq.heappush(self._heap, (order, id))

    def first(self) -> tuple[int, str]:
        """Return the order and the id of the first task."""
        while self.orders.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0]

    def pop(self) -> str:
        """Remove the first task and return its id."""
        _, id = self.first()
        heapq.heappop(self._heap)
        del self.orders[id]
        return id

    def line(self) -> str:
        """Return the kind's line."""
        return str(KindLine(len(self.orders), self.first()[0], self.last, self.why))


class Waiting:
    """The kinds of which tasks wait."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kinds: dict[str, KindQueue] = {}
        self.accounts = Accounts(world)
        # kind, or '=' and an account -> the version of its last change, sorted by version
        self.changed: dict[str, int] = {}
        self.version = self.floor = 0
        self._touched: dict[str, None] = {}

    @property
    def pending(self) -> int:
        """The number of waiting tasks."""
        return sum(len(queue.orders) for queue in self.kinds.values())

    @property
    def next_version(self) -> int:
        """The version that the next change or submission gets."""
        earliest = YEAR_2020 - 100 * EARLIEST_START_MS
        return max(self.version, self.world.now_ms * 100 - 1, earliest) + 1

    def enter(self, kind: str, id: str, order: int) -> None:
        """Add a waiting task to its kind's queue."""
        self._touched[kind] = None
        self.kinds.setdefault(kind, KindQueue()).add(id, order)

    def leave(self, kind: str, id: str) -> None:
        """Remove a task from its kind's queue, if it waits there."""
        queue = self.kinds.get(kind)
        if queue and queue.orders.pop(id, None) is not None:
            self._touched[kind] = None

    def pop(self, kind: str, limit: int) -> list[str]:
        """Remove the first tasks of a kind, `limit` at most, and return their ids."""
        queue = self.kinds.get(kind)
        if queue is None or not queue.orders or not limit:
            return []
        self._touched[kind] = None
        return [queue.pop() for _ in range(min(limit, len(queue.orders)))]

    def write_kinds(self) -> tuple[bool, bool]:
        """Write a new version of each changed kind.

        Returns whether tasks of a new kind wait, and whether a full account has room.
        """
        began = False
        names = [*self._touched, *(f"={account}" for account in self.accounts.write())]
        for name in names:
            self.version = self.next_version
            self.changed.pop(name, None)
            self.changed[name] = self.version
        for kind in self._touched:
            queue = self.kinds[kind]
            if queue.orders:
                began = began or queue.began
                queue.began = False
                queue.last = max(queue.last, queue.first()[0])
            else:
                del self.kinds[kind]
        self._touched.clear()
        return began, self.accounts.take_room()

    def sweep(self) -> None:
        """Forget ended kinds, the oldest first."""
        if len(self.changed) <= 2 * len(self.kinds) + KEPT_ENDED_KINDS:
            return
        newer = (pair for pair in self.changed.items() if pair[1] > self.floor)
        for kind, version in list(islice(newer, KINDS_PER_SWEEP)):
            self.floor = version
            if kind not in self.kinds and kind[1:] not in self.accounts.lines:
                del self.changed[kind]

    def changes_since(self, since: str, most: int) -> tuple[str, bool, bool, list[tuple[str, str]]]:
        """Return what brings a copy of the lines up to date: (version, anew, more, changes).

        since: the version of the copy. anew: the copy must be made anew. more: further changes
        remain. changes: (kind, line), '' for a kind without waiting tasks; `most` at most.
        """
        first, _, begun_text = since.partition("/")
        seen_version = int(first)
        begun = int(begun_text or first)
        anew = seen_version == 0 or seen_version > self.version or begun < self.floor
        if anew:
            seen_version = 0
            begun = self.version
        names: list[str] = []
        for kind, version in reversed(self.changed.items()):
            if version <= seen_version:
                break
            names.append(kind)
        page = names[::-1][:most]
        changes = [(name, self._line_of(name)) for name in page]
        last = self.changed[page[-1]] if page else self.version
        if len(page) == len(names):
            return str(self.version), anew, False, changes
        return (f"{last}/{begun}" if begun > last else str(last)), anew, True, changes

    def _line_of(self, name: str) -> str:
        """Return the line of a kind, '' if nothing of it waits, or of an account."""
        if name.startswith("=") and " " not in name:
            return self.accounts.line(name[1:])
        return self.kinds[name].line() if name in self.kinds else ""


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
        self,
        id: str,
        task: Task,
        due: int | None,
        put_off: bool = False,
        renewed: bool = False,
        kind: str = "",
    ) -> None:
        """Move a task to the queue, or to `later` if it is due later.

        A successor that the task's own run submitted is lost with the run. A successor that another
        program published stays. renewed: the task has become its successor, so no run of its
        message has begun. kind: its kind until now, if it has another one now.
        """
        self._leave_accounts(id, task, kind)
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

    def _leave_accounts(self, id: str, task: Task, kind: str = "", undone: bool = False) -> None:
        """Let a task count to its accounts no more.

        kind: its kind until now, if the kind has changed. undone: its take is undone.
        """
        if task.state in (TAKEN, PLACED, RUNNING):
            self.accounts.leave(kind or task.job.kind, id, undone)

    def _after(self, delay_ms: str) -> int | None:
        return None if delay_ms == "" else self.world.now_ms + int(delay_ms)

    def _write_kinds(self, channel: str) -> None:
        """End a script that may have let tasks wait, or taken tasks out of accounts."""
        if any(self.write_kinds()):
            self._wake(channel)

    def _end(self, id: str, task: Task, state: str, why: str, unseen: bool) -> None:
        """End a task.

        unseen: no worker sees the end, so an agent must tell Celery's result backend.
        """
        self.leave(task.job.kind, id)
        self._leave_accounts(id, task)
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

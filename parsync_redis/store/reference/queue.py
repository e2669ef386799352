"""The queue of the store in memory: the life of tasks. See lua/ for the contract of each script.

A method with `keys` and `args` is a script; admit, take_tasks, confirm_at, start_at and finish_at are their inside,
on values, for the simulator.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ...model.apps import KnownTasks, digest_of
from ...model.needs import QUEUE_LABEL, parse_resources
from ...model.place import Place
from ...model.task import Taken, TaskState
from ...placement.fits import fits

Args = Any
PENDING, TAKEN, PLACED, RUNNING = TaskState.PENDING, TaskState.TAKEN, TaskState.PLACED, TaskState.RUNNING
KEEP_OUTBOX: Final = 10_000
KEEP_DEAD: Final = 10_000
LOOK_AGAIN_MS: Final = 60_000


class World(Protocol):
    """What a script has besides its keys: a clock to stamp with, and listeners."""

    now_ms: int

    def publish(self, channel: str, text: str) -> int:
        """Sends a text to who listens; how many do."""


class Seat(NamedTuple):
    """Where an attempt is: a slot of one process of a node."""

    node: str
    slot: int
    inc: int


class Job(NamedTuple):
    """What an attempt is to do."""

    name: str
    needs: str
    strategy: str
    message: bytes
    priority: str = "0"
    max_starts: str = ""
    publication: str = ""


@dataclass(slots=True)
class Task:
    """The record of a task."""

    job: Job
    order: int
    life: int  # the number of its submission: with `number` the fence
    number: int = 0
    salt: str = ""
    state: TaskState = PENDING
    starts: int = 0
    scheduler: str | None = None
    partition: int | None = None
    seat: Seat | None = None
    why: str | None = None
    cancel: str | None = None
    next: tuple[Job, int | None, int | None] | None = None  # what its running attempt wants next; when; until when
    expires_ms: int | None = None  # when it expires
    kept_s: int | None = None  # for how long the record is kept; None for good
    history: list[str] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)

    @property
    def attempt(self) -> str:
        """The fence as text."""
        return f"{self.number}@{self.life}{self.salt}"

    def at(self, attempt: str, seat: Seat) -> bool:
        """Whether this attempt is the task's, and there."""
        return self.attempt == attempt and self.seat == seat


def _place(row: Any) -> Place:
    return Place(row.id, row.attempt, int(row.partition), row.node, int(row.slot), int(row.inc), int(row.since))


class Queue:
    """The tasks of a cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: dict[str, Task] = {}
        self.pending: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []  # a heap of all that `pending` has, and of some that it has no more
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
        """The record of an ended task expires."""
        if id in self.tasks and self.tasks[id].state.final:
            del self.tasks[id]
            self.dead.pop(id, None)

    # -- scripts -----------------------------------------------------------------------------------------------------

    def submit(self, keys: Sequence[str], args: Args) -> list[str]:
        """Each task exists once."""
        idle, before, replies = not self.pending, len(self.pending), []
        for r in args.rows:
            job = Job(r.name, r.needs, r.strategy, r.message, r.priority, r.max_starts, r.publication)
            due, expiry = self._after(r.delay_ms), self._after(r.expiry_ms)
            replies.append(self.admit(r.id, job, due, r.wait == "1", r.after, expiry))
        if idle and len(self.pending) > before:
            self._wake(args.channel)
        return replies

    def admit(
        self, id: str, job: Job, due: int | None = None, wait: bool = False, after: str = "", expiry: int | None = None
    ) -> str:
        """Submit: one task; the word for it."""
        task = self.tasks.get(id)
        published = {task.job.publication, task.next[0].publication if task.next else ""} if task else set()
        anew = not after and job.publication not in ("", *published)
        mine = task is not None and task.state == RUNNING and after == task.attempt
        if task and (mine or (anew and "started" in task.times and not task.state.final)):
            others = task.next is not None and task.next[0].publication
            if not (mine and others):  # what others published goes before a retry
                task.next = job._replace(publication="" if after else job.publication), due, expiry
            if expiry is not None:
                self.expires[id] = expiry
            return "next"
        if task and after:
            return "stale"
        revoked = task is not None and task.state == TaskState.CANCELLED and job.publication.startswith("s")
        if task and not (anew and task.state.final and not revoked):
            return "exists"
        if not wait and (refusal := self._judge(job)):
            return refusal
        self.dead.pop(id, None)
        self.submitted += 1
        order = (9 - int(job.priority)) * 10**12 + self.submitted
        task = self.tasks[id] = Task(job, order, self.submitted, expires_ms=expiry)
        if expiry is not None:
            self.expires[id] = expiry
        task.times["submitted"] = self.world.now_ms
        self._to_pending(id, task, due)
        return "submitted"

    def _judge(self, job: Job) -> str:
        offers = [parse_resources(offer) for offer in set(self.shapes.values())]
        knowing = [offer for offer in offers if self._knows(digest_of(offer), job.name)]
        if offers and not knowing:
            return "unknown"
        needs = parse_resources(" ".join(word for word in job.needs.split() if not word.startswith(f"{QUEUE_LABEL}:")))
        return "" if not offers or any(fits(offer, needs) for offer in knowing) else "infeasible"

    def _knows(self, digest: str, name: str) -> bool:
        return not digest or (digest in self.names and name in self.names[digest].declared)

    def take(self, keys: Sequence[str], args: Args) -> list[Any]:
        """The first pending tasks become one scheduler's, each with its next attempt; what has expired ends."""
        taken = self.take_tasks(args.scheduler, int(args.limit), args.retention_s, args.salt)
        if args.waits == "1" and self.pending:
            self._wake(args.channel, args.scheduler)
        elif args.waits == "1" and not taken and args.scheduler not in self.waiters:
            self.waiters.append(args.scheduler)
        reply = [word for t in taken for word in (t.id, t.attempt, t.needs, t.strategy, str(t.ready_ms), t.name)]
        due = str(min(self.later.values())) if self.later else ""
        return [len(self.pending), str(self.world.now_ms), due, *reply]

    def take_tasks(self, scheduler: str, limit: int, retention_s: str = "0", salt: str = "") -> list[Taken]:
        """Take: up to `limit` tasks, the first in order first."""
        now, taken = self.world.now_ms, list[Taken]()
        if self.later:
            due = [(at, id) for id, at in self.later.items() if at <= now]
            for _, id in heapq.nsmallest(limit, due):
                del self.later[id]
                self._wait(id, self.tasks[id])
        left = limit
        while self._order and left:
            order, id = heapq.heappop(self._order)
            if self.pending.get(id) != order:
                continue
            left -= 1
            del self.pending[id]
            task = self.tasks[id]
            if self._expired(task):
                self._end(id, task, "cancelled", "expired", retention_s, True)
                continue
            task.state, task.number, task.salt, task.scheduler = TAKEN, task.number + 1, salt, scheduler
            task.times["taken"] = now
            job = task.job
            taken.append(Taken(id, task.attempt, job.needs, job.strategy, task.times["ready"], job.name))
        return taken

    def give_back(self, keys: Sequence[str], args: Args) -> list[str]:
        """What this scheduler took goes back."""
        replies = []
        for r in args.rows:
            task = self.tasks.get(r.id)
            if task and task.state == TAKEN and task.scheduler == args.scheduler and r.attempt in ("", task.attempt):
                task.why = r.why or task.why
                self._to_pending(r.id, task, self._after(args.delay_ms))
                replies.append("pending")
            else:
                replies.append("stale")
        return replies

    def confirm(self, keys: Sequence[str], args: Args) -> list[str]:
        """Only a task that is still taken, by this attempt, gets a place."""
        return [self.confirm_at(_place(row)) for row in args.rows]

    def confirm_at(self, place: Place) -> str:
        """Confirm: one task; the word for it."""
        task, seat = self.tasks.get(place.task), Seat(place.node, place.slot, place.inc)
        if task and task.state == TAKEN and task.attempt == place.attempt:
            self._seat(task, PLACED, place, seat)
            return "placed"
        return "yours" if task and task.state in (PLACED, RUNNING) and task.at(place.attempt, seat) else "stale"

    def start(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Only the current attempt may start, once, where confirm put it, if it has."""
        return [word for row in args.rows for word in self.start_at(_place(row))]

    def start_at(self, place: Place) -> tuple[str, bytes]:
        """Start: the word, and the message or why not."""
        task, attempt, seat = self.tasks.get(place.task), place.attempt, Seat(place.node, place.slot, place.inc)
        if task is None:
            return "refused", b"gone"
        if task.state == RUNNING and task.at(attempt, seat):
            return "yours", task.job.message
        if (task.state == TAKEN and task.attempt == attempt) or (task.state == PLACED and task.at(attempt, seat)):
            self._seat(task, RUNNING, place, seat)
            task.starts += 1
            task.times["started"] = self.world.now_ms
            return "ok", task.job.message
        return "refused", task.state.encode()

    def finish(self, keys: Sequence[str], args: Args) -> list[str]:
        """The outcome of the current attempt, from its place."""
        idle = not self.pending
        replies = [
            self.finish_at(
                Place(r.id, r.attempt, 0, r.node, int(r.slot), int(r.inc), 0), r.outcome, r.why, args.retention_s
            )
            for r in args.rows
        ]
        if idle and "again" in replies:
            self._wake(args.channel)
        return replies

    def finish_at(self, place: Place, outcome: str, why: str = "", retention_s: str = "1") -> str:
        """Finish: one task; the word for it."""
        id, task = place.task, self.tasks.get(place.task)
        if task is None or not task.at(place.attempt, Seat(place.node, place.slot, place.inc)):
            return "stale"
        if task.state != RUNNING:
            return "yours" if task.state == outcome else "stale"
        if (outcome == "again" or task.next) and outcome != "cancelled" and task.cancel is None:
            job, due, task.expires_ms = task.next or (task.job, None, task.expires_ms)
            task.job = job._replace(publication=job.publication or task.job.publication)
            task.order = (9 - int(job.priority)) * 10**12 + task.order % 10**12
            task.starts, task.next = 0, None
            self._to_pending(id, task, due)
            return "again"
        self._end(id, task, "cancelled" if outcome == "again" else outcome, why, retention_s, outcome == "again")
        return "ok"

    def requeue(self, keys: Sequence[str], args: Args) -> list[str]:
        """The lease of an attempt is lost: its task goes back if it is still that attempt, there."""
        idle, back, replies, max_starts = not self.pending, False, [], int(args.max_starts)
        for r in args.rows:
            task = self.tasks.get(r.id)
            seat = Seat(r.node, int(r.slot), int(r.inc))
            here = task and (task.state == TAKEN or (task.state in (PLACED, RUNNING) and task.seat == seat))
            wanted = task and here and (r.how != "unstarted" or task.state == PLACED)
            if task is None or task.attempt != r.attempt or not wanted:
                replies.append("none")
                continue
            if r.delay_ms == "":
                self._tell(task, seat, r.why)
            counts = task.state == RUNNING and r.how != "recalled"
            if task.cancel is not None or (counts and task.starts >= int(task.job.max_starts or max_starts)):
                state = "dead" if task.cancel is None else "cancelled"
                self._end(r.id, task, state, r.why, args.retention_s, True)
                if state == "dead":
                    self._bury(r.id, task, int(args.retention_s))
                replies.append(state)
            else:
                task.starts -= task.state == RUNNING and not counts
                task.why = r.why or task.why
                self._to_pending(r.id, task, self._after(r.delay_ms))
                back = back or r.delay_ms == ""
                replies.append("pending")
        if idle and back:
            self._wake(args.channel)
        return replies

    def revive(self, keys: Sequence[str], args: Args) -> list[str]:
        """A dead task goes back, with all its starts before it."""
        idle, replies = not self.pending, []
        for (id,) in args.rows:
            task = self.tasks.get(id)
            if task is None or task.state != TaskState.DEAD:
                replies.append(task.state if task else "gone")
                continue
            self.dead.pop(id, None)
            del task.times["finished"]
            task.kept_s, task.starts, task.why = None, 0, args.why
            self._to_pending(id, task, None)
            self._to_outbox(id, "pending", args.why)
            replies.append("revived")
        if idle and self.pending:
            self._wake(args.channel)
        return replies

    def purge(self, keys: Sequence[str], args: Args) -> list[str]:
        """The records of tasks that have ended go."""
        replies = []
        for (id,) in args.rows:
            task = self.tasks.get(id)
            if task is None or task.state != args.state:
                replies.append(task.state if task else "gone")
                continue
            del self.tasks[id]
            self.dead.pop(id, None)
            self.expires.pop(id, None)
            replies.append("purged")
        return replies

    def expire(self, keys: Sequence[str], args: Args) -> list[str]:
        """What waits past its expiry ends; what is placed or runs is looked at again later."""
        now, expired = self.world.now_ms, []
        for _, id in heapq.nsmallest(int(args.limit), ((due, id) for id, due in self.expires.items() if due <= now)):
            task = self.tasks.get(id)
            del self.expires[id]
            if task is None or task.state.final:
                continue
            if task.state in (PLACED, RUNNING):
                self.expires[id] = now + LOOK_AGAIN_MS
            elif task.expires_ms is None:
                continue
            elif not self._expired(task):
                self.expires[id] = task.expires_ms
            else:
                self._end(id, task, "cancelled", "expired", args.retention_s, True)
                expired.append(id)
        return expired

    def cancel(self, keys: Sequence[str], args: Args) -> list[str]:
        """A task that does not run ends; of one that runs it is noted how to end it."""
        id, how = args.id, args.how
        task = self.tasks.get(id)
        if task is None or task.state.final:
            return ["none", task.state if task else TaskState.GONE]
        if how == "waiting" and task.state in (PLACED, RUNNING):
            return ["none", task.state]
        if task.state == RUNNING:
            if task.cancel is None or how != "after":
                task.cancel = how
            return ["asked"]
        self._end(id, task, "cancelled", args.why, args.retention_s, True)
        return ["cancelled"]

    def note(self, keys: Sequence[str], args: Args) -> int:
        """Why a taken task has found no place yet."""
        noted = 0
        for key, r in zip(keys, args.rows, strict=True):
            task = self.tasks.get(key.partition("}:task:")[2])
            if task and task.state == TAKEN and task.attempt == r.attempt:
                task.why = r.why
                noted += 1
        return noted

    def offer(self, keys: Sequence[str], args: Args) -> int:
        """What a node offers, and the tasks that its worker knows."""
        node, offer, digest = args.node, args.offer, args.digest
        before, changed = self.shapes.get(node, ""), self.shapes.get(node, "") != offer
        if offer:
            self.shapes[node] = offer
        else:
            self.shapes.pop(node, None)
        if digest and digest not in self.names:
            self.names[digest], changed = KnownTasks(args.tasks), True
            self.apps[digest] = max(self.apps.values(), default=0) + 1
        used = {digest_of(parse_resources(other)) for other in self.shapes.values()}
        old = digest_of(parse_resources(before)) if before else ""
        if old and old not in used:
            self.names.pop(old, None)
            self.apps.pop(old, None)
        return int(changed)

    # -- what they share ---------------------------------------------------------------------------------------------

    def _wake(self, channel: str, me: str = "") -> None:
        """Tells the scheduler that began to wait last, but not `me`; where nobody hears that, the one before; a few."""
        heard, tries = 0, 0
        while self.waiters and not heard and tries < 16:
            name, tries = self.waiters.pop(), tries + 1
            heard = 0 if name == me else self.world.publish(f"{channel}:{name}", "wake")

    def _seat(self, task: Task, state: TaskState, place: Place, seat: Seat) -> None:
        task.state, task.partition, task.seat, task.why = state, place.partition, seat, None
        task.times["placed"] = place.since_ms

    def _to_pending(self, id: str, task: Task, due: int | None) -> None:
        task.state, task.partition, task.seat, task.scheduler = PENDING, None, None, None
        task.next = task.next if task.next and task.next[0].publication else None
        task.times["ready"] = self.world.now_ms if due is None else due
        if due is None:
            self._wait(id, task)
        else:
            self.later[id] = due

    def _after(self, delay_ms: str) -> int | None:
        return None if delay_ms == "" else self.world.now_ms + int(delay_ms)

    def _wait(self, id: str, task: Task) -> None:
        self.pending[id] = task.order
        heapq.heappush(self._order, (task.order, id))

    def _end(self, id: str, task: Task, state: str, why: str, retention_s: str, unseen: bool) -> None:
        """The task has ended; `unseen` by any worker, so that an agent must tell Celery's result backend."""
        self.pending.pop(id, None)
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

    def _tell(self, task: Task, seat: Seat, why: str) -> None:
        """A line more of the task's history, at most ten."""
        since = task.times["started" if task.state == RUNNING else task.state]
        where = f"{seat.node}/{seat.slot} inc={seat.inc}"
        line = f"{task.attempt} {task.state} {where} since={since} until={self.world.now_ms} {why}"
        task.history = [*task.history[-9:], line]

    def _bury(self, id: str, task: Task, retention_s: int) -> None:
        """A dead task's record stays while it is listed; beyond the limit the oldest leaves."""
        task.kept_s, self.dead[id] = None, self.world.now_ms
        if len(self.dead) > KEEP_DEAD:
            oldest = min(self.dead, key=lambda id: (self.dead[id], id))
            del self.dead[oldest]
            self.tasks[oldest].kept_s = retention_s

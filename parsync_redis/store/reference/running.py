"""From take to finish in the store in memory. A method with `keys` and `args` is a script; take_tasks and the
methods that end in _at are the same on values, for the simulator.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from ...model.place import Place
from ...model.task import Taken, TaskState
from .records import (
    PLACED,
    RUNNING,
    TAKEN,
    Args,
    Seat,
    Task,
)
from .tasks import Tasks


def _place(row: Any) -> Place:
    return Place(row.id, row.attempt, int(row.partition), row.node, int(row.slot), int(row.inc), int(row.since))


class Running(Tasks):
    """Take, place, start and finish tasks."""

    def take(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Give the first pending tasks to a scheduler, each with its next attempt; end those that have expired."""
        taken = self.take_tasks(args.scheduler, int(args.limit), args.retention_s, args.salt)
        if args.waits == "1" and self.pending:
            self._wake(args.channel, args.scheduler)
        elif args.waits == "1" and not taken and args.scheduler not in self.waiters:
            self.waiters.append(args.scheduler)
        reply = [word for t in taken for word in (t.id, t.attempt, t.needs, t.strategy, str(t.ready_ms), t.name)]
        due = str(min(self.later.values())) if self.later else ""
        return [len(self.pending), str(self.world.now_ms), due, *reply]

    def take_tasks(self, scheduler: str, limit: int, retention_s: str = "0", salt: str = "") -> list[Taken]:
        """Take up to `limit` tasks, in their order."""
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
            taken.append(Taken(id, task.attempt, job.needs, job.options["strategy"], task.times["ready"], job.name))
        return taken

    def give_back(self, keys: Sequence[str], args: Args) -> list[str]:
        """Return tasks that this scheduler took."""
        due = self._after(args.delay_ms)
        return [self.give_back_at(args.scheduler, r.id, r.attempt, r.why, due) for r in args.rows]

    def give_back_at(self, scheduler: str, id: str, attempt: str, why: str, due: int | None) -> str:
        """Give back one task and return its word."""
        task = self.tasks.get(id)
        if not (task and task.state == TAKEN and task.scheduler == scheduler and attempt in ("", task.attempt)):
            return "stale"
        task.why = why or task.why
        self._to_pending(id, task, due)
        return "pending"

    def confirm(self, keys: Sequence[str], args: Args) -> list[str]:
        """Give a place to each task that is still taken, by this attempt."""
        return [self.confirm_at(_place(row)) for row in args.rows]

    def confirm_at(self, place: Place) -> str:
        """Confirm one task and return its word."""
        task, seat = self.tasks.get(place.task), Seat(place.node, place.slot, place.inc)
        if task and task.state == TAKEN and task.attempt == place.attempt:
            self._seat(task, PLACED, place, seat)
            return "placed"
        return "yours" if task and task.state in (PLACED, RUNNING) and task.at(place.attempt, seat) else "stale"

    def start(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Start the current attempt, once, at the place that confirm gave it, if it did."""
        return [word for row in args.rows for word in self.start_at(_place(row))]

    def start_at(self, place: Place) -> tuple[str, bytes]:
        """Start one task; return the word, and the message or the state that refuses it."""
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
        """Accept the outcome of the current attempt, from its place."""
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
        """Finish one task and return its word."""
        id, task = place.task, self.tasks.get(place.task)
        if task is None or not task.at(place.attempt, Seat(place.node, place.slot, place.inc)):
            return "stale"
        if task.state != RUNNING:
            return "yours" if task.state == outcome else "stale"
        if (outcome == "again" or task.next) and outcome != "cancelled" and task.cancel is None:
            job, due, task.expires_ms = task.next or (task.job, None, task.expires_ms)
            task.job = job._replace(publication=job.publication or task.job.publication)
            task.order = (9 - int(job.options["priority"])) * 10**12 + task.order % 10**12
            task.starts, task.next = 0, None
            self._to_pending(id, task, due)
            return "again"
        self._end(id, task, "cancelled" if outcome == "again" else outcome, why, retention_s, outcome == "again")
        return "ok"

    def set_reason(self, keys: Sequence[str], args: Args) -> int:
        """Record why a taken task has found no place yet."""
        noted = 0
        for key, r in zip(keys, args.rows, strict=True):
            task = self.tasks.get(key.partition("}:task:")[2])
            if task and task.state == TAKEN and task.attempt == r.attempt:
                task.why = r.why
                noted += 1
        return noted

    def _seat(self, task: Task, state: TaskState, place: Place, seat: Seat) -> None:
        task.state, task.partition, task.seat, task.why = state, place.partition, seat, None
        task.times["placed"] = place.since_ms

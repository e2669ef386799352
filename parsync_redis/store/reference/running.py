"""The scripts from take to finish in the store in memory.

A method with `keys` and `args` is a script. `took`, and the methods that end in _at, take and
return values instead, for the simulator.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from ...model.kind import Kind
from ...model.order import with_priority
from ...model.place import Place
from ...model.record import owner_of
from ...model.replies import Took, last_of_each
from ...model.task import Taken
from .accounts import shares_of
from .records import PENDING, PLACED, RUNNING, TAKEN, Args, Task
from .tasks import Tasks


class Running(Tasks):
    """The scripts that take, place, start and finish tasks."""

    def take(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Take the first tasks of some kinds for a scheduler, and return the changed kinds."""
        rows = [(row.kind, int(row.limit)) for row in args.rows]
        numbers = {kind: str(number) for number, (kind, _) in reversed([*enumerate(rows, 1)])}
        took = self.took(args.scheduler, rows, args.since, int(args.most), args.salt)
        if args.waits == "wake":
            del self.waiters[len(self.waiters) - self._wake(args.channel, args.scheduler) :]
        elif args.waits == "wait":
            if args.scheduler not in self.waiters[-17:]:
                self.waiters = [name for name in self.waiters if name != args.scheduler] + [
                    args.scheduler
                ]
        elif args.scheduler in self.waiters:
            self.waiters.remove(args.scheduler)
        tasks = [
            word
            for t in took.tasks
            for word in (numbers[t.kind.text], t.id, t.attempt, f"{t.ready_ms} {t.last}".strip())
        ]
        changes = [word for change in took.changes for word in change]
        due = "" if took.due_ms is None else str(int(took.due_ms))
        return [took.version, str(took.now_ms), due, int(took.anew), int(took.more), changes, tasks]

    def took(
        self,
        scheduler: str,
        rows: Sequence[tuple[str, int]],
        since: str = "0",
        most: int = 1000,
        salt: str = "",
    ) -> Took:
        """Take on values, without waiters. Arguments: see `QueueCalls.take`.

        salt: the end of the attempts, with the scheduler's name.
        """
        now = self.world.now_ms
        salt = (salt or f".{scheduler}.0") + (f"u{self.undone}" if self.undone else "")
        tasks = [
            Taken(
                id,
                self.tasks[id].attempt,
                Kind.of(kind),
                self.tasks[id].ready_ms,
                self.tasks[id].last or "",
            )
            for kind, limit in rows
            for id in self.pop(kind, self.accounts.room(kind, limit))
            if self._is_taken(id, salt)
        ]
        due_tasks = [(due_ms, id) for id, due_ms in self.later.items() if due_ms <= now]
        for _, id in heapq.nsmallest(most, due_tasks):
            del self.later[id]
            self.tasks[id].come_due()
            self.enter(self.tasks[id].job.kind, id, self.tasks[id].order)
        self.write_kinds()
        version, anew, has_more, changes = self.changes_since(since, most)
        accounts = dict.fromkeys(account for kind, _ in rows for account, _ in shares_of(kind))
        if accounts:
            lines = [(f"={account}", self.accounts.line(account)) for account in accounts]
            changes = last_of_each([*changes, *lines])
        next_due = min(self.later.values()) if self.later else None
        return Took(version, now, next_due, anew, has_more, changes, tasks)

    def _is_taken(self, id: str, salt: str) -> bool:
        """Take a task that has left its kind's queue; return False if the task has expired."""
        task = self.tasks[id]
        if self._expired(task):
            self._end(id, task, "cancelled", "expired", True)
            return False
        task.state = TAKEN
        task.attempt = f"{task.takes + 1}@{task.life}{salt}"
        self.accounts.enter(task.job.kind, id)
        return True

    def give_back(self, keys: Sequence[str], args: Args) -> list[str]:
        """Return tasks that this scheduler took to the queue."""
        words = [self._give_back(args.scheduler, r.id, r.attempt, r.how, r.why) for r in args.rows]
        _, has_room = self.write_kinds()
        if has_room:  # not for the tasks of this call: their scheduler has found no seat
            self._wake(args.channel)
        return words

    def give_back_at(self, scheduler: str, id: str, attempt: str, how: str) -> str:
        """Give back one task and return its word."""
        word = self._give_back(scheduler, id, attempt, how, "")
        self.write_kinds()
        return word

    def _give_back(self, scheduler: str, id: str, attempt: str, how: str, why: str) -> str:
        task = self.tasks.get(id)
        took_it = task and task.state == TAKEN and owner_of(task.attempt) == scheduler
        if task is None or not took_it or attempt not in ("", task.attempt):
            return "stale"
        if how == "undo" and attempt:
            self.undone += 1
            self._leave_accounts(id, task, undone=True)
            task.state = PENDING
            task.attempt = ""
            self.enter(task.job.kind, id, task.order)
            return "pending"
        task.why = why or task.why
        self._to_pending(id, task, None)
        return "pending"

    def confirm(self, keys: Sequence[str], args: Args) -> list[str]:
        """Write the place of each task that is still taken, by this attempt."""
        judged = [
            (str(number), self.confirm_at(Place.of(row.text)))
            for number, row in enumerate(args.rows, 1)
        ]
        return [word for pair in judged if pair[1] != "placed" for word in pair]

    def confirm_at(self, place: Place) -> str:
        """Confirm one task and return its word."""
        task = self.tasks.get(place.task)
        if task and task.state == TAKEN and task.attempt == place.attempt:
            task.state = PLACED
            task.place = place
            return "placed"
        return (
            "yours" if task and task.state in (PLACED, RUNNING) and task.place == place else "stale"
        )

    def start(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Start the current attempts of at most `most` tasks, each attempt once.

        An attempt starts only at the place that confirm wrote, if confirm wrote a place.
        """
        places = [Place.of(row.text) for row in args.rows]
        most = int(args.most)
        waits = self._beyond(most, places) if len(places) > most else ()
        answers = [
            ("wait", b"") if row in waits else self.start_at(place)
            for row, place in enumerate(places)
        ]
        return [word for words in answers for word in words]

    def _beyond(self, most: int, places: Sequence[Place]) -> set[int]:
        """Return the rows of the tasks that must wait, if more than `most` tasks ask to start.

        Tasks that run already count first, then the other tasks in the queue's order.
        """
        able: list[tuple[float, int]] = []
        waits = set[int]()
        for row, place in enumerate(places):
            task = self.find(place.task)
            if task is not None and task.state == RUNNING and task.place == place:
                most -= 1
                if most < 0:
                    waits.add(row)
            elif task is not None and self._may_start(task, place):
                able.append((task.order, row))
        return waits | {row for _, row in sorted(able)[max(0, most) :]}

    def start_at(self, place: Place) -> tuple[str, bytes]:
        """Start one task; return the word, and the message or the state that refuses the start."""
        task = self.find(place.task)
        if task is None:
            return "refused", b"gone"
        if task.state == RUNNING and task.place == place:
            return "yours", task.job.message
        if self._may_start(task, place):
            task.state = RUNNING
            task.place = place
            task.started_ms = self.world.now_ms
            return "ok", task.job.message
        return "refused", task.state.encode()

    def _may_start(self, task: Task, place: Place) -> bool:
        is_taken = task.state == TAKEN and task.attempt == place.attempt
        return is_taken or (task.state == PLACED and task.place == place)

    def finish(self, keys: Sequence[str], args: Args) -> list[str]:
        """Accept the outcome of the current attempt, from its place."""
        replies = []
        for number, row in enumerate(args.rows, 1):
            unstored = row.outcome.startswith("unstored ")
            outcome, _, why = row.outcome.removeprefix("unstored ").partition(" ")
            word = self._finish(Place.of(row.text), outcome, why, unstored)
            if word != "ok":
                replies += [str(number), word]
        self._write_kinds(args.channel)
        return replies

    def finish_at(self, place: Place, outcome: str, why: str = "") -> str:
        """Finish one task and return its word."""
        word = self._finish(place, outcome, why)
        self.write_kinds()
        return word

    def _finish(self, place: Place, outcome: str, why: str, unstored: bool = False) -> str:
        id = place.task
        task = self.find(place.task)
        if task is None or task.started_ms is None or task.place != place:
            return "stale"
        if task.state != RUNNING:
            return "yours" if task.state == outcome else "stale"
        if (outcome == "again" or task.next) and outcome != "cancelled" and task.cancel is None:
            kind = task.job.kind
            renewed = task.next is not None
            task.last = None if renewed else task.last
            job, due, task.expires_ms, order = task.next or (task.job, None, task.expires_ms, None)
            task.job = job._replace(publication=job.publication or task.job.publication)
            task.order = order or with_priority(task.order, job.priority)
            task.starts = 0
            task.next = None
            task.why = None
            if outcome == "again":
                task.note_last()
            self._to_pending(id, task, due, renewed=renewed, kind=kind)
            return "again"
        # a run that replaced its task has stored no result
        next_cancelled = outcome == "again" or (outcome != "cancelled" and task.next is not None)
        self._end(
            id,
            task,
            "cancelled" if next_cancelled else outcome,
            "revoked" if next_cancelled and not why else why,
            next_cancelled or unstored,
        )
        return "ok"

    def note_choices(self, keys: Sequence[str], args: Args) -> int:
        """Keep the reasons of some tasks' places, in two generations.

        Returns the number of reasons in the newest generation.
        """
        if len(self.choices[0]) >= int(args.most):
            self.choices = ({}, self.choices[0])
        self.choices[0].update({row.id: row.text for row in args.rows})
        return len(self.choices[0])

    def set_reason(self, keys: Sequence[str], args: Args) -> int:
        """Record why tasks of some kinds wait.

        Returns the number of these kinds of which tasks wait.
        """
        waiting = [(self.kinds[r.kind], r.why) for r in args.rows if r.kind in self.kinds]
        for queue, why in waiting:
            queue.why = why
        return len(waiting)

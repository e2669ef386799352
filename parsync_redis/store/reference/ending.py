"""Scripts of the store in memory that end tasks or return them. A method with `keys` and `args` is a script."""

import heapq
from collections.abc import Sequence

from ...model.task import TaskState
from .records import (
    KEEP_DEAD,
    LOOK_AGAIN_MS,
    PLACED,
    RUNNING,
    TAKEN,
    Args,
    Seat,
    Task,
)
from .tasks import Tasks


class Ending(Tasks):
    """Requeue, revive, purge, expire and cancel tasks."""

    def requeue(self, keys: Sequence[str], args: Args) -> list[str]:
        """Return tasks whose attempt lost its lease, if they still are at that attempt and place."""
        replies, max_starts = [], int(args.max_starts)
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
            if task.cancel is not None or (counts and task.starts >= int(task.job.options["max_starts"] or max_starts)):
                state = "dead" if task.cancel is None else "cancelled"
                self._end(r.id, task, state, r.why, args.retention_s, True)
                if state == "dead":
                    self._bury(r.id, task, int(args.retention_s))
                replies.append(state)
            else:
                task.starts -= task.state == RUNNING and not counts
                task.why = r.why or task.why
                self._to_pending(r.id, task, self._after(r.delay_ms))
                replies.append("pending")
        self._write_kinds(args.channel)
        return replies

    def revive(self, keys: Sequence[str], args: Args) -> list[str]:
        """Return dead tasks to pending, with all their starts before them."""
        replies = []
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
        self._write_kinds(args.channel)
        return replies

    def purge(self, keys: Sequence[str], args: Args) -> list[str]:
        """Delete the records of tasks that have ended."""
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
        """Cancel tasks that wait past their expiry; check those that are placed or run again later."""
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
        self.write_kinds()
        return expired

    def cancel(self, keys: Sequence[str], args: Args) -> list[str]:
        """Cancel tasks that do not run; record how to end those that run."""
        replies: list[str] = []
        for (id,) in args.rows:
            replies += self._cancel(id, args.why, args.how, args.retention_s)
        self.write_kinds()
        return replies

    def _cancel(self, id: str, why: str, how: str, retention_s: str) -> tuple[str, str]:
        task = self.tasks.get(id)
        if task is None or task.state.final:
            return "none", task.state if task else TaskState.GONE
        further = {"waiting": (PLACED, RUNNING), "placed": (RUNNING,)}
        if task.state in further.get(how, ()):
            return "none", task.state
        if task.state == RUNNING:
            if task.cancel is None or how != "after":
                task.cancel = how
            return "asked", ""
        self._end(id, task, "cancelled", why, retention_s, True)
        return "cancelled", ""

    def _tell(self, task: Task, seat: Seat, why: str) -> None:
        """Add a line to the task's history, which has ten at most."""
        since = task.times["started" if task.state == RUNNING else task.state]
        where = f"{seat.node}/{seat.slot} inc={seat.inc}"
        line = f"{task.attempt} {task.state} {where} since={since} until={self.world.now_ms} {why}"
        task.history = [*task.history[-9:], line]

    def _bury(self, id: str, task: Task, retention_s: int) -> None:
        """List a dead task, whose record stays while it is listed; beyond the limit the oldest leaves."""
        task.kept_s, self.dead[id] = None, self.world.now_ms
        if len(self.dead) > KEEP_DEAD:
            oldest = min(self.dead, key=lambda id: (self.dead[id], id))
            del self.dead[oldest]
            self.tasks[oldest].kept_s = retention_s

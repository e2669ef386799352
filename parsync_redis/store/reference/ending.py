"""Scripts of the store in memory that end tasks, or return them to the queue.

A method with `keys` and `args` is a script.
"""

import heapq
import re
from collections.abc import Sequence

from ...model.place import Place
from ...model.task import StoredState
from .records import EXPIRY_RECHECK_MS, MAX_DEAD, PLACED, RUNNING, TAKEN, Args, Task
from .tasks import Tasks


class Ending(Tasks):
    """The scripts requeue, revive, purge, expire, cancel and rotate."""

    def requeue(self, keys: Sequence[str], args: Args) -> list[str]:
        """Return tasks of lost leases to the queue, if they are still at that attempt and place."""
        replies = []
        max_starts = int(args.max_starts)
        for r in args.rows:
            task = self.tasks.get(r.id)
            place = Place.of(r.text)
            may_requeue = task and (r.how != "unstarted" or task.state == PLACED)
            has_attempt = task and (
                task.state == TAKEN or (task.state in (PLACED, RUNNING) and task.place == place)
            )
            if task is None or task.attempt != r.attempt or not may_requeue or not has_attempt:
                replies.append("none")
                continue
            if r.delay_ms == "":
                self._tell(task, place, r.why)
            counts = task.state == RUNNING and r.how not in ("recalled", "unbegun")
            if task.cancel is not None:
                self._end(r.id, task, "cancelled", r.why, True)
                replies.append("cancelled")
                continue
            task.starts += counts
            if counts and task.starts >= (task.job.max_starts or max_starts):
                self._bury(r.id, task, r.why)
                replies.append("dead")
            else:
                task.why = r.why or task.why
                if r.delay_ms == "" and (task.started_ms is not None or r.how == "unstarted"):
                    task.note_last()
                if r.how == "unbegun" or r.delay_ms != "":
                    task.started_ms = None
                self._to_pending(r.id, task, self._after(r.delay_ms), put_off=r.how == "unbegun")
                replies.append("pending")
        self._write_kinds(args.channel)
        return replies

    def revive(self, keys: Sequence[str], args: Args) -> list[str]:
        """Return dead tasks to pending, with no lost starts."""
        replies = []
        for (id,) in args.rows:
            task = self.find(id)
            if task is None or id not in self.dead:
                replies.append(task.state if task else "gone")
                continue
            del self.dead[id]
            task.ended_ms = None
            task.starts = 0
            task.why = args.why
            task.ready_ms = self.world.now_ms
            if task.expires_ms is not None:
                self.expires[id] = task.expires_ms
            self._to_pending(id, task, None)
            self._to_outbox(id, "pending", args.why)
            replies.append("revived")
        self._write_kinds(args.channel)
        return replies

    def purge(self, keys: Sequence[str], args: Args) -> list[str]:
        """Delete the records of tasks that have ended."""
        replies = []
        for (id,) in args.rows:
            task = self.find(id)
            if task is None or task.state != args.state:
                replies.append(task.state if task else "gone")
                continue
            self.forget(id)
            self.expires.pop(id, None)
            replies.append("purged")
        return replies

    def expire(self, keys: Sequence[str], args: Args) -> list[str]:
        """Cancel tasks that wait past their expiry; check placed and running tasks again later."""
        now = self.world.now_ms
        expired = []
        for _, id in heapq.nsmallest(
            int(args.limit), ((due, id) for id, due in self.expires.items() if due <= now)
        ):
            task = self.tasks.get(id)
            del self.expires[id]
            if task is None or task.state.final:
                continue
            has_run = task.state in (PLACED, RUNNING)
            if has_run or (task.next is not None and not self._expired(task)):
                # a line does not have its successor's expiry yet
                recheck_ms = now + EXPIRY_RECHECK_MS
                if task.expires_ms is not None and not has_run:
                    recheck_ms = min(recheck_ms, task.expires_ms)
                self.expires[id] = recheck_ms
            elif task.expires_ms is None:
                continue
            elif not self._expired(task):
                self.expires[id] = task.expires_ms
            else:
                self._end(id, task, "cancelled", "expired", True)
                expired.append(id)
        self._write_kinds(args.channel)
        self.sweep()
        return expired

    def cancel(self, keys: Sequence[str], args: Args) -> list[str]:
        """Cancel tasks that do not run; record how to end tasks that run."""
        replies: list[str] = []
        for (id,) in args.rows:
            replies += self._cancel(id, args.why, args.how)
        self._write_kinds(args.channel)
        return replies

    def _cancel(self, id: str, why: str, how: str) -> tuple[str, str]:
        task = self.find(id)
        if task is None or task.state.final:
            return "none", task.state if task else StoredState.GONE
        further = {"waiting": (PLACED, RUNNING), "placed": (RUNNING,)}
        if task.state in further.get(how, ()):
            return "none", task.state
        if task.state == RUNNING:
            if task.cancel is None or how != "after":
                task.cancel = how
            return "asked", ""
        self._end(id, task, "cancelled", why, True)
        return "cancelled", ""

    def rotate(self, keys: Sequence[str], args: Args) -> int:
        """Forget the oldest generation of ended tasks and begin a new one, twice in a retention."""
        now = self.world.now_ms
        since = self.rotated_ms
        if since is not None and since <= now < since + int(args.retention_s) * 500:
            return 0
        self.rotated_ms = now
        if since is None or since > now:
            return 0
        self.ended = ({}, *self.ended[:2])
        return 1

    def _tell(self, task: Task, place: Place, why: str) -> None:
        """Add a line to the task's history, which has ten lines at most."""
        since = {TAKEN: task.ready_ms, PLACED: place.since_ms}.get(task.state, task.started_ms)
        line = (
            f"{task.attempt} {task.state} {place.seat} inc={place.inc} since={since} "
            f"until={self.world.now_ms} {why}"
        )
        task.history = [*task.history[-9:], re.sub(r"\s", " ", line[:300])]
        self.lost += 1

    def _bury(self, id: str, task: Task, why: str) -> None:
        """Make a task dead, and list the dead task.

        Beyond MAX_DEAD listed tasks, the oldest dead task becomes an ended task, which cannot be
        revived.
        """
        self._leave_accounts(id, task)
        task.state = StoredState.DEAD
        task.cancel = None
        task.next = None
        task.ended_ms = self.world.now_ms
        task.ended_why = why
        task.why = why
        self._to_outbox(id, "dead", why)
        self.died += 1
        self.dead[id] = self.world.now_ms
        if len(self.dead) > MAX_DEAD:
            oldest = min(self.dead, key=lambda id: (self.dead[id], id))
            del self.dead[oldest]
            self.ended[0][oldest] = self.tasks.pop(oldest)

"""Calls on the queue of tasks."""

from collections.abc import Sequence
from typing import Final

from ...model.apps import KnownTasks
from ...model.kind import Kind
from ...model.limits import MAX_BATCH
from ...model.options import STORED
from ...model.place import Loss, Place
from ...model.replies import Took, Waits
from ...model.task import Submission, Taken
from ..header import Once, Word
from ..scripts import Script
from .base import Call, Calls, Reply, optional, pairs, text, words

SUBMIT: Final = Script("submit", "meta kinds changed later shapes feasible names expires dead pending: task*")
TAKE: Final = Script("take", "meta kinds changed later taken outbox pending: task:")
GIVE_BACK: Final = Script("give_back", "meta kinds changed taken pending: task*")
CONFIRM: Final = Script("confirm", "taken placed task*")
START: Final = Script("start", "taken placed task*")
FINISH: Final = Script("finish", "meta kinds changed later placed outbox pending: task*")
REQUEUE: Final = Script("requeue", "meta kinds changed later taken placed outbox dead pending: task: task*")
REVIVE: Final = Script("revive", "meta kinds changed outbox dead pending: task*")
EXPIRE: Final = Script("expire", "meta kinds changed later taken outbox expires pending: task:")
PURGE: Final = Script("purge", "dead expires task*")
CANCEL: Final = Script("cancel", "meta kinds changed later taken placed outbox pending: task*")
SET_REASON: Final = Script("set_reason", "kinds")
OFFER: Final = Script("offer", "shapes feasible names apps")
ALL: Final = (
    SUBMIT,
    TAKE,
    GIVE_BACK,
    CONFIRM,
    START,
    FINISH,
    REQUEUE,
    REVIVE,
    EXPIRE,
    PURGE,
    CANCEL,
    SET_REASON,
    OFFER,
)

_SUBMISSION: Final = (
    "id",
    "name",
    "needs",
    *STORED,
    "delay_ms",
    "expiry_ms",
    "wait",
    "after",
    "publication",
    "message",
)
_OUTCOME: Final = ("id", "attempt", "node", "slot", "inc", "outcome", "why")
_LOST: Final = ("id", "attempt", "node", "slot", "inc", "why", "how", "delay_ms")
_PLACE: Final = ("id", "attempt", "partition", "node", "slot", "inc", "since")


class QueueCalls(Calls):
    """The life of tasks; each method names its script, whose header says what it does."""

    def submit(self, tasks: Sequence[Submission]) -> Call[list[str]]:
        """Submit at most MAX_BATCH tasks; a word per task: submitted, exists, infeasible, unknown, next, stale."""
        values: list[Word] = []
        for t in tasks:
            values += (
                t.id,
                t.name,
                t.options.needs.text,
                *t.options.record(),
                "" if t.delay_ms is None else t.delay_ms,
                "" if t.expiry_ms is None else t.expiry_ms,
                int(t.options.wait_for_capacity),
                t.after,
                t.publication,
                t.message,
            )
        return self._queue(SUBMIT, words, {"channel": self.keys.tick}, [t.id for t in tasks], _SUBMISSION, values)

    def take(
        self,
        scheduler: str,
        rows: Sequence[tuple[str, int]] = (),
        since: str = "0",
        most: int = MAX_BATCH,
        salt: str = "",
        waits: Waits = "",
    ) -> Call[Took]:
        """Take the first tasks of some kinds: (kind, how many at most), MAX_BATCH in all; those that have expired end.

        since: what the copy of `kinds` stands at, Took.version of the last reply, "0" if there is none; most: how many
        changes of it to tell, and how many delayed tasks to let wait that have come due. salt: ends the attempts,
        '.482913', and is random. waits: "wait" to be woken when the next kind begins to wait; "wake" to wake another.
        """
        once: Once = {
            "scheduler": scheduler,
            "since": since,
            "most": most,
            "salt": salt,
            "retention_s": self.retention_s,
            "channel": self.keys.tick,
            "waits": waits,
        }
        values = [word for row in rows for word in row]
        return self._queue(TAKE, lambda reply: _took(rows, reply), once, (), ("kind", "limit"), values)

    def give_back(self, scheduler: str, tasks: Sequence[tuple[str, str, str]]) -> Call[list[str]]:
        """Return taken tasks to their kinds: (id, attempt or '' for any, why); a word per task: pending, stale."""
        values = [word for task in tasks for word in task]
        names = ("id", "attempt", "why")
        return self._queue(GIVE_BACK, words, {"scheduler": scheduler}, [id for id, _, _ in tasks], names, values)

    def confirm(self, places: Sequence[Place]) -> Call[list[str]]:
        """Write the places of taken tasks; a word per task: placed, yours, stale."""
        return self._queue(CONFIRM, words, {}, [p.task for p in places], _PLACE, _places(places))

    def start(self, places: Sequence[Place]) -> Call[list[tuple[str, bytes]]]:
        """Start attempts; (ok or yours, the message to run) or (refused, the task's state) per task."""

        def read(reply: Reply) -> list[tuple[str, bytes]]:
            return [(text(word), message) for word, message in zip(reply[::2], reply[1::2], strict=True)]

        return self._queue(START, read, {}, [p.task for p in places], _PLACE, _places(places))

    def finish(self, outcomes: Sequence[tuple[Place, str, str]]) -> Call[list[str]]:
        """Report outcomes: (place, outcome, why); a word per task: ok, again, yours, stale."""
        once: Once = {"channel": self.keys.tick, "retention_s": self.retention_s}
        values: list[Word] = []
        for p, outcome, why in outcomes:
            values += (p.task, p.attempt, p.node, p.slot, p.inc, outcome, why)
        return self._queue(FINISH, words, once, [p.task for p, _, _ in outcomes], _OUTCOME, values)

    def requeue(
        self, lost: Sequence[tuple[Place, str]], how: Loss = "", delays_ms: Sequence[int | None] = ()
    ) -> Call[list[str]]:
        """Return the tasks of lost leases: (place, why); a word per task: pending, dead, cancelled, none.

        how: see Loss. delays_ms: for how long each must not be taken again, None for at once; () is all at once.
        """
        once: Once = {"channel": self.keys.tick, "retention_s": self.retention_s, "max_starts": self.max_starts}
        values: list[Word] = []
        for (p, why), delay_ms in zip(lost, delays_ms or [None] * len(lost), strict=True):
            values += (p.task, p.attempt, p.node, p.slot, p.inc, why, how, optional(delay_ms))
        return self._queue(REQUEUE, words, once, [p.task for p, _ in lost], _LOST, values)

    def revive(self, ids: Sequence[str], why: str) -> Call[list[str]]:
        """Return at most MAX_BATCH dead tasks to pending; a word per task: revived, or its present state."""
        return self._queue(REVIVE, words, {"channel": self.keys.tick, "why": why}, ids, ("id",), ids)

    def expire(self, limit: int = MAX_BATCH) -> Call[list[str]]:
        """Cancel tasks that wait past their expiry and return their ids; it checks `limit` expiries that have come."""
        return self._queue(EXPIRE, words, {"retention_s": self.retention_s, "limit": limit})

    def cancel(self, ids: Sequence[str], why: str = "cancelled", how: str = "SIGTERM") -> Call[list[tuple[str, str]]]:
        """Cancel at most MAX_BATCH tasks; of each (cancelled, ''), (none, its state), or (asked, '') if it runs.

        how: the signal that ends a run; "after" lets the run end; "waiting" leaves a task alone that has a place,
        "placed" one that runs.
        """

        def read(reply: Reply) -> list[tuple[str, str]]:
            return [(text(word), text(state)) for word, state in pairs(reply)]

        once: Once = {"retention_s": self.retention_s, "why": why, "how": how}
        return self._queue(CANCEL, read, once, ids, ("id",), ids)

    def purge(self, state: str, ids: Sequence[str]) -> Call[list[str]]:
        """Delete the records of tasks in this final state; a word per task: purged, or its present state."""
        return self._queue(PURGE, words, {"state": state}, ids, ("id",), ids)

    def set_reason(self, reasons: Sequence[tuple[str, str]]) -> Call[int]:
        """Write why tasks of kinds wait: (kind, why); the number of these kinds of which tasks wait."""
        values = [word for reason in reasons for word in reason]
        return self._queue(SET_REASON, int, {}, (), ("kind", "why"), values)

    def offer(self, node: str, offer: str, tasks: KnownTasks | None = None) -> Call[int]:
        """Tell submit what a node offers ('' forgets it), and which tasks the offer's digest stands for; 1 if new."""
        digest, known = ("", "") if tasks is None else (tasks.digest, tasks.text)
        return self._queue(OFFER, int, {"node": node, "offer": offer, "digest": digest, "tasks": known})


def _places(places: Sequence[Place]) -> list[Word]:
    values: list[Word] = []
    for p in places:
        values += (p.task, p.attempt, p.partition, p.node, p.slot, p.inc, p.since_ms)
    return values


def _took(asked: Sequence[tuple[str, int]], reply: Reply) -> Took:
    version, now_ms, due_ms, anew, more, changes, tasks = reply
    rows = list(zip(*[iter(words(tasks))] * 4, strict=True))
    return Took(
        text(version),
        int(now_ms),
        float(due_ms) if due_ms else None,
        bool(int(anew)),
        bool(int(more)),
        list(pairs(words(changes))),
        [Taken(id, attempt, Kind.of(asked[int(row) - 1][0]), int(ms)) for row, id, attempt, ms in rows if attempt],
        [(id, why) for _, id, attempt, why in rows if not attempt],
    )

"""Calls on the queue of tasks."""

from collections.abc import Sequence
from typing import Final

from ...model.apps import KnownTasks
from ...model.limits import MAX_BATCH
from ...model.options import STORED, Strategy
from ...model.place import Loss, Place
from ...model.replies import Took
from ...model.task import Submission, Taken
from ..header import Once, Word
from ..scripts import Script
from .base import Call, Calls, Reply, optional, text, words

_STRATEGIES: Final = frozenset(Strategy)

SUBMIT: Final = Script("submit", "meta pending later shapes feasible names expires dead task*")
TAKE: Final = Script("take", "meta pending later taken outbox task:")
GIVE_BACK: Final = Script("give_back", "pending later taken task*")
CONFIRM: Final = Script("confirm", "taken placed task*")
START: Final = Script("start", "taken placed task*")
FINISH: Final = Script("finish", "meta pending later placed outbox task*")
REQUEUE: Final = Script("requeue", "meta pending later taken placed outbox dead task: task*")
REVIVE: Final = Script("revive", "meta pending later outbox dead task*")
EXPIRE: Final = Script("expire", "pending later taken outbox expires task:")
PURGE: Final = Script("purge", "dead expires task*")
CANCEL: Final = Script("cancel", "pending later taken placed outbox task")
SET_REASON: Final = Script("set_reason", "task*")
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

    def take(self, scheduler: str, limit: int, salt: str = "", waits: bool = False) -> Call[Took]:
        """Take up to `limit` (at most MAX_BATCH) pending tasks for a scheduler; those that have expired end.

        `salt` ends their attempts, '.482913', and is random. If the scheduler `waits` and there is no task, the next
        one wakes it; if it leaves some, another scheduler that waits is woken.
        """
        once: Once = {
            "scheduler": scheduler,
            "limit": min(limit, MAX_BATCH),
            "salt": salt,
            "retention_s": self.retention_s,
            "channel": self.keys.tick,
            "waits": int(waits),
        }
        return self._queue(TAKE, _took, once)

    def give_back(
        self, scheduler: str, tasks: Sequence[tuple[str, str, str]], delay_ms: int | None = None
    ) -> Call[list[str]]:
        """Return taken tasks: (id, attempt or '' for any, why); a word per task: pending, stale."""
        once: Once = {"scheduler": scheduler, "delay_ms": optional(delay_ms)}
        values = [word for task in tasks for word in task]
        return self._queue(GIVE_BACK, words, once, [id for id, _, _ in tasks], ("id", "attempt", "why"), values)

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

    def cancel(self, id: str, why: str = "cancelled", how: str = "SIGTERM") -> Call[list[str]]:
        """Cancel a task; [cancelled], [asked] (it runs, and the signal `how` ends it) or [none, state].

        how "after" lets the run end; "waiting" leaves a task alone that has a place.
        """
        once: Once = {"id": id, "retention_s": self.retention_s, "why": why, "how": how}
        return self._queue(CANCEL, words, once, tasks=[id])

    def purge(self, state: str, ids: Sequence[str]) -> Call[list[str]]:
        """Delete the records of tasks in this final state; a word per task: purged, or its present state."""
        return self._queue(PURGE, words, {"state": state}, ids, ("id",), ids)

    def set_reason(self, reasons: Sequence[tuple[str, str, str]]) -> Call[int]:
        """Write why taken tasks have found no place yet: (id, attempt, why); the number of tasks written."""
        values = [word for _, attempt, why in reasons for word in (attempt, why)]
        return self._queue(SET_REASON, int, {}, [id for id, _, _ in reasons], ("attempt", "why"), values)

    def offer(self, node: str, offer: str, tasks: KnownTasks | None = None) -> Call[int]:
        """Tell submit what a node offers ('' forgets it), and which tasks the offer's digest stands for; 1 if new."""
        digest, known = ("", "") if tasks is None else (tasks.digest, tasks.text)
        return self._queue(OFFER, int, {"node": node, "offer": offer, "digest": digest, "tasks": known})


def _places(places: Sequence[Place]) -> list[Word]:
    values: list[Word] = []
    for p in places:
        values += (p.task, p.attempt, p.partition, p.node, p.slot, p.inc, p.since_ms)
    return values


def _took(reply: Reply) -> Took:
    rows = list(zip(*[iter(words(reply[3:]))] * 6, strict=True))
    tasks = [
        Taken(id, attempt, needs, strategy if strategy in _STRATEGIES else "", int(ready), name)
        for id, attempt, needs, strategy, ready, name in rows
        if attempt
    ]
    failed = [(id, why) for id, attempt, why, *_ in rows if not attempt]
    return Took(int(reply[0]), int(reply[1]), tasks, failed, float(reply[2]) if reply[2] else None)

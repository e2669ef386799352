"""Calls on the queue of tasks."""

from collections.abc import Callable, Sequence
from typing import Final

from ...model.apps import KnownTasks
from ...model.kind import Kind
from ...model.limits import MAX_BATCH
from ...model.place import Loss, Place
from ...model.record import Record, options_text
from ...model.replies import Took, Waits
from ...model.task import Submission, Taken
from ..header import Once, Word
from ..scripts import Script
from .base import Call, Calls, Reply, optional, pairs, text, words

_RECORD: Final = "tasks messages taken running dead ended ended_1 ended_2"
"""The keys that tell what is known of a task; extra: as well."""

SUBMIT: Final = Script(
    "submit",
    "meta kinds changed feasible tasks messages ended ended_1 ended_2 pending:",
    "later shapes names expires dead taken running extra:",
)
TAKE: Final = Script(
    "take",
    "meta kinds changed later tasks taken running pending:",
    "messages dead ended ended_1 ended_2 outbox extra:",
)
GIVE_BACK: Final = Script("give_back", f"meta kinds changed {_RECORD} pending: extra:")
CONFIRM: Final = Script("confirm", "taken running")
START: Final = Script("start", "taken running messages", "tasks dead ended ended_1 ended_2 extra:")
FINISH: Final = Script(
    "finish",
    "tasks messages running ended",
    "meta kinds changed later outbox taken dead ended_1 ended_2 pending: extra:",
)
REQUEUE: Final = Script("requeue", f"meta kinds changed later outbox {_RECORD} pending: extra:")
REVIVE: Final = Script("revive", f"meta kinds changed outbox expires {_RECORD} pending: extra:")
EXPIRE: Final = Script("expire", f"meta kinds changed later outbox expires {_RECORD} pending: extra:")
PURGE: Final = Script("purge", f"expires {_RECORD} extra:")
CANCEL: Final = Script("cancel", f"meta kinds changed later outbox {_RECORD} pending: extra:")
ROTATE: Final = Script("rotate", "meta ended ended_1 ended_2")
READ_TASKS: Final = Script("read_tasks", f"kinds {_RECORD} extra:")
SET_REASON: Final = Script("set_reason", "kinds")
OFFER: Final = Script("offer", "meta shapes feasible names apps")
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
    ROTATE,
    READ_TASKS,
    SET_REASON,
    OFFER,
)

_SUBMISSION: Final = ("id", "kind", "options", "message")
_LOST: Final = ("id", "attempt", "text", "why", "how", "delay_ms")
_PLACE: Final = ("id", "attempt", "text")


class QueueCalls(Calls):
    """The life of tasks; each method names its script, whose header says what it does."""

    def submit(self, tasks: Sequence[Submission], apps: str = "") -> Call[list[str]]:
        """Submit at most MAX_BATCH tasks; a word per task: submitted, exists, infeasible, unknown, next, stale.

        apps: Apps.stamp of what the tasks were made from. If the apps are others now, nothing is written and the word
        of all tasks is changed.
        """
        kinds: dict[str, int] = {}
        values: list[Word] = []
        last, kind = None, 0
        for t in tasks:
            if last is None or t.name != last.name or t.options is not last.options:
                kind, last = kinds.setdefault(f"{t.options.priority} {t.kind.text}", len(kinds) + 1), t
            values += (t.id, kind, options_text(t), t.message)
        once: Once = {"channel": self.keys.tick, "apps": apps, "what": "\n".join(kinds)}
        return self._queue(SUBMIT, _but("submitted", len(tasks)), once, _SUBMISSION, values)

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
        changes of it to tell, and how many delayed tasks to let wait that have come due. salt: '.482913', ends the
        attempts behind the scheduler's name, and is random. waits: "wait" to be woken when the next kind begins to
        wait; "wake" to wake another.
        """
        once: Once = {
            "scheduler": scheduler,
            "since": since,
            "most": most,
            "salt": f".{scheduler}{salt or '.0'}",
            "retention_s": self.retention_s,
            "channel": self.keys.tick,
            "waits": waits,
        }
        values = [word for row in rows for word in row]
        return self._queue(TAKE, lambda reply: _took(rows, reply), once, ("kind", "limit"), values)

    def give_back(self, scheduler: str, tasks: Sequence[tuple[str, str, str]]) -> Call[list[str]]:
        """Return taken tasks to their kinds: (id, attempt or '' for any, why); a word per task: pending, stale."""
        values = [word for task in tasks for word in task]
        names = ("id", "attempt", "why")
        return self._queue(GIVE_BACK, words, {"scheduler": scheduler}, names, values)

    def confirm(self, places: Sequence[Place]) -> Call[list[str]]:
        """Write the places of taken tasks; a word per task: placed, yours, stale."""
        return self._queue(CONFIRM, _but("placed", len(places)), {}, _PLACE, _places(places))

    def start(self, places: Sequence[Place]) -> Call[list[tuple[str, bytes]]]:
        """Start attempts; (ok or yours, the message to run) or (refused, the task's state) per task."""

        def read(reply: Reply) -> list[tuple[str, bytes]]:
            return list(zip(words(reply[::2]), reply[1::2], strict=True))

        return self._queue(START, read, {}, _PLACE, _places(places))

    def finish(self, outcomes: Sequence[tuple[Place, str, str]]) -> Call[list[str]]:
        """Report outcomes: (place, outcome, why); a word per task: ok, again, yours, stale."""
        once: Once = {"channel": self.keys.tick, "retention_s": self.retention_s}
        values: list[Word] = []
        for p, outcome, why in outcomes:
            values += (p.task, p.text, f"{outcome} {why}" if why else outcome)
        return self._queue(FINISH, _but("ok", len(outcomes)), once, ("id", "text", "outcome"), values)

    def requeue(
        self, lost: Sequence[tuple[Place, str]], how: Loss = "", delays_ms: Sequence[int | None] = ()
    ) -> Call[list[str]]:
        """Return the tasks of lost leases: (place, why); a word per task: pending, dead, cancelled, none.

        how: see Loss. delays_ms: for how long each must not be taken again, None for at once; () is all at once.
        """
        once: Once = {"channel": self.keys.tick, "retention_s": self.retention_s, "max_starts": self.max_starts}
        values: list[Word] = []
        for (p, why), delay_ms in zip(lost, delays_ms or [None] * len(lost), strict=True):
            values += (p.task, p.attempt, p.text, why, how, optional(delay_ms))
        return self._queue(REQUEUE, words, once, _LOST, values)

    def revive(self, ids: Sequence[str], why: str) -> Call[list[str]]:
        """Return at most MAX_BATCH dead tasks to pending; a word per task: revived, or its present state."""
        return self._queue(REVIVE, words, {"channel": self.keys.tick, "why": why}, ("id",), ids)

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
        return self._queue(CANCEL, read, once, ("id",), ids)

    def purge(self, state: str, ids: Sequence[str]) -> Call[list[str]]:
        """Delete the records of tasks in this final state; a word per task: purged, or its present state."""
        return self._queue(PURGE, words, {"state": state}, ("id",), ids)

    def rotate(self) -> Call[int]:
        """Forget the oldest generation of tasks that have ended, if it is time; 1 if it was."""
        return self._queue(ROTATE, int, {"retention_s": self.retention_s})

    def read_tasks(self, ids: Sequence[str], extras: bool = True) -> Call[list[Record]]:
        """Read all that is known of at most MAX_BATCH tasks; extras: their rare fields as well."""

        def read(reply: Reply) -> list[Record]:
            rows = zip(*[iter(reply[1:])] * 7, strict=True)
            return [Record.of(id, int(reply[0]), row) for id, row in zip(ids, rows, strict=True)]

        return self._queue(READ_TASKS, read, {"extras": int(extras)}, ("id",), ids)

    def set_reason(self, reasons: Sequence[tuple[str, str]]) -> Call[int]:
        """Write why tasks of kinds wait: (kind, why); the number of these kinds of which tasks wait."""
        values = [word for reason in reasons for word in reason]
        return self._queue(SET_REASON, int, {}, ("kind", "why"), values)

    def offer(self, node: str, offer: str, tasks: KnownTasks | None = None) -> Call[int]:
        """Tell submit what a node offers ('' forgets it), and which tasks the offer's digest stands for; 1 if new."""
        digest, known = ("", "") if tasks is None else (tasks.digest, tasks.text)
        return self._queue(OFFER, int, {"node": node, "offer": offer, "digest": digest, "tasks": known})


def _places(places: Sequence[Place]) -> list[Word]:
    return [word for p in places for word in (p.task, p.attempt, p.text)]


def _but(usual: str, size: int) -> Callable[[Reply], list[str]]:
    """Return the reader of (row, word)*: the usual word for all rows that are not named."""

    def read(reply: Reply) -> list[str]:
        found = [usual] * size
        for row, word in pairs(reply):
            found[int(row) - 1] = text(word)
        return found

    return read


def _took(asked: Sequence[tuple[str, int]], reply: Reply) -> Took:
    version, now_ms, due_ms, anew, more, changes, tasks = reply
    kinds = [Kind.of(kind) for kind, _ in asked]
    numbers, ids, attempts, since = tasks[::4], words(tasks[1::4]), words(tasks[2::4]), words(tasks[3::4])
    rows = list(zip(numbers, ids, attempts, since, strict=True))
    return Took(
        text(version),
        int(now_ms),
        float(due_ms) if due_ms else None,
        bool(int(anew)),
        bool(int(more)),
        list(pairs(words(changes))),
        [Taken(id, attempt, kinds[int(number) - 1], int(ms)) for number, id, attempt, ms in rows if attempt],
        [(id, why) for _, id, attempt, why in rows if not attempt],
    )

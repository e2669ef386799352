"""Calls on the queue of tasks: what happens to each task on its way."""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

from ....model.ids import shards_of
from ....model.kind import Kind
from ....model.limits import MAX_BATCH
from ....model.place import GiveBack, HowLost, Place
from ....model.record import options_text
from ....model.replies import AfterTake, Took, last_of_each
from ....model.task import Submission, Taken
from ..header import Once, Word
from ..lengths import cut
from ..scripts import Script
from .base import Call, Calls, Reply, optional, pairs, text, words

SUBMIT: Final = Script("submit")
TAKE: Final = Script("take")
GIVE_BACK: Final = Script("give_back")
CONFIRM: Final = Script("confirm")
START: Final = Script("start")
FINISH: Final = Script("finish")
REQUEUE: Final = Script("requeue")
QUEUE_SCRIPTS: Final = (SUBMIT, TAKE, GIVE_BACK, CONFIRM, START, FINISH, REQUEUE)

_SUBMISSION_ROW: Final = ("id", "kind", "options", "message")
_LOST_ROW: Final = ("id", "attempt", "text", "why", "how", "delay_ms")
_PLACE_ROW: Final = ("id", "attempt", "text")

_id_of = attrgetter("id")
_task_of = attrgetter("task")
_id_of_row = itemgetter(0)


def _first_task(row: tuple[Place, Any, Any]) -> str:
    """Return the id of the task whose place begins a row."""
    return row[0].task


class QueueCalls(Calls):
    """Calls on tasks on their way. A script's header says what the script does.

    The rows of a call may be of several shards, except the rows of take.
    """

    def submit(self, tasks: Sequence[Submission], apps: Sequence[str] = ()) -> Call[list[str]]:
        """Submit at most MAX_BATCH tasks. Returns a word per task.

        The words are submitted, exists, infeasible, unknown, next, stale, changed and elsewhere.
        apps: Apps.stamps of what the tasks were made from; if a shard's apps have changed since,
        the shard writes nothing, and the word of its tasks is changed. The word is elsewhere if the
        queue has another number of shards.
        """
        count = self.keys.shards

        def make(shard: int, tasks: Sequence[Submission]) -> Call[list[str]]:
            kinds: dict[str, int] = {}
            values: list[Word] = []
            last = None
            kind = 0
            for t in tasks:
                if last is None or t.name != last.name or t.options is not last.options:
                    kind = kinds.setdefault(f"{t.options.priority} {t.kind.text}", len(kinds) + 1)
                    last = t
                values += (t.id, kind, options_text(t), t.message)
            once: Once = {
                "channel": self.keys.wakes(shard),
                "shards": count,
                "apps": apps[shard] if shard < len(apps) else "",
                "what": "\n".join(kinds),
            }
            return self._queue(
                SUBMIT, _words_by_row("submitted", len(tasks)), once, _SUBMISSION_ROW, values, shard
            )

        return self._spread(tasks, _id_of, make, count)

    def take(
        self,
        scheduler: str,
        rows: Sequence[tuple[str, int]] = (),
        since: str = "0",
        most: int = MAX_BATCH,
        salt: str = "",
        waits: AfterTake = "",
        shard: int = 0,
    ) -> Call[Took]:
        """Take the first tasks of some kinds in a shard, MAX_BATCH in all. Cancels expired tasks.

        rows: (kind, maximum number of its tasks); 0 only marks those of its accounts that are full.
        since: the version of the copy of `kinds`, as Took.version of the last reply; "0" for none.
        most: maximum number of changed kinds in the reply, and of delayed tasks that begin to wait
            because they are due.
        salt: '.482913', a random end of the attempts, behind the scheduler's name.
        waits: "wait" to be woken when the next kind begins to wait, "wake" to wake another
            scheduler.
        """
        once: Once = {
            "scheduler": scheduler,
            "since": since,
            "most": most,
            "salt": f".{scheduler}{salt or '.0'}",
            "retention_s": self.retention_s,
            "channel": self.keys.wakes(shard),
            "waits": waits,
        }
        values = [word for row in rows for word in row]
        return self._queue(
            TAKE, lambda reply: _took(rows, shard, reply), once, ("kind", "limit"), values, shard
        )

    def give_back(
        self, scheduler: str, tasks: Sequence[tuple[str, str, GiveBack, str]]
    ) -> Call[list[str]]:
        """Return taken tasks to their kinds. Returns a word per task: pending or stale.

        tasks: (id, attempt or '' for any attempt, how, why).
        """

        def make(shard: int, tasks: Sequence[tuple[str, str, GiveBack, str]]) -> Call[list[str]]:
            values = [
                word for id, attempt, how, why in tasks for word in (id, attempt, how, cut(why))
            ]
            names = ("id", "attempt", "how", "why")
            once: Once = {"channel": self.keys.wakes(shard), "scheduler": scheduler}
            return self._queue(GIVE_BACK, words, once, names, values, shard)

        return self._spread(tasks, _id_of_row, make)

    def confirm(self, places: Sequence[Place]) -> Call[list[str]]:
        """Write the places of taken tasks. Returns a word per task: placed, yours or stale."""

        def make(shard: int, places: Sequence[Place]) -> Call[list[str]]:
            return self._queue(
                CONFIRM,
                _words_by_row("placed", len(places)),
                {},
                _PLACE_ROW,
                _places(places),
                shard,
            )

        return self._spread(places, _task_of, make)

    def start(
        self, places: Sequence[Place], most: int = MAX_BATCH
    ) -> Call[list[tuple[str, bytes]]]:
        """Start at most `most` attempts. Returns a pair per task.

        The pairs are (ok or yours, the message), (wait, "") and (refused, the state). On one shard,
        the tasks that come first in the queue start. On several shards, the tasks that are named
        first start.
        """

        def read(reply: Reply) -> list[tuple[str, bytes]]:
            return list(zip(words(reply[::2]), reply[1::2], strict=True))

        count = self.keys.shards
        first = Counter(shards_of((place.task for place in places[:most]), count))

        def make(shard: int, places: Sequence[Place]) -> Call[list[tuple[str, bytes]]]:
            return self._queue(
                START, read, {"most": first[shard]}, _PLACE_ROW, _places(places), shard
            )

        return self._spread(places, _task_of, make, count)

    def finish(self, outcomes: Sequence[tuple[Place, str, str]]) -> Call[list[str]]:
        """Report outcomes: (place, outcome, why). Returns ok, again, yours or stale per task."""

        def make(shard: int, outcomes: Sequence[tuple[Place, str, str]]) -> Call[list[str]]:
            once: Once = {"channel": self.keys.wakes(shard), "retention_s": self.retention_s}
            values: list[Word] = []
            for p, outcome, why in outcomes:
                values += (p.task, p.text, f"{outcome} {cut(why)}" if why else outcome)
            return self._queue(
                FINISH,
                _words_by_row("ok", len(outcomes)),
                once,
                ("id", "text", "outcome"),
                values,
                shard,
            )

        return self._spread(outcomes, _first_task, make)

    def requeue(
        self,
        lost: Sequence[tuple[Place, str]],
        how: HowLost = "",
        delays_ms: Sequence[int | None] = (),
    ) -> Call[list[str]]:
        """Return the tasks of lost leases, (place, why), to the queue. Returns a word per task.

        The words are pending, dead, cancelled and none.

        how: see Loss.
        delays_ms: for how long each task must not be taken again, None for no delay; () means no
            delay for any task.
        """

        def make(shard: int, rows: Sequence[tuple[Place, str, int | None]]) -> Call[list[str]]:
            once: Once = {
                "channel": self.keys.wakes(shard),
                "retention_s": self.retention_s,
                "max_starts": self.max_starts,
            }
            values: list[Word] = []
            for p, why, delay_ms in rows:
                values += (p.task, p.attempt, p.text, cut(why), how, optional(delay_ms))
            return self._queue(REQUEUE, words, once, _LOST_ROW, values, shard)

        delays = delays_ms or [None] * len(lost)
        rows = [(place, why, delay_ms) for (place, why), delay_ms in zip(lost, delays, strict=True)]
        return self._spread(rows, _first_task, make)


def _places(places: Sequence[Place]) -> list[Word]:
    return [word for p in places for word in (p.task, p.attempt, p.text)]


def _words_by_row(usual: str, size: int) -> Callable[[Reply], list[str]]:
    """Return the reader of (row, word)*: rows that the reply leaves out have the word `usual`."""

    def read(reply: Reply) -> list[str]:
        answers = [usual] * size
        for row, word in pairs(reply):
            answers[int(row) - 1] = text(word)
        return answers

    return read


def _took(kinds_asked: Sequence[tuple[str, int]], shard: int, reply: Reply) -> Took:
    version, now_ms, due_ms, anew, has_more, changes, tasks = reply
    kinds = [Kind.of(kind) for kind, _ in kinds_asked]
    numbers = tasks[::4]
    ids = words(tasks[1::4])
    attempts = words(tasks[2::4])
    since = words(tasks[3::4])
    rows = list(zip(numbers, ids, attempts, since, strict=True))
    lines = list(pairs(words(changes)))
    if any(kind.tenant or kind.limits for kind in kinds):
        lines = last_of_each(lines)
    return Took(
        text(version),
        int(now_ms),
        float(due_ms) if due_ms else None,
        bool(int(anew)),
        bool(int(has_more)),
        lines,
        [
            Taken(id, attempt, kinds[int(number) - 1], int(ms))
            if " " not in ms
            else Taken.of(id, attempt, kinds[int(number) - 1], ms)
            for number, id, attempt, ms in rows
            if attempt
        ],
        [(id, why) for _, id, attempt, why in rows if not attempt],
        shard,
    )

"""Calls on single tasks from outside, on their records, and on what submit judges by."""

from collections.abc import Sequence
from typing import Final

from ....model.apps import KnownTasks
from ....model.limits import MAX_BATCH, MAX_CHOICES
from ....model.record import Record
from ..header import Once
from ..lengths import cut
from ..scripts import Script
from .base import Call, Calls, Reply, itself, pairs, text, words

REVIVE: Final = Script("revive")
EXPIRE: Final = Script("expire")
PURGE: Final = Script("purge")
CANCEL: Final = Script("cancel")
ROTATE: Final = Script("rotate")
READ_TASKS: Final = Script("read_tasks")
SET_REASON: Final = Script("set_reason")
NOTE_CHOICES: Final = Script("note_choices")
FIX_SHARDS: Final = Script("fix_shards")
OFFER: Final = Script("offer")
TASK_SCRIPTS: Final = (
    REVIVE,
    EXPIRE,
    PURGE,
    CANCEL,
    ROTATE,
    READ_TASKS,
    SET_REASON,
    NOTE_CHOICES,
    OFFER,
    FIX_SHARDS,
)


class TaskCalls(Calls):
    """Calls on records of tasks. A script's header says what the script does.

    The ids of a call may be of several shards. A call without ids is on every shard.
    """

    def revive(self, ids: Sequence[str], why: str) -> Call[list[str]]:
        """Return at most MAX_BATCH dead tasks to pending.

        Returns a word per task: revived, or its present state.
        """

        def make(shard: int, ids: Sequence[str]) -> Call[list[str]]:
            return self._queue(
                REVIVE,
                words,
                {"channel": self.keys.wakes(shard), "why": cut(why)},
                ("id",),
                ids,
                shard,
            )

        return self._spread(ids, itself, make)

    def expire(self, limit: int = MAX_BATCH) -> Call[list[str]]:
        """Cancel tasks that wait past their expiry; return their ids.

        limit: the number of expiries that are checked in each shard.
        """

        def make(shard: int) -> Call[list[str]]:
            once: Once = {
                "channel": self.keys.wakes(shard),
                "retention_s": self.retention_s,
                "limit": limit,
            }
            return self._queue(EXPIRE, words, once, shard=shard)

        return self._everywhere(make, _chained)

    def cancel(
        self, ids: Sequence[str], why: str = "cancelled", how: str = "SIGTERM"
    ) -> Call[list[tuple[str, str]]]:
        """Cancel at most MAX_BATCH tasks.

        Returns a pair per task: (cancelled, ''), (asked, '') if the task runs, or (none, its
        state). how: the signal that ends a run. "after" lets the run end. "waiting" leaves alone a
        task that has a place, "placed" a task that runs.
        """

        def read(reply: Reply) -> list[tuple[str, str]]:
            return [(text(word), text(state)) for word, state in pairs(reply)]

        def make(shard: int, ids: Sequence[str]) -> Call[list[tuple[str, str]]]:
            once: Once = {
                "channel": self.keys.wakes(shard),
                "retention_s": self.retention_s,
                "why": cut(why),
                "how": how,
            }
            return self._queue(CANCEL, read, once, ("id",), ids, shard)

        return self._spread(ids, itself, make)

    def purge(self, state: str, ids: Sequence[str]) -> Call[list[str]]:
        """Delete the records of tasks in this final state.

        Returns a word per task: purged, or its present state.
        """

        def make(shard: int, ids: Sequence[str]) -> Call[list[str]]:
            return self._queue(PURGE, words, {"state": state}, ("id",), ids, shard)

        return self._spread(ids, itself, make)

    def rotate(self) -> Call[int]:
        """Forget the oldest generation of ended tasks if it is time; return 1 if it was."""
        once: Once = {"retention_s": self.retention_s}
        return self._everywhere(lambda shard: self._queue(ROTATE, int, once, shard=shard), max)

    def read_tasks(self, ids: Sequence[str], extras: bool = True) -> Call[list[Record]]:
        """Read the records of at most MAX_BATCH tasks. extras: read their rare fields as well."""

        def make(shard: int, ids: Sequence[str]) -> Call[list[Record]]:
            def read(reply: Reply) -> list[Record]:
                rows = zip(*[iter(reply[1:])] * 7, strict=True)
                return [
                    Record.of(id, int(reply[0]), row) for id, row in zip(ids, rows, strict=True)
                ]

            return self._queue(READ_TASKS, read, {"extras": int(extras)}, ("id",), ids, shard)

        return self._spread(ids, itself, make)

    def set_reason(self, reasons: Sequence[tuple[str, str]], shard: int | None = None) -> Call[int]:
        """Write why tasks of some kinds wait: (kind, why).

        shard: the shard, None for all.

        Returns the number of these kinds of which tasks wait.
        """
        values = [word for kind, why in reasons for word in (kind, cut(why))]

        def make(shard: int) -> Call[int]:
            return self._queue(SET_REASON, int, {}, ("kind", "why"), values, shard)

        return self._everywhere(make, sum) if shard is None else make(shard)

    def note_choices(self, choices: Sequence[tuple[str, str]], shard: int) -> Call[int]:
        """Keep why some tasks of a shard have their places: (id, text).

        Returns the number of texts in the newest generation.
        """
        values = [word for choice in choices for word in choice]
        return self._queue(NOTE_CHOICES, int, {"most": MAX_CHOICES}, ("id", "text"), values, shard)

    def offer(self, node: str, offer: str, tasks: KnownTasks | None = None) -> Call[int]:
        """Tell submit what a node offers, or with '' forget the node; return 1 if that is new.

        tasks: the tasks for which the digest in the offer stands.
        """
        digest, names_text = ("", "") if tasks is None else (tasks.digest, tasks.text)
        fields = {"node": node, "offer": offer, "digest": digest, "tasks": names_text}

        def make(shard: int) -> Call[int]:
            once: Once = {"channel": self.keys.wakes(shard), **fields}
            return self._queue(OFFER, int, once, shard=shard)

        return self._everywhere(make, max)

    def fix_shards(self, shard: int, shards: int, usual: int) -> Call[int]:
        """Fix the number of shards for submit unless it is fixed; return the fixed number.

        shards: 0 closes the shard: until a number is fixed, submit refuses all tasks, and the
            answer is `usual` if tasks were submitted before, else 0.
        usual: the number that counts if tasks were submitted before.
        """
        return self._queue(FIX_SHARDS, int, {"shards": shards, "usual": usual}, shard=shard)


def _chained(answers: Sequence[list[str]]) -> list[str]:
    return [word for words_of_shard in answers for word in words_of_shard]

"""Calls that find, repair and quarantine corrupt values."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ....model.place import Place
from ....wire.keys import NUMBERS, TYPES
from ..header import Once
from ..lengths import cut
from ..scripts import Script
from .base import Call, Calls, Reply, pairs, text, words

QUARANTINE: Final = Script("quarantine")
DISCARD: Final = Script("discard")
REPAIR_PARTITION: Final = Script("repair_partition")
LOOK_AT_NODES: Final = Script("look_at_nodes")
RESTORE: Final = Script("restore")
REPAIR_TASK: Final = Script("repair_task")
REPAIR_KIND: Final = Script("repair_kind")
REPAIR_QUEUE: Final = Script("repair_queue")
LOOK_OVER: Final = Script("look_over")
REPAIR_OFFERS: Final = Script("repair_offers")
REPAIR_SCRIPTS: Final = (
    QUARANTINE,
    DISCARD,
    REPAIR_PARTITION,
    LOOK_AT_NODES,
    RESTORE,
    REPAIR_TASK,
    REPAIR_KIND,
    REPAIR_QUEUE,
    LOOK_OVER,
    REPAIR_OFFERS,
)

Damage = tuple[str, str, bytes]
"""A damaged value: its key, its field ('' for the whole key), and its text."""

How = Literal["look", "shut", "open"]


class QueueCounts(NamedTuple):
    """The counts of a shard, and its damage.

    indexed: entries of all indexes together, -1 if they were not counted.
    submitted: the number of submissions.
    """

    tasks: int
    messages: int
    indexed: int
    submitted: int
    damage: Sequence[Damage]

    @property
    def agree(self) -> bool:
        """True if, by the counts, each task has a message and is in one index."""
        return self.tasks == self.messages and self.indexed in (-1, self.tasks)


class LookOverReply(NamedTuple):
    """The reply to a look at some entries of a shard.

    cursor: where the next look begins, 0 at the end.
    looked: the number of entries.
    highest: the largest number of a submission (LIFE) that the entries have.
    suspects: (id, the kind in whose queue the task waits), as the keys have them; the id b"" stands
        for a kind without a line.
    """

    cursor: int
    looked: int
    highest: int
    suspects: list[tuple[bytes, bytes]]


class RepairCalls(Calls):
    """Calls that find and repair damage. A script's header says what the script does."""

    def quarantine(self, entry: bytes, most: int) -> Call[int]:
        """Keep a damaged value, see store/repair/quarantine.py; b"" deletes all entries.

        Returns the number of entries, `most` at most.
        """
        arguments = QUARANTINE.arguments({"most": most, "entry": entry})
        return Call(QUARANTINE, [self.keys.shared("quarantine")], arguments, int)

    def discard(self, key: str, kind: str) -> Call[int]:
        """Delete a key if it has the wrong type or a damaged number; return 1 if it was deleted."""
        return Call(
            DISCARD,
            [key],
            DISCARD.arguments({"type": TYPES[kind]}, ("field",), NUMBERS.get(kind, ())),
            int,
        )

    def repair_partition(self, p: int, how: How = "open") -> Call[Sequence[Damage]]:
        """Repair what is corrupt in partition p; return the damage.

        how: "look" changes nothing. "shut" opens no slot, because leases may be lost. "open" is for
        the leader, which has put lost leases back.
        """
        return self._partition(p, REPAIR_PARTITION, _damage, {"how": how})

    def look_at_nodes(
        self, p: int, nodes: Sequence[str], cursor: int = 0, most: int = 0
    ) -> Call[tuple[bool, int]]:
        """Check some nodes and about `most` leases of partition p.

        Returns (sound, the cursor of the next look, 0 at the end). With cursor 0 the counts are
        checked as well.
        """

        def read(reply: Reply) -> tuple[bool, int]:
            return text(reply[0]) == "sound", int(reply[1])

        return self._partition(
            p, LOOK_AT_NODES, read, {"cursor": cursor, "most": most}, (), ("node",), nodes
        )

    def restore(self, p: int, places: Sequence[Place]) -> Call[list[str]]:
        """Put back the leases of places in partition p.

        Returns a word per place: back, yours, other or gone.
        """
        return self._partition(
            p, RESTORE, words, {}, (), ("text",), [place.text for place in places]
        )

    def repair_queue(self, shard: int, level: int = 0, look: bool = False) -> Call[QueueCounts]:
        """Delete keys of another type and repair the numbers of a shard; return counts and damage.

        level: a number of submissions that the shard has had; a damaged number continues well
            beyond it.
        look: change nothing.
        """
        once: Once = {
            "how": "look" if look else "repair",
            "level": level,
            "shards": self.keys.shards,
        }

        def read(reply: Reply) -> QueueCounts:
            return QueueCounts(
                int(reply[0]), int(reply[1]), int(reply[2]), int(reply[3]), _damage(reply[4:])
            )

        return self._queue(REPAIR_QUEUE, read, once, shard=shard)

    def look_over(
        self, shard: int, index: str | bytes, cursor: int = 0, most: int = 1000
    ) -> Call[LookOverReply]:
        """Check about `most` entries of a shard for contradictions.

        index: "tasks", or an index of the queue, as "pending KIND".
        """

        def read(reply: Reply) -> LookOverReply:
            suspects = [(bytes(id), bytes(kind)) for id, kind in pairs(reply[3:])]
            return LookOverReply(int(reply[0]), int(reply[1]), int(reply[2]), suspects)

        return self._queue(
            LOOK_OVER, read, {"what": index, "cursor": cursor, "most": most}, shard=shard
        )

    def repair_task(
        self,
        id: str | bytes,
        why: str,
        kind: str | bytes = "",
        shard: int | None = None,
        run: str = "",
    ) -> Call[str]:
        """Repair a task whose record and indexes differ.

        Returns sound (nothing differed), gone, or the task's state now.

        kind: the kind of which the task was seen to wait, if that may differ from its record's
            kind.
        shard: where the task was seen, if that may differ from the shard of its id.
        run: what `running` should have for the task, by a lease.
        """
        shard = self.keys.shard_of(text(id)) if shard is None else shard
        once: Once = {
            "id": id,
            "channel": self.keys.wakes(shard),
            "retention_s": self.retention_s,
            "why": cut(why),
            "kind": kind,
            "run": run,
        }
        return self._queue(REPAIR_TASK, text, once, shard=shard)

    def repair_offers(self, shard: int, flaws: Sequence[tuple[str, str | bytes]]) -> Call[int]:
        """Forget flawed digests, and flawed answers of `feasible`; return how many were forgotten.

        A digest stands for the tasks of an app (model/apps.py).

        flaws: ("digest", DIGEST) for a digest with a damaged text; ("unused", DIGEST) for a digest
        to be forgotten unless a node offers it; ("question", "NAME NEEDS") for an answer to be
        judged again.
        """
        values = [word for pair in flaws for word in pair]
        return self._queue(REPAIR_OFFERS, int, {}, ("what", "text"), values, shard)

    def repair_kind(self, kind: str | bytes, shard: int = 0) -> Call[int]:
        """Make the line of a kind in a shard anew from its tasks; return 1 if the line changed."""
        return self._queue(REPAIR_KIND, int, {"kind": kind}, shard=shard)


def _damage(reply: Reply) -> Sequence[Damage]:
    return [
        (text(key), text(field), line) for key, field, line in zip(*[iter(reply)] * 3, strict=True)
    ]

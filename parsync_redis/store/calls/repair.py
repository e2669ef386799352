"""Calls that repair and quarantine corrupt values."""

from typing import Final

from ...wire.keys import NUMBERS, TYPES
from ..header import Once
from ..lengths import cut
from ..scripts import Script
from .base import Call, Calls, Reply, text

QUARANTINE: Final = Script("quarantine", "quarantine")
DISCARD: Final = Script("discard", "any")
REPAIR_PARTITION: Final = Script("repair_partition", "meta slots free left nodes alive lost notes")
REPAIR_TASK: Final = Script(
    "repair_task",
    "meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 pending: extra:",
)
REPAIR_KIND: Final = Script("repair_kind", "meta kinds changed pending:")
ALL: Final = (QUARANTINE, DISCARD, REPAIR_PARTITION, REPAIR_TASK, REPAIR_KIND)


class RepairCalls(Calls):
    """Repairs; each method names its script, whose header says what it does."""

    def quarantine(self, entry: bytes, most: int) -> Call[int]:
        """Keep something damaged, see store/quarantine.py; b"" deletes all. The number kept, at most `most`."""
        arguments = QUARANTINE.arguments({"most": most, "entry": entry})
        return Call(QUARANTINE, [self.keys.shared("quarantine")], arguments, int)

    def discard(self, key: str, kind: str) -> Call[int]:
        """Delete a key of this kind if it has the wrong type or a damaged number; 1 if it was deleted."""
        return Call(DISCARD, [key], DISCARD.arguments({"type": TYPES[kind]}, ("field",), NUMBERS.get(kind, ())), int)

    def repair_partition(self, p: int) -> Call[list[tuple[str, str, bytes]]]:
        """Remove what is corrupt in partition p: (key, field or '' for the whole key, text) each."""

        def read(reply: Reply) -> list[tuple[str, str, bytes]]:
            return [(text(key), text(field), line) for key, field, line in zip(*[iter(reply)] * 3, strict=True)]

        return self._partition(p, REPAIR_PARTITION, read, {})

    def repair_task(self, id: str, why: str, kind: str | bytes = "", shard: int | None = None) -> Call[str]:
        """Repair a task whose record and indexes differ: sound (they do not), gone, or the state it has now.

        kind: the kind of which it was seen to wait, if that may not be its record's. shard: where it was seen, if that
        may not be the shard of its id.
        """
        once: Once = {"id": id, "retention_s": self.retention_s, "why": cut(why), "kind": kind}
        return self._queue(REPAIR_TASK, text, once, shard=self.keys.shard_of(id) if shard is None else shard)

    def repair_kind(self, kind: str | bytes, shard: int = 0) -> Call[int]:
        """Make the line of a kind in a shard what its tasks say; 1 if it changed."""
        return self._queue(REPAIR_KIND, int, {"kind": kind}, shard=shard)

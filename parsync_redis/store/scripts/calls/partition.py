"""Calls on a partition: its nodes, leases and amounts."""

from collections.abc import Sequence
from typing import Final, Literal

from ....model.claim import Claim, ClaimOutcome, Verdict
from ....model.limits import MAX_BATCH
from ....model.needs import is_resources
from ....model.node import Lease
from ....model.place import Place, claim_text
from ....model.replies import Judged, Snapshot
from ..header import Once, Word
from ..scripts import Script
from .base import Call, Calls, Reply, optional, pairs, text, words

_OUTCOMES: Final = {spelling: word for word in ClaimOutcome for spelling in (word, word.encode())}

REGISTER_NODE: Final = Script("register_node")
COMMIT: Final = Script("commit")
RELEASE: Final = Script("release")
READ_PARTITION: Final = Script("read_partition")
RENEW: Final = Script("renew")
RECLAIM: Final = Script("reclaim")
SET_NODE: Final = Script("set_node")
RING: Final = Script("ring")
FORGET_NODE: Final = Script("forget_node")
PARTITION_SCRIPTS: Final = (
    REGISTER_NODE,
    COMMIT,
    RELEASE,
    READ_PARTITION,
    RENEW,
    RECLAIM,
    SET_NODE,
    RING,
    FORGET_NODE,
)


class PartitionCalls(Calls):
    """Calls on the nodes and leases of a partition. A script's header says what the script does."""

    def register_node(
        self,
        p: int,
        node: str,
        known_inc: int,
        score: float,
        offer: str,
        room: int = 0,
        capacity: str = "",
    ) -> Call[tuple[int, int]]:
        """Register a node for this process; return (incarnation, first bit).

        known_inc: the incarnation that this process has had, 0 for none.
        room: the node's waiting seats.
        capacity: what the node can give now, if that is less than its offer (model/capacity.py).
        """
        once: Once = self._told(p) | {
            "node": node,
            "known_inc": known_inc,
            "score": repr(score),
            "offer": offer,
            "room": room,
            "capacity": capacity,
        }
        return self._partition(
            p, REGISTER_NODE, lambda r: (int(r[0]), int(r[1])), once, inboxes=[node]
        )

    def commit(self, p: int, claims: Sequence[Claim]) -> Call[Judged]:
        """Judge at most MAX_BATCH claims, all on partition p."""

        def read(reply: Reply) -> Judged:
            verdicts = [Verdict(ClaimOutcome.HELD, text(reply[1]))] * len(claims)
            for row, word, detail in zip(*[iter(reply[2:])] * 3, strict=True):
                verdicts[int(row) - 1] = Verdict(_OUTCOMES[word], text(detail))
            return Judged(p, int(reply[0]), int(reply[1]), claims, verdicts)

        inboxes: dict[str, int] = {}
        epochs: set[int] = set()
        values: list[Word] = []
        for task, attempt, _, node, slots, inc, amounts_asked, first, epoch in claims:
            text_of = claim_text(task, attempt, p, node, slots, inc, amounts_asked)
            seats = f"{node}/{slots[0]}"
            bits = str(first + slots[0])
            if len(slots) > 1:
                seats = " ".join(f"{node}/{slot}" for slot in slots)
                bits = " ".join(str(first + slot) for slot in slots)
            values += (text_of, seats, bits, inboxes.setdefault(node, len(inboxes) + 1))
            epochs.add(epoch)
        # No new claim is held if the claims were made from copies of several epochs.
        once: Once = {"epoch": epochs.pop() if len(epochs) == 1 else -1}
        return self._partition(
            p, COMMIT, read, once, inboxes, ("text", "seats", "bits", "inbox"), values
        )

    def release(self, p: int, places: Sequence[Place]) -> Call[list[str]]:
        """Free the leases of places, all on partition p. Returns freed or none per place."""

        def read(reply: Reply) -> list[str]:
            answers = ["freed"] * len(places)
            for row in reply:
                answers[int(row) - 1] = "none"
            return answers

        values = [word for place in places for word in (place.seat, place.text)]
        return self._partition(p, RELEASE, read, self._told(p), (), ("seat", "text"), values)

    def read_partition(self, p: int, version: int = -1, waiter: str = "") -> Call[Snapshot]:
        """Read what changed since `version`, everything if that is -1.

        waiter: a scheduler that wants to hear of the next freed slot; '' for none.
        """

        def read(reply: Reply) -> Snapshot:
            if len(reply) == 2:
                return Snapshot(p, int(reply[0]), int(reply[1]), None, {})
            names, texts = (text(lines).split("\n") for lines in reply[4:])
            damaged = {amounts for amounts in {*texts} if amounts and not is_resources(amounts)}
            if len(names) != len(texts):
                names = []
                damaged = {"a line too many"}
            amounts_left = {
                node: "" if amounts in damaged else amounts
                for node, amounts in zip(names, texts, strict=False)
                if node
            }
            bits = reply[2] if isinstance(reply[2], bytes) else str(reply[2]).encode("latin-1")
            return Snapshot(
                p,
                int(reply[0]),
                int(reply[1]),
                bits,
                amounts_left,
                bool(int(reply[3])),
                bool(damaged),
            )

        return self._partition(p, READ_PARTITION, read, {"version": version, "waiter": waiter})

    def renew(self, p: int, node: str, inc: int) -> Call[list[str]]:
        """Move a node's counter.

        Returns [ok, counter, state, drain], [superseded, inc] or [lapsed].
        """
        return self._partition(p, RENEW, words, {"node": node, "inc": inc})

    def reclaim(
        self, p: int, node: str, inc: int = 0, moved: int | None = None, limit: int = MAX_BATCH
    ) -> Call[tuple[str, list[Lease]]]:
        """Mark a node down if its counter still is `moved`; return (word, leases that it held).

        The word is down, moved or listed. moved None: only list the leases.
        """

        def read(reply: Reply) -> tuple[str, list[Lease]]:
            return text(reply[0]), [
                Lease.of(node, int(slot), text(line)) for slot, line in pairs(reply[1:])
            ]

        once: Once = {"node": node, "inc": inc, "moved": optional(moved), "limit": limit}
        return self._partition(p, RECLAIM, read, once)

    def set_node(
        self, p: int, node: str, word: str, inc: int | None = None, note: str = ""
    ) -> Call[list[str]]:
        """Change a node: drain, over, undrain, suspect, trust, leaving, until, ahead or offer.

        Returns [ok, state, drain] or [gone].
        """
        once: Once = self._told(p) | {
            "node": node,
            "inc": optional(inc),
            "word": word,
            "note": note,
        }
        return self._partition(p, SET_NODE, words, once)

    def ring(self, place: Place) -> Call[str]:
        """Ring the doorbell of a lease again. Returns rung, waiting or none."""
        once: Once = {"seat": place.seat, "text": place.text}
        return self._partition(place.partition, RING, text, once, inboxes=[place.node])

    def forget_node(self, p: int, node: str, inc: int, how: Literal["", "left"] = "") -> Call[str]:
        """Remove the record of a node that is down and holds nothing.

        Returns forgotten, held, drained, up or gone.
        """
        once: Once = {"node": node, "inc": inc, "how": how}
        return self._partition(p, FORGET_NODE, text, once, inboxes=[node])

    def _told(self, p: int) -> dict[str, Word]:
        """Return the arguments by which a script tells schedulers of free slots of partition p."""
        return {"channel": self.keys.frees(p), "partition": p}

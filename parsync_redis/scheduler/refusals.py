"""Find nodes that refuse claims which the present state allows: a scheduler would claim there again and again.

A claim is usually lost because the copy was old: another scheduler was first. If the copy was the present state, the
copy and the commit disagree, as when a bit says that a slot is free which has a lease. Such a node becomes suspect.
"""

from typing import Final, NamedTuple

from ..model.claim import ClaimOutcome, Verdict
from ..model.ids import decode_id
from ..model.printable import printable
from ..model.replies import Judged

IN_A_ROW: Final = 5
"""A node becomes suspect after so many refusals in a row, each of a claim by another read of its partition."""

LONGEST: Final = 500
"""Characters of a note that tell the last refusal: a damaged lease may be of any length."""


class Refusing(NamedTuple):
    """A node that is to be made suspect, and why."""

    partition: int
    node: str
    inc: int
    why: str


class Refusals:
    """Counts the claims that each incarnation of a node refused in a row, one for each read of its partition."""

    def __init__(self) -> None:
        self._reads: dict[int, int] = {}
        self._rows: dict[tuple[int, str, int], tuple[int, int]] = {}

    def on_snapshot(self, partition: int) -> None:
        """Note that a partition was read."""
        self._reads[partition] = self._reads.get(partition, 0) + 1

    def on_judged(self, judged: Judged, current: bool, lost: int) -> list[Refusing]:
        """Return the nodes that refuse claims. current: the copy was the present state. lost: how many claims are."""
        if not (self._rows or (lost and current)):
            return []
        read, found = self._reads.get(judged.partition, 0), list[Refusing]()
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            key = judged.partition, claim.node, claim.inc
            if verdict.won:
                self._rows.pop(key, None)
            elif current and verdict.word in (ClaimOutcome.CONFLICT, ClaimOutcome.SHORT):
                count, last = self._rows.get(key, (0, -1))
                if last == read:
                    continue
                self._rows[key] = count + 1, read
                if count + 1 == IN_A_ROW:
                    del self._rows[key]
                    found.append(Refusing(*key, _why(verdict)))
        return found


def _why(verdict: Verdict) -> str:
    """Return the note of a node whose last claim got this verdict."""
    if verdict.word is ClaimOutcome.SHORT:
        last = f"it has left {verdict.detail or 'nothing'}"
    elif verdict.detail:
        last = f"task {decode_id(verdict.detail)} has the slot"
    else:
        last = "the slot takes no claims"
    return f"{IN_A_ROW} claims in a row were refused although it looks free; the last: {printable(last)[:LONGEST]}"

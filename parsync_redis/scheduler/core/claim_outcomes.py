"""Find nodes that refuse claims which the present state allows: a scheduler would claim there again
and again.

A claim is usually lost because the copy was old: another scheduler was first. If the copy was the
present state, the copy and the commit disagree, as when a bit says that a slot is free which has a
lease. Such a node becomes suspect.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ...model.claim import ClaimOutcome, Verdict
from ...model.ids import decode_id
from ...model.limits import MAX_BATCH
from ...model.place import Place
from ...model.printable import printable
from ...model.replies import Judged, Snapshot

# Count merged claims: those that won although their partition had changed since the scheduler read
# it.


class Merges:
    """The version of each partition of which the scheduler's copy knows every change, its own ones
    as well.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take in a partition that was read."""
        self._known[snapshot.partition] = snapshot.version

    def is_current(self, judged: Judged, won: int) -> bool:
        """Return True if the scheduler knew every change before a commit of which `won` claims won:
        none is merged.

        A commit in which some claim won moves the version on by one.
        """
        known = self._known.get(judged.partition, -1) + (won > 0)
        # changes of others are unknown until the partition is read
        self._known[judged.partition] = known
        return known == judged.version


# How many tasks a scheduler takes and claims in one round trip: fewer where its claims are lost.
#
# A large call costs the server less a task. But the seats are chosen before the call, so the larger
# it is, the more other schedulers have taken some of them meanwhile. At the highest rates, calls of
# 100 instead of 500 cost 7 % more and cut lost claims from 1 to 0.1 % (docs/performance.md).

LEAST: Final = 100
MANY: Final = 0.005
"""Lost claims, as a share of all, above which calls become smaller; below half of it they grow
again.
"""

WINDOW: Final = 1000
"""Claims over which that share is smoothed."""


class CallSize:
    """The number of tasks in a call, by the verdicts of the latest claims."""

    def __init__(self) -> None:
        self.tasks = MAX_BATCH
        self._lost = 0.0

    def on_judged(self, claims: int, lost: int) -> None:
        """Take in the verdicts on so many claims."""
        if not claims:
            return
        self._lost += min(1.0, claims / WINDOW) * (lost / claims - self._lost)
        if self._lost > MANY:
            self.tasks = max(LEAST, self.tasks // 2)
        elif self._lost < MANY / 2:
            self.tasks = min(MAX_BATCH, self.tasks * 2)


# The won claims of a scheduler that are not confirmed yet.


class WonClaims:
    """Won claims, in the order in which they were won.

    A worker that starts a task confirms it as well.
    """

    def __init__(self) -> None:
        self.unconfirmed: list[Place] = []
        self._due = 0  # how many of them were won before the last look at them

    @property
    def due(self) -> list[Place]:
        """The won claims that had been won when `confirmed` was called last."""
        return self.unconfirmed[: self._due]

    def confirmed(self, count: int, but: Iterable[Place] = ()) -> None:
        """Drop the first `count`, `but` some; those that are left are due to confirm
        the next time.
        """
        self.unconfirmed[:count] = but
        self._due = len(self.unconfirmed)

    def take(self) -> list[Place]:
        """Return the first MAX_BATCH, and drop them: a plan confirms them."""
        found = self.unconfirmed[:MAX_BATCH]
        self.unconfirmed = self.unconfirmed[MAX_BATCH:]
        self._due = max(0, self._due - MAX_BATCH)
        return found


IN_A_ROW: Final = 5
"""A node becomes suspect after so many refusals in a row, each of a claim by another read of its
partition.
"""

LONGEST: Final = 500
"""Characters of a note that tell the last refusal: a damaged lease may be of any length."""


class Refusing(NamedTuple):
    """A node that is to be made suspect, and why."""

    partition: int
    node: str
    inc: int
    why: str


class Refusals:
    """Counts the claims that each incarnation of a node refused in a row, one for each read of its
    partition.
    """

    def __init__(self) -> None:
        self._reads: dict[int, int] = {}
        self._rows: dict[tuple[int, str, int], tuple[int, int]] = {}

    def on_snapshot(self, partition: int) -> None:
        """Note that a partition was read."""
        self._reads[partition] = self._reads.get(partition, 0) + 1

    def on_judged(self, judged: Judged, current: bool, lost: int) -> list[Refusing]:
        """Return the nodes that refuse claims.

        current: the copy was the present state. lost: how many claims are.
        """
        if not (self._rows or (lost and current)):
            return []
        read = self._reads.get(judged.partition, 0)
        found = list[Refusing]()
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
    return (
        f"{IN_A_ROW} claims in a row were refused although it looks free; the last: "
        f"{printable(last)[:LONGEST]}"
    )

"""The lessons of a scheduler from the verdicts on its claims.

The scheduler counts merged claims, chooses how many tasks go into a call and among how many seats a
task with preferences chooses, confirms won claims, and finds nodes that refuse claims which the
present state allows.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...model.claim import ClaimOutcome, Verdict
from ...model.ids import decode_id
from ...model.limits import MAX_BATCH
from ...model.near import NEAR_LABEL
from ...model.place import Place
from ...model.printable import printable
from ...model.replies import Judged, Snapshot
from ...model.task import Taken
from .offers import keep


class KnownVersions:
    """The version of each partition up to which the scheduler knows every change.

    The scheduler's own claims are such changes.
    """

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take in a partition that was read."""
        self._versions[snapshot.partition] = snapshot.version

    def is_current(self, judged: Judged, won: int) -> bool:
        """Return True if the scheduler knew every change before this commit: no claim is merged.

        won: number of claims that won. A commit in which a claim won raises the version by one.
        """
        version = self._versions.get(judged.partition, -1) + (won > 0)
        # changes by other schedulers are unknown until the partition is read
        self._versions[judged.partition] = version
        return version == judged.version


MIN_TASKS: Final = 100
"""Minimum number of tasks in a call."""
MAX_LOST_SHARE: Final = 0.005
"""Share of lost claims above which calls become smaller.

Calls grow again below half of this share.
"""

SMOOTHED_CLAIMS: Final = 1000
"""Number of claims over which the share of lost claims is smoothed."""


class CallSize:
    """The number of tasks that a scheduler takes and claims in one round trip.

    A large call costs the server less for each task. But the seats are chosen before the call, so
    with a large call more claims are lost to other schedulers. At the highest rates, calls of 100
    instead of 500 tasks cost 7 % more and cut lost claims from 1 to 0.1 % (docs/performance.md).
    """

    def __init__(self) -> None:
        self.tasks = MAX_BATCH
        self._lost = 0.0

    def on_judged(self, claims: int, lost: int) -> None:
        """Take in the verdicts on `claims` claims, of which `lost` were lost."""
        if not claims:
            return
        self._lost += min(1.0, claims / SMOOTHED_CLAIMS) * (lost / claims - self._lost)
        if self._lost > MAX_LOST_SHARE:
            self.tasks = max(MIN_TASKS, self.tasks // 2)
        elif self._lost < MAX_LOST_SHARE / 2:
            self.tasks = min(MAX_BATCH, self.tasks * 2)


MAX_WIDTH: Final = 4
"""Maximum number of seats among which a task chooses: more would switch its last rule off."""
LOST_OF_PERIOD: Final = 30
CLAIMS_OF_PERIOD: Final = 2000
"""A period ends with so many lost claims or so many claims, whichever comes first."""
LEAST_GAIN: Final = 0.1
"""A doubling stays if it lowers the share of lost claims by this part of the share."""
PERIODS_OF_WIDTH: Final = 10
"""Number of periods after which a doubling that did not help is tried again."""


@dataclass(slots=True)
class Width:
    """Among how many seats a task chooses: 1, 2 or 4.

    Protean (Hadary et al., OSDI 2020) lets its candidate sets grow with conflicts; here they grow
    only while that helps.

    claims, lost: of this period.
    share_before: the share of lost claims in the period before a doubling; 0 if none is on trial.
    pause: number of periods before the next doubling.
    """

    seats: int = 1
    claims: int = 0
    lost: int = 0
    share_before: float = 0.0
    pause: int = 0

    def on_judged(self, won: bool) -> None:
        """Take in the verdict on one claim; change the width at the end of a period."""
        self.claims += 1
        self.lost += not won
        if self.lost >= LOST_OF_PERIOD or self.claims >= CLAIMS_OF_PERIOD:
            self._on_period(self.lost / self.claims)
            self.claims = 0
            self.lost = 0

    def _on_period(self, share: float) -> None:
        """Change the width by the share of lost claims in the period that ends."""
        helps = not self.share_before or share <= (1 - LEAST_GAIN) * self.share_before
        self.share_before = 0.0
        self.pause -= self.pause > 0
        if not helps:
            self.seats //= 2
            self.pause = PERIODS_OF_WIDTH
        elif share > MAX_LOST_SHARE and self.seats < MAX_WIDTH and not self.pause:
            self.share_before = share
            self.seats *= 2
        elif share < MAX_LOST_SHARE / 2 and self.seats > 1:
            self.seats //= 2


MAX_WIDTHS: Final = 10_000
"""Maximum number of widths: with `warm` each key has its own."""

_NODE: Final = re.compile(rf"\b{re.escape(NEAR_LABEL)}:[^,]*")


def _without_node(prefer: str) -> str:
    """Return preferences without the name of the node of `near`: each task may have another."""
    return _NODE.sub(NEAR_LABEL, prefer) if NEAR_LABEL in prefer else prefer


class Widths:
    """The width for each combination of needs and preferences, whatever node `near` has."""

    def __init__(self) -> None:
        self._widths: dict[tuple[str, str], Width] = {}

    def of(self, needs: str, prefer: str) -> int:
        """Return among how many seats tasks of these needs and preferences choose.

        From then on the verdicts on their claims count.
        """
        key = needs, _without_node(prefer)
        width = self._widths.get(key)
        if width is None:
            width = Width()
            keep(self._widths, key, width, MAX_WIDTHS)
        return width.seats

    def on_judged(self, judged: Judged, claimed: Mapping[str, Taken]) -> None:
        """Take in the verdicts on claims. claimed: by id, the tasks of unjudged claims."""
        if not self._widths:
            return
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            task = claimed.get(claim.task)
            width = task and self._widths.get((task.kind.needs, _without_node(task.kind.prefer)))
            if width:
                width.on_judged(verdict.won)


class WonClaims:
    """The won claims that are not confirmed yet, in the order in which they were won.

    A worker that starts a task confirms the claim as well.
    """

    def __init__(self) -> None:
        self.unconfirmed: list[Place] = []
        # number of claims that had been won when `confirmed` was called last
        self._due = 0

    @property
    def due(self) -> list[Place]:
        """The claims that had been won when `confirmed` was called last."""
        return self.unconfirmed[: self._due]

    def confirmed(self, count: int, but: Iterable[Place] = ()) -> None:
        """Drop the first `count` claims, except those in `but`.

        All claims that remain are due the next time.
        """
        self.unconfirmed[:count] = but
        self._due = len(self.unconfirmed)

    def take(self) -> list[Place]:
        """Return the first MAX_BATCH claims, for a plan to confirm, and drop them."""
        places = self.unconfirmed[:MAX_BATCH]
        self.unconfirmed = self.unconfirmed[MAX_BATCH:]
        self._due = max(0, self._due - MAX_BATCH)
        return places


REFUSALS_IN_A_ROW: Final = 5
"""Number of claims in a row, each after another read, whose refusal makes a node suspect."""

MAX_NOTE_CHARACTERS: Final = 500
"""Maximum length of the last refusal in a note: a damaged lease may be of any length."""


class RefusingNode(NamedTuple):
    """A node to be made suspect, and why."""

    partition: int
    node: str
    inc: int
    why: str


class Refusals:
    """The number of claims that each incarnation of a node refused in a row, one for each read.

    A claim is usually lost because the copy was old: another scheduler was first. If the copy was
    the present state, the copy and `commit` disagree. An example is a bit that says that a slot is
    free which has a lease. A scheduler would claim there for ever, so the node becomes suspect.
    """

    def __init__(self) -> None:
        self._reads: dict[int, int] = {}
        self._rows: dict[tuple[int, str, int], tuple[int, int]] = {}

    def on_snapshot(self, partition: int) -> None:
        """Note that a partition was read."""
        self._reads[partition] = self._reads.get(partition, 0) + 1

    def on_judged(self, judged: Judged, current: bool, lost: int) -> list[RefusingNode]:
        """Return the nodes that have refused too many claims.

        current: the copy was the present state.
        lost: number of lost claims.
        """
        if not (self._rows or (lost and current)):
            return []
        read = self._reads.get(judged.partition, 0)
        refusing = list[RefusingNode]()
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            key = judged.partition, claim.node, claim.inc
            if verdict.won:
                self._rows.pop(key, None)
            elif current and verdict.word in (ClaimOutcome.CONFLICT, ClaimOutcome.SHORT):
                count, last = self._rows.get(key, (0, -1))
                if last == read:
                    continue
                self._rows[key] = count + 1, read
                if count + 1 == REFUSALS_IN_A_ROW:
                    del self._rows[key]
                    refusing.append(RefusingNode(*key, _why(verdict)))
        return refusing


def _why(verdict: Verdict) -> str:
    """Return the note for a node whose last claim got this verdict."""
    if verdict.word is ClaimOutcome.SHORT:
        last = f"it has left {verdict.detail or 'nothing'}"
    elif verdict.detail:
        last = f"task {decode_id(verdict.detail)} has the slot"
    else:
        last = "the slot takes no claims"
    return (
        f"{REFUSALS_IN_A_ROW} claims in a row were refused although it looks free; the last: "
        f"{printable(last)[:MAX_NOTE_CHARACTERS]}"
    )

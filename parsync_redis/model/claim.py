"""A claim: slots that a scheduler asks of a partition, and the verdict on it."""

from enum import StrEnum
from typing import NamedTuple

from .place import Place, claim_text


class ClaimOutcome(StrEnum):
    """The outcome of a claim; HELD and YOURS are won, the others are lost."""

    HELD = "held"
    YOURS = "yours"
    CONFLICT = "conflict"
    SHORT = "short"
    CHANGED = "changed"


class Claim(NamedTuple):
    """Slots of one node for one attempt of a task, by a scheduler's copy of the partition, which is
    of `epoch`.

    inc: the node's incarnation; first: its first bit; asked: the amounts that the task needs,
    'gpu=1 mem=4096'.
    """

    task: str
    attempt: str
    partition: int
    node: str
    slots: tuple[int, ...]
    inc: int
    asked: str
    first: int
    epoch: int

    @property
    def text(self) -> str:
        """The text of the place that it claims, without the time."""
        return claim_text(
            self.task, self.attempt, self.partition, self.node, self.slots, self.inc, self.asked
        )

    def won(self, since_ms: int, held_amounts: str = "") -> Place:
        """Return the place of the won claim.

        since_ms: when it won. held_amounts: as in `Place.asked`; those of the claim if empty.
        """
        amounts = held_amounts or self.asked
        return Place(
            self.task,
            self.attempt,
            self.partition,
            self.node,
            self.slots,
            self.inc,
            since_ms,
            amounts,
        )


class Verdict(NamedTuple):
    """The verdict on a claim.

    detail: since when it is held, and the amounts if it has got devices; the task that has the
    slot; the amounts left; or the partition's present epoch.
    """

    word: ClaimOutcome
    detail: str

    @property
    def won(self) -> bool:
        """True if the task now holds what it claimed."""
        return self.word is ClaimOutcome.HELD or self.word is ClaimOutcome.YOURS

    @property
    def since_ms(self) -> int:
        """Since when a claim that has won holds its slots (server time)."""
        return int(self.detail.partition(" ")[0])

    @property
    def held(self) -> str:
        """The amounts that it holds if it has got devices, else ''."""
        return self.detail.partition(" ")[2] if self.won else ""

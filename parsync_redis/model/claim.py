"""A claim: slots that a scheduler asks of a partition, and the verdict on it."""

from enum import StrEnum
from typing import NamedTuple

from .place import Place, claim_text


class ClaimOutcome(StrEnum):
    """The outcome of a claim.

    HELD and YOURS mean that the claim won, all other outcomes that the claim lost.
    """

    HELD = "held"
    YOURS = "yours"
    CONFLICT = "conflict"
    SHORT = "short"
    CHANGED = "changed"


class Claim(NamedTuple):
    """A request for slots of one node, for one attempt of a task.

    epoch: the epoch of the partition copy from which the scheduler decided.
    inc: the node's incarnation.
    first: the node's first bit.
    asked: the amounts that the task needs, 'gpu=1 mem=4096'.
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
        """Return the text of the claimed place without `since`."""
        return claim_text(
            self.task, self.attempt, self.partition, self.node, self.slots, self.inc, self.asked
        )

    def won(self, since_ms: int, held_amounts: str = "") -> Place:
        """Return the place of the won claim.

        since_ms: when it won.
        held_amounts: as in `Place.asked`; those of the claim if empty.
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

    detail, by outcome: since when a won claim holds its slots, and the amounts if it got devices;
    the task that has the slot; the amounts that are free; or the partition's present epoch.
    """

    word: ClaimOutcome
    detail: str

    @property
    def won(self) -> bool:
        """Return True if the task now holds the claimed slots."""
        return self.word is ClaimOutcome.HELD or self.word is ClaimOutcome.YOURS

    @property
    def since_ms(self) -> int:
        """Return since when a won claim holds its slots (server time, ms)."""
        return int(self.detail.partition(" ")[0])

    @property
    def held(self) -> str:
        """Return the amounts of a won claim that got devices, else ''."""
        return self.detail.partition(" ")[2] if self.won else ""

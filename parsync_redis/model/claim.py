"""A claim: slots that a scheduler asks of a partition, and the verdict on it."""

from enum import StrEnum
from typing import NamedTuple


class ClaimOutcome(StrEnum):
    """The outcome of a claim; HELD and YOURS are won, the others are lost."""

    HELD = "held"
    YOURS = "yours"
    CONFLICT = "conflict"
    SHORT = "short"
    CHANGED = "changed"
    GONE = "gone"


class Claim(NamedTuple):
    """Slots of one node for one attempt of a task; `inc` is the node's incarnation as the scheduler saw it."""

    task: str
    attempt: str
    partition: int
    node: str
    inc: int
    slots: tuple[int, ...]
    needs: str


class Verdict(NamedTuple):
    """The verdict on a claim. detail: since when it is held, who has the slot, or what is left."""

    word: ClaimOutcome
    detail: str

    @property
    def won(self) -> bool:
        """True if the task now holds what it claimed."""
        return self.word in (ClaimOutcome.HELD, ClaimOutcome.YOURS)

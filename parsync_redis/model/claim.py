"""A claim: what a scheduler asks of a partition, and the verdict on it."""

from dataclasses import dataclass
from enum import StrEnum


class Word(StrEnum):
    """How commit judged a claim; HELD and YOURS are won, the others lost."""

    HELD = "held"
    YOURS = "yours"
    CONFLICT = "conflict"
    SHORT = "short"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Claim:
    """Slots of one node for one attempt of a task; `inc` is the node's incarnation as the scheduler saw it."""

    task: str
    attempt: str
    partition: int
    node: str
    inc: int
    slots: tuple[int, ...]
    needs: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word on a claim; `detail` teaches: since when it is held, who has the slot, what is left."""

    word: Word
    detail: str

    @property
    def won(self) -> bool:
        """Whether the task now holds what it claimed."""
        return self.word in (Word.HELD, Word.YOURS)

"""A place: where an attempt of a task holds its lease.

    a81f 1@17.s1.482913 p0 n1/3,4 inc=3 gpu=1 mem=4096 since=1732161994123

This text is the lease of each of its slots and its doorbell, and is compared as a whole.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from .amount import AMOUNT_PATTERN
from .devices import PLACE_AMOUNT, read_devices

_INTEGER: Final = r"0|[1-9]\d{0,14}"
_SLOT: Final = r"0|[1-9]\d{0,3}"
_PLACE_TEXT: Final = re.compile(
    rf"([A-Za-z0-9%][A-Za-z0-9%_.:@+-]{{0,3059}}) (\d{{1,9}}@[!-~]{{1,300}}) p({_SLOT}) "
    rf"([A-Za-z0-9][A-Za-z0-9_.@-]{{0,127}})/((?:{_SLOT})(?:,(?:{_SLOT}))*?) inc=({_INTEGER})"
    rf"((?: {PLACE_AMOUNT}={AMOUNT_PATTERN})*?) since=({_INTEGER})",
    re.ASCII,
)


MAX_PLACE: Final = 131_072
"""The maximum number of characters of a place; 10,000 slots need less than half."""


# frozen would be safe, and take twice the time to make one
@dataclass(slots=True, unsafe_hash=True)
class Place:
    """The slots of one node that an attempt holds; the first slot leads.

    inc: the node's incarnation.
    since_ms: when the claim was committed (server time).
    asked: the amounts that the attempt holds, 'gpu=1 mem=4096', with devices 'gpu@1=0.5 mem=4096'.
    """

    task: str
    attempt: str
    partition: int
    node: str
    slots: tuple[int, ...]
    inc: int
    since_ms: int
    asked: str = ""
    _text: str = field(default="", init=False, repr=False, compare=False)

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read the text of a place; raises ValueError for any other text."""
        match = _PLACE_TEXT.fullmatch(text) if len(text) <= MAX_PLACE else None
        if match is None:
            raise ValueError(f"not a place: {text[:200]!r}")
        task, attempt, partition, node, named, inc, amounts, since = match.groups()
        slots: tuple[int, ...] = (
            tuple(map(int, named.split(","))) if "," in named else (int(named),)
        )
        if len(slots) > 1 and len(set(slots)) < len(slots):
            raise ValueError(f"not a place, it names a slot twice: {text[:200]!r}")
        place = cls(task, attempt, int(partition), node, slots, int(inc), int(since), amounts[1:])
        place._text = text
        return place

    @property
    def slot(self) -> int:
        """Return the slot that leads, which is the first."""
        return self.slots[0]

    @property
    def attempt_number(self) -> int:
        """Return how often the task was taken in its life, without takes that were undone."""
        return int(self.attempt.partition("@")[0])

    @property
    def devices(self) -> dict[str, list[int]]:
        """Return {kind: indexes} of the devices that the attempt holds."""
        return read_devices(self.asked)

    @property
    def seat(self) -> str:
        """Return the leading slot's field of `slots`, 'n1/3'."""
        return f"{self.node}/{self.slots[0]}"

    @property
    def text(self) -> str:
        """Return the text of the place, which is its lease and its doorbell."""
        if not self._text:
            claim = claim_text(
                self.task, self.attempt, self.partition, self.node, self.slots, self.inc, self.asked
            )
            self._text = f"{claim} since={self.since_ms}"
        return self._text


def claim_text(
    task: str,
    attempt: str,
    partition: int,
    node: str,
    slots: tuple[int, ...],
    inc: int,
    amounts: str,
) -> str:
    """Return the text of a place without `since`, which commit adds."""
    named = slots[0] if len(slots) == 1 else ",".join(map(str, slots))
    place = f"{task} {attempt} p{partition} {node}/{named} inc={inc}"
    return f"{place} {amounts}" if amounts else place


GiveBack = Literal["", "undo"]
"""The way in which a task goes back: with "" its take counts, with "undo" it does not.

A take is undone if no claim of its attempt can have won.
"""

HowLost = Literal["", "unstarted", "recalled", "unbegun"]
"""The way in which an attempt was lost.

"": its lease lapsed. unstarted: its worker never started it. recalled: its run was ended on
purpose, or came too early. unbegun: its run did not begin, although the task was ready.
"""

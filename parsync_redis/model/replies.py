"""Replies of scripts that carry more than words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .claim import Claim, Verdict
from .task import Taken

AfterTake = Literal["", "wait", "wake"]
"""Of a take: "wait" asks to be woken by the next kind that begins to wait, "wake" wakes another
scheduler now.
"""


@dataclass(frozen=True, slots=True)
class Took:
    """Reply of take: the tasks that were taken, and how the scheduler's copy of `kinds` becomes the
    present one.

    version: what the copy stands at after `changes`, to be given to the next take as `since`; it
    tells nothing else. more: there are more changes, so ask again. anew: drop the copy before.
    changes: (kind, line) in their order, the line '' if no task of that kind waits. failed: (id,
    why) of tasks that ended because their records are damaged. due_ms: when the next delayed task
    is due, None if there is none; all times are the server's. All is of one shard.
    """

    version: str
    now_ms: int
    due_ms: float | None = None
    anew: bool = False
    more: bool = False
    changes: Sequence[tuple[str, str]] = ()
    tasks: Sequence[Taken] = ()
    failed: Sequence[tuple[str, str]] = ()
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """Reply of commit: the partition's version afterwards, the server's time, and one verdict per
    claim.
    """

    partition: int
    version: int
    now_ms: int
    claims: Sequence[Claim]
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Reply of read_partition; `bits` is None if nothing changed.

    Bit 0 is the most significant of the first byte.

    left: node -> its free amounts as text, '' for none. whole: of all nodes with amounts, else of
    those whose amounts changed since the version that was asked for. damaged: some node's amounts
    could not be read and are '' in `left`.
    """

    partition: int
    version: int
    epoch: int
    bits: bytes | None
    left: Mapping[str, str]
    whole: bool = True
    damaged: bool = False


LIFE: Final = 10**8
"""A scheduler's counter starts at LIFE times the epoch in which it joined, so that no two
memberships look alike.
"""


@dataclass(frozen=True, slots=True)
class Members:
    """Reply of renew_scheduler: the leader's text ('NAME moved=N'), the members' epoch, and each
    member's counter.
    """

    leader: str
    epoch: int
    counters: Mapping[str, int]

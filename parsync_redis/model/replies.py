"""The replies of scripts that have more than words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from .claim import Claim, Verdict
from .task import Taken

AfterTake = Literal["", "wait", "wake"]
"""The wish of a scheduler after its take.

wait: wake this scheduler at the next kind that begins to wait. wake: wake another scheduler now.
"""


@dataclass(frozen=True, slots=True)
class Took:
    """The reply of `take` for one shard: the tasks that were taken, and the changes of `kinds`.

    version: the version of the scheduler's copy after `changes`; the next take gets it as `since`.
    more: further changes are there, so the scheduler asks again.
    anew: the scheduler drops its copy before it applies the changes.
    changes: (kind, line) in order; the line is '' if no task of the kind waits. Also
        ('=ACCOUNT', 'HELD of CEILING') of accounts.
    failed: (id, why) of tasks that ended because their records are damaged.
    due_ms: when the next delayed task is due, None without one. All times are the server's.
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


def last_of_each(changes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the last change of each name, in their order."""
    latest: dict[str, str] = {}
    for name, line in changes:
        latest.pop(name, None)
        latest[name] = line
    return list(latest.items())


@dataclass(frozen=True, slots=True)
class Judged:
    """The reply of `commit`: the partition's new version, the server's time, the verdicts."""

    partition: int
    version: int
    now_ms: int
    claims: Sequence[Claim]
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The reply of `read_partition`.

    bits: the bitmap of free slots, None if nothing changed; bit 0 is the most significant of the
        first byte.
    left: {node: free amounts as text, '' for none}.
    whole: whether `left` has all nodes with amounts; otherwise it has the nodes whose amounts
        changed since the version of the copy.
    damaged: some amounts could not be read and are ''.
    """

    partition: int
    version: int
    epoch: int
    bits: bytes | None
    left: Mapping[str, str]
    whole: bool = True
    damaged: bool = False


LIFE: Final = 10**8
"""The factor of the epoch in a scheduler's first counter.

A scheduler's counter starts at LIFE times the epoch in which it joined, so that no two memberships
look alike.
"""


@dataclass(frozen=True, slots=True)
class Members:
    """The reply of `renew_scheduler`: the leader's text, the epoch, and each member's counter."""

    leader: str
    epoch: int
    counters: Mapping[str, int]


class WrittenPolicy(NamedTuple):
    """The reply of `write_policy`: whether it wrote, and the version of the policy that counts now.

    by, when: who wrote that version, and when, in ms as text.
    """

    is_written: bool
    version: int
    by: str
    when: str

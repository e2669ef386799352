"""A streak: failures in a row of one name on one node, beside what other nodes report of that name
in the meantime.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from .text import STREAK

MIN_RUNS_ELSEWHERE: Final = 5
"""With fewer runs on other nodes a streak says nothing."""
MIN_TRIES: Final = 3
"""A node must have gone on failing in so many reports."""
MAX_CHANCE: Final = 1e-4
"""A node whose failures are less likely than this by the failure rate of the other nodes is a black
hole.
"""


def chance_of(failed: int, runs: int, tries: int) -> float:
    """Return how likely so many failures in a row are, if of `runs` such tasks `failed` failed.

    One failure and one success are added, so that few runs convince nobody.
    """
    return float(((failed + 1) / (runs + 2)) ** tries)


class Elsewhere(NamedTuple):
    """The runs of a name that other nodes report while a streak goes on, and how many of them
    failed.
    """

    runs: int
    failed: int


class Compared(NamedTuple):
    """The answer to a node's report: the server's time (ms), whether there are other nodes, and
    what these report.
    """

    now_ms: int
    others: bool
    elsewhere: Mapping[str, Elsewhere]


@dataclass(frozen=True, slots=True)
class Streak:
    """A streak of one name on one node.

    at_ms: its last try. length: its failures. tries: the reports in which it had gone on, as
    failures of one moment may have one cause in the tasks. runs, failed: counts of other nodes,
    after it had begun. all_fail: nothing succeeds on the node. held_ms: until when the node holds
    the name back (the server's time), 0 if it does not.
    """

    name: str
    partition: int
    node: str
    inc: int
    at_ms: int
    length: int
    tries: int
    runs: int
    failed: int
    all_fail: bool
    held_ms: int = 0

    @classmethod
    def read(cls, name: str, text: str) -> "list[Streak]":
        """Read the field of a name in `streaks`; leave out lines that cannot be read."""
        streaks = []
        for line in text.splitlines():
            if (fields := STREAK.read(line)) is not None:
                length, tries, runs, failed = (
                    int(fields[field]) for field in ("length", "tries", "runs", "failed")
                )
                held_ms = int(fields.get("held", 0))
                p = int(fields["partition"])
                node = fields["name"]
                inc = int(fields["inc"])
                at_ms = int(fields["at"])
                streaks.append(
                    cls(
                        name,
                        p,
                        node,
                        inc,
                        at_ms,
                        length,
                        tries,
                        runs,
                        failed,
                        fields["all"] == "1",
                        held_ms,
                    )
                )
        return streaks

    @property
    def chance(self) -> float:
        """The probability of its tries, if this node fails as the others do; 1 if they ran too few
        such tasks.
        """
        return (
            chance_of(self.failed, self.runs, self.tries)
            if self.runs >= MIN_RUNS_ELSEWHERE
            else 1.0
        )


def damning(streaks: list[Streak]) -> list[Streak]:
    """Return those of one node's streaks that show that it is a black hole; [] if they do not.

    Streaks of several names add up if nothing succeeds on the node.
    """
    for suspects in (
        *([streak] for streak in streaks),
        [streak for streak in streaks if streak.all_fail],
    ):
        suspects = [streak for streak in suspects if streak.chance < 1]
        enough = sum(streak.tries for streak in suspects) >= MIN_TRIES
        if enough and prod(streak.chance for streak in suspects) < MAX_CHANCE:
            return suspects
    return []

"""Streaks: failures in a row of a task name on a node, compared with all other nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from .text import STREAK

MIN_RUNS_ELSEWHERE: Final = 5
"""The least number of runs on other nodes that make a streak meaningful."""
MIN_TRIES: Final = 3
"""The least number of reports in which a black hole's streak went on."""
MAX_CHANCE: Final = 1e-4
"""Probability below which the failures of a node make it a black hole.

The probability is computed from the failure rate of other nodes.
"""


def chance_of(failed: int, runs: int, tries: int) -> float:
    """Return the probability of `tries` failures in a row, if of `runs` tasks `failed` failed.

    Both counts are increased by 1, so that few runs prove little.
    """
    return float(((failed + 1) / (runs + 2)) ** tries)


class Elsewhere(NamedTuple):
    """The runs and failures of a name that other nodes report while a streak goes on."""

    runs: int
    failed: int


class Compared(NamedTuple):
    """The answer to a node's report.

    now_ms: the server's time.
    others: whether other nodes exist.
    elsewhere: what they report, by task name.
    """

    now_ms: int
    others: bool
    elsewhere: Mapping[str, Elsewhere]


@dataclass(frozen=True, slots=True)
class Streak:
    """A streak of a task name on a node.

    at_ms: the last report.
    length: the number of failures.
    tries: the number of reports in which the streak went on; the failures of a report may have a
        common cause in the tasks.
    runs, failed: the counts of other nodes since the streak began.
    all_fail: whether no task succeeds on the node.
    held_ms: until when the node holds the name back (server time), 0 if the node does not.
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
        """Read a name's field of `streaks`; leave out damaged lines."""
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
        """Return the probability of the streak if this node failed as often as other nodes do.

        1 if other nodes ran too few tasks of the name.
        """
        return (
            chance_of(self.failed, self.runs, self.tries)
            if self.runs >= MIN_RUNS_ELSEWHERE
            else 1.0
        )


def damning(streaks: list[Streak]) -> list[Streak]:
    """Return the streaks that prove a node a black hole, [] without proof.

    streaks: of the node. Streaks of several names add up if nothing succeeds on the node.
    """
    comparable = [streak for streak in streaks if streak.chance < 1]
    together = [streak for streak in comparable if streak.all_fail]
    for suspects in (*([streak] for streak in comparable), together):
        tries = sum(streak.tries for streak in suspects)
        chance = prod(streak.chance for streak in suspects)
        if tries >= MIN_TRIES and chance < MAX_CHANCE:
            return suspects
    return []

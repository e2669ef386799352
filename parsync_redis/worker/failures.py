"""Failures in a row on this node. A node on which tasks fail at once is always free, so it would get the whole queue.

While a streak is a surprise, the slots of its runs rest: they are freed one by one, with pauses that double. So the
node gets a task now and then, and other nodes have time to show whether such tasks fail there too. If they do, or if
there are no other nodes, the slots do not rest. The leader decides whether the node is suspect (decision 0035).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..model.limits import MAX_BATCH
from ..model.streak import Compared, Elsewhere, chance_of
from ..store.calls import Call, Commands
from .look_ahead import LookAhead
from .runs import Run

log = logging.getLogger("parsync.agent")

QUICK_S: Final = 1.0
"""A failure sooner than this, or than the mean run time of its name, counts for a streak."""
HARDLY: Final = 5
"""With fewer runs before the streak nobody knows how often a name fails here: two failures are a surprise."""
SURPRISE: Final = 0.01
FIRST_S: Final = 1.0
SHORTEST_S: Final = 0.02
"""The first pause is twice as long as such tasks run here, within these bounds: a node that is no faster than others
swallows nothing. It is FIRST_S if too few have succeeded here."""
UNANSWERED_S: Final = 4.0
"""If no other node tells how such tasks end, slots rest for so long, for a lease, or for twice the time that such tasks
run: others may run the first of them. Each reports five times a lease, and its second report is the first that counts.
This node hears of it with its own next one."""
LONGEST_S: Final = 60.0
KEPT: Final = 200
"""With more runs than this, half are forgotten, so that recent ones count."""

Counts = tuple[str, int, int, int]


@dataclass(slots=True)
class Tally:
    """The runs of a name here, and how many failed; `length` failed in a row after that, since since_s (monotonic).

    good_s: how long the successes ran. news, bad_news: runs and failures that were not reported. elsewhere: reports
    of other nodes.
    """

    runs: int = 0
    failed: int = 0
    good_s: float = 0.0
    length: int = 0
    since_s: float = 0.0
    news: int = 0
    bad_news: int = 0
    elsewhere: Elsewhere | None = None

    def succeed(self, seconds: float) -> None:
        """Note a success: a streak is over."""
        self.runs, self.failed = self.runs + self.length + 1, self.failed + self.length
        self.good_s += seconds
        if self.runs > KEPT:
            self.runs, self.failed, self.good_s = self.runs // 2, self.failed // 2, self.good_s / 2
        self.length, self.elsewhere = 0, None

    def fail(self, now_s: float) -> None:
        """Note a quick failure."""
        self.since_s = self.since_s if self.length else now_s
        self.length += 1

    @property
    def is_surprise(self) -> bool:
        """True if so many failures in a row are unlikely by what happened here before."""
        return self.length > 1 and (self.runs < HARDLY or chance_of(self.failed, self.runs, self.length) < SURPRISE)

    @property
    def first_s(self) -> float:
        """The first pause after its failures."""
        good = self.runs - self.failed
        return max(SHORTEST_S, min(2 * self.good_s / good, FIRST_S)) if good >= HARDLY else FIRST_S

    @property
    def fails_elsewhere(self) -> bool:
        """True if half of such tasks fail on other nodes too."""
        return (
            self.elsewhere is not None and self.elsewhere.runs > 2 and 2 * self.elsewhere.failed >= self.elsewhere.runs
        )

    @property
    def succeeds_elsewhere(self) -> bool:
        """True if such tasks succeed on other nodes in the meantime."""
        return self.elsewhere is not None and self.elsewhere.failed < self.elsewhere.runs


class Failures:
    """The failures on this node, by name. All threads share it. most_s: the longest pause.

    due: the leader and the other nodes should be told soon.
    """

    def __init__(self, ahead: LookAhead, most_s: Callable[[], float]) -> None:
        self._ahead, self._most_s = ahead, most_s
        self._lock = threading.Lock()
        self._names: dict[str, Tally] = {}
        self._node = Tally()
        self._told: set[str] = set()
        self._has_others = True
        self._pause_s = self._until_s = 0.0
        self._probes = False  # a slot was freed: the next failure is a try
        self._since_ms = 0
        self.due = False

    def ended(self, run: Run, seconds: float) -> None:
        """Note how a run ended that `failed` is known of; have its slots rest if it goes on with a streak."""
        with self._lock:
            tally = self._names.setdefault(run.name, Tally())
            tally.news, tally.bad_news = tally.news + 1, tally.bad_news + bool(run.failed)
            if not run.failed:
                tally.succeed(seconds)
                self._node.succeed(seconds)
                if self._pause_s and not any(each.is_surprise for each in self._names.values()):
                    self._pause_s = self._until_s = 0.0
            elif seconds < max(QUICK_S, self._ahead.mean_s(run.name)):
                now_s = time.monotonic()
                tally.fail(now_s)
                self._node.fail(now_s)
                if self._should_rest(tally, run.name, now_s):
                    self._rest(run, tally, now_s)

    def _rest(self, run: Run, tally: Tally, now_s: float) -> None:
        run.rests = True
        if self._probes or now_s >= self._until_s:
            if not self._pause_s:
                log.warning("%d tasks of %s failed here in a row: slots rest", tally.length, run.name)
                self._ahead.late()  # nothing may wait behind them
            self._pause_s = min(max(tally.first_s, 2 * self._pause_s), self._most_s())
            self._until_s, self._probes, self.due = now_s + self._pause_s, False, True

    def _should_rest(self, tally: Tally, name: str, now_s: float) -> bool:
        if not self._has_others or not (tally.is_surprise or self._node.is_surprise) or tally.fails_elsewhere:
            return False
        began = tally if tally.is_surprise else self._node
        return tally.succeeds_elsewhere or now_s - began.since_s < max(
            UNANSWERED_S, self._most_s(), min(2 * self._ahead.mean_s(name), LONGEST_S)
        )

    def may_free(self, run: Run) -> bool:
        """Return whether the slots of a run that has ended may be freed, as far as its streak is concerned."""
        if not run.rests:
            return True
        with self._lock:
            now_s = time.monotonic()
            if self._should_rest(self._names[run.name], run.name, now_s):
                if now_s < self._until_s:
                    return False
                self._until_s, self._probes = now_s + self._pause_s, True
            run.rests = False
            return True

    # -- reports to others -------------------------------------------------------------------------------------------

    def report(
        self, commands: Commands, partition: int, node: str, inc: int
    ) -> tuple[Call[Compared], list[Counts]] | None:
        """Return the call that tells what is new, and its counts; None if there is nothing new."""
        with self._lock:
            self.due, all_fail = False, self._node.is_surprise
            counts, told = list[Counts](), set[str]()
            for name, tally in self._names.items():
                if len(counts) == MAX_BATCH:
                    break  # the others are told with the next report
                streak = tally.length if tally.is_surprise or all_fail else 0
                if tally.news or (name in self._told and not streak):
                    counts.append((name, tally.news, tally.bad_news, streak))
                    tally.news = tally.bad_news = 0
                if streak:
                    told.add(name)
            self._told = told | self._told.difference(name for name, *_ in counts)
            if not counts:
                return None
            return commands.report_failures(partition, node, inc, self._since_ms, all_fail, counts), counts

    def reported(self, compared: Compared) -> None:
        """Take in the answer."""
        with self._lock:
            self._since_ms, self._has_others = compared.now_ms, compared.others or not compared.elsewhere
            for name, elsewhere in compared.elsewhere.items():
                if self._names[name].length:
                    self._names[name].elsewhere = elsewhere

    def not_reported(self, counts: list[Counts]) -> None:
        """Take back counts that could not be reported."""
        with self._lock:
            for name, runs, failed, _ in counts:
                tally = self._names[name]
                tally.news, tally.bad_news = tally.news + runs, tally.bad_news + failed
            self._told |= {name for name, *_ in counts}  # the end of a streak is told again

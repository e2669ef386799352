"""Failures in a row on this node.

A node on which tasks fail at once is always free, so it would get the whole queue.

While a streak of a name is a surprise, this node holds back the *name*. The node runs one task of
the name after each pause, and gives the other tasks back. The pauses double. Slots are free for
other names meanwhile, and other nodes have time to show whether such tasks fail there too. If such
tasks fail there, or if there are no other nodes, the name is not held back. The leader decides
whether the node is suspect (decisions 0035 and 0056).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from ...model.limits import MAX_BATCH
from ...model.streak import Compared, Elsewhere, chance_of
from ...store.scripts.calls import Call, Commands
from .look_ahead import LookAhead
from .runs import Run

log = logging.getLogger("parsync.agent")

QUICK_FAILURE_S: Final = 1.0
"""Seconds: a failure counts for a streak if its run was shorter, or below its name's mean."""
MIN_RUNS_KNOWN: Final = 5
"""Number of runs before a streak from which the usual rate of failures is known.

With fewer runs, two failures in a row are a surprise.
"""
NODE_STREAK: Final = 5
"""Number of failures in a row, of any names, from which the node is to blame.

Then a name is held back at its first failure.
"""
SURPRISE: Final = 0.01
FIRST_HOLD_S: Final = 1.0
SHORTEST_HOLD_S: Final = 0.02
"""The first pause is twice the run time of such tasks here, and within these two bounds.

A node that is no faster than other nodes swallows nothing then. The pause is FIRST_HOLD_S if too
few tasks of the name have succeeded here.
"""
UNANSWERED_S: Final = 4.0
"""Least seconds for which a name is held back if no other node reports such tasks.

A lease or twice the run time of such tasks counts if that is longer, because other nodes may run
their first such task now. A node reports five times a lease, and its second report is the first
that counts. This node hears of that report with its own next report.
"""
LONGEST_UNANSWERED_S: Final = 60.0
BACK_S: Final = 0.5
"""The longest wait of a task that is given back.

By then the schedulers know that its name is held back here.
"""
MAX_STREAK_IDS: Final = 1000
"""Maximum number of tasks of a streak whose ids are kept."""
MAX_TALLIED_RUNS: Final = 200
"""Number of runs above which a tally is halved, so that recent runs count more."""

NameCounts = tuple[str, int, int, int, int]
"""A name, its new runs and failures, the length of its streak, and the ms left of its hold."""


@dataclass(slots=True)
class Tally:
    """The runs of one name here: those before the streak, and the streak of failures at the end.

    runs, failed: the runs before the streak, and the failures among them.
    good_s: the sum of the run times of successes.
    length: the number of failures in the streak.
    since_s: when the streak began (monotonic seconds).
    ids: the tasks of the streak.
    new_runs, new_failures: the runs and failures that were not reported.
    elsewhere: the reports of other nodes.
    pause_s: the pause of the hold, 0 if the name is not held back.
    until_s: when the next task may run in spite of the hold.
    is_tried: that task runs, and its failure is a try.
    told_s: the end of the hold that was reported, None if the report may be lost.
    """

    runs: int = 0
    failed: int = 0
    good_s: float = 0.0
    length: int = 0
    since_s: float = 0.0
    ids: set[str] = field(default_factory=set)
    new_runs: int = 0
    new_failures: int = 0
    elsewhere: Elsewhere | None = None
    pause_s: float = 0.0
    until_s: float = 0.0
    is_tried: bool = False
    told_s: float | None = 0.0

    def succeed(self, seconds: float) -> None:
        """Note a success, which ends a streak."""
        self.runs = self.runs + self.length + 1
        self.failed = self.failed + self.length
        self.good_s += seconds
        if self.runs > MAX_TALLIED_RUNS:
            self.runs = self.runs // 2
            self.failed = self.failed // 2
            self.good_s = self.good_s / 2
        self.length = 0
        self.elsewhere = None
        self.pause_s = 0.0
        self.ids.clear()

    def fail(self, id: str, now_s: float) -> bool:
        """Note a quick failure; return whether the failure counts.

        A task that fails again says nothing new about its node.
        """
        if id in self.ids:
            return False
        if len(self.ids) < MAX_STREAK_IDS:
            self.ids.add(id)
        self.since_s = self.since_s if self.length else now_s
        self.length += 1
        return True

    def hold(self, now_s: float, most_s: float) -> None:
        """Hold the name back; the pause doubles after each try."""
        self.pause_s = min(max(self.first_s, 2 * self.pause_s), most_s)
        self.until_s = now_s + self.pause_s
        self.is_tried = False

    @property
    def is_surprise(self) -> bool:
        """True if the streak is unlikely by what happened here before."""
        return self.length > 1 and (
            self.runs < MIN_RUNS_KNOWN or chance_of(self.failed, self.runs, self.length) < SURPRISE
        )

    @property
    def first_s(self) -> float:
        """The first pause of a hold, in seconds."""
        good = self.runs - self.failed
        return (
            max(SHORTEST_HOLD_S, min(2 * self.good_s / good, FIRST_HOLD_S))
            if good >= MIN_RUNS_KNOWN
            else FIRST_HOLD_S
        )

    @property
    def fails_elsewhere(self) -> bool:
        """True if at least half of such tasks fail on other nodes too."""
        return (
            self.elsewhere is not None
            and self.elsewhere.runs > 2
            and 2 * self.elsewhere.failed >= self.elsewhere.runs
        )

    @property
    def succeeds_elsewhere(self) -> bool:
        """True if such tasks succeed on other nodes in the meantime."""
        return self.elsewhere is not None and self.elsewhere.failed < self.elsewhere.runs


class Failures:
    """The failures on this node, by name. All threads share it.

    most_s: returns the longest pause of a hold, in seconds.
    """

    def __init__(self, ahead: LookAhead, most_s: Callable[[], float]) -> None:
        self._ahead = ahead
        self._most_s = most_s
        self._lock = threading.Lock()
        self._names: dict[str, Tally] = {}
        self._node = Tally()
        self._told: set[str] = set()
        self._has_others = True
        self._since_ms = 0
        self._is_due = False
        self._told_s = 0.0

    def ended(self, run: Run, seconds: float) -> None:
        """Note how a run ended; hold its name back if its streak goes on.

        `run.failed` is not None.
        """
        with self._lock:
            tally = self._names.setdefault(run.name, Tally())
            tally.new_runs = tally.new_runs + 1
            tally.new_failures = tally.new_failures + bool(run.failed)
            if not run.failed:
                self._is_due |= tally.pause_s > 0
                tally.succeed(seconds)
                self._node.succeed(seconds)
            elif seconds < max(QUICK_FAILURE_S, self._ahead.mean_s(run.name)):
                now_s = time.monotonic()
                is_new = tally.fail(run.place.task, now_s)
                is_due = tally.is_tried or now_s >= tally.until_s
                # a task that asks for a retry expects its failure, until such tasks are known to
                # succeed elsewhere
                accuses = is_new and (run.outcome != "again" or tally.succeeds_elsewhere)
                if accuses:
                    self._node.fail(run.place.task, now_s)
                if accuses and is_due and self._should_hold(tally, run.name, now_s):
                    if not tally.pause_s:
                        log.warning(
                            "%d tasks of %s failed here in a row: they are held back",
                            tally.length,
                            run.name,
                        )
                    tally.hold(now_s, self._most_s())
                    self._is_due = True

    @property
    def holds(self) -> bool:
        """True while other processes obey a hold.

        Reports of other nodes may end the hold; then `due` becomes True without a new run.
        """
        return time.monotonic() < self._told_s

    @property
    def due(self) -> bool:
        """True if the leader, the other nodes and the schedulers should be told soon."""
        return self._is_due

    def _should_hold(self, tally: Tally, name: str, now_s: float) -> bool:
        all_fail = self._node.is_surprise and self._node.length >= NODE_STREAK
        if not self._has_others or not (tally.is_surprise or all_fail) or tally.fails_elsewhere:
            return False
        began = tally if tally.is_surprise else self._node
        return tally.succeeds_elsewhere or now_s - began.since_s < max(
            UNANSWERED_S, self._most_s(), min(2 * self._ahead.mean_s(name), LONGEST_UNANSWERED_S)
        )

    def hold_s(self, name: str) -> float:
        """Return the seconds for which a task of this name goes back, 0 if it may run."""
        with self._lock:
            tally = self._names.get(name)
            now_s = time.monotonic()
            if tally is None or not self._is_held(name, tally, now_s):
                return 0.0
            if now_s < tally.until_s:
                return min(tally.until_s - now_s, BACK_S)
            tally.until_s = now_s + tally.pause_s
            tally.is_tried = True
            return 0.0

    def _is_held(self, name: str, tally: Tally, now_s: float) -> bool:
        """Return whether a name is held back; end a hold whose reason is gone."""
        if tally.pause_s and not self._should_hold(tally, name, now_s):
            tally.pause_s = 0.0
        return tally.pause_s > 0

    # -- reports to others -------------------------------------------------------------------------

    def report(
        self, commands: Commands, partition: int, node: str, inc: int
    ) -> tuple[Call[Compared], list[NameCounts]] | None:
        """Return the call that reports new counts, and the counts; None without news."""
        with self._lock:
            self._is_due = False
            all_fail = self._node.is_surprise
            counts = list[NameCounts]()
            told_names = set[str]()
            now_s = time.monotonic()
            for name, tally in self._names.items():
                if len(counts) == MAX_BATCH:
                    break  # the next report has the names that are left
                streak = tally.length if tally.is_surprise or all_fail else 0
                until_s = tally.until_s if self._is_held(name, tally, now_s) else 0.0
                held_ms = ceil(1000 * max(0.0, until_s - now_s))
                others_obey = tally.told_s is None or now_s < tally.told_s
                is_news = until_s != tally.told_s if held_ms else others_obey
                if tally.new_runs or is_news or (name in self._told and not streak):
                    counts.append((name, tally.new_runs, tally.new_failures, streak, held_ms))
                    tally.told_s = until_s if held_ms else 0.0
                    tally.new_runs = tally.new_failures = 0
                if streak:
                    told_names.add(name)
            self._told_s = max((tally.told_s or 0.0 for tally in self._names.values()), default=0.0)
            self._told = told_names | self._told.difference(name for name, *_ in counts)
            if not counts:
                return None
            return commands.report_failures(
                partition, node, inc, self._since_ms, all_fail, counts
            ), counts

    def reported(self, compared: Compared) -> None:
        """Take in the reply to a report."""
        with self._lock:
            self._since_ms = compared.now_ms
            self._has_others = compared.others or not compared.elsewhere
            for name, elsewhere in compared.elsewhere.items():
                tally = self._names[name]
                if tally.length:
                    tally.elsewhere = elsewhere
                    now_s = time.monotonic()
                    self._is_due |= (tally.told_s or 0.0) > now_s and not self._is_held(
                        name, tally, now_s
                    )

    def not_reported(self, counts: list[NameCounts]) -> None:
        """Take back counts that could not be reported."""
        with self._lock:
            for name, runs, failed, *_ in counts:
                tally = self._names[name]
                tally.new_runs = tally.new_runs + runs
                tally.new_failures = tally.new_failures + failed
                tally.told_s = None
            self._told |= {name for name, *_ in counts}  # the end of a streak is told again

"""The duty to find damage in the keys of queue and partitions within a lease, and to repair it.

Cheap counts say at once whether something is missing. Then all tasks and entries are looked at, as
fast as a pass allows. A wrong value that leaves the counts as they are is found by turns, at a pace
that costs the server little.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...store.reads.tasks import GENERATIONS
from ...store.repair.losses import KEEP_S
from ...store.repair.recount import Finding, Recounter
from ...store.repair.repair_all import Repairer, ShardDamage, level_lost
from ...store.scripts.calls.repair import QueueCounts
from ...store.store import Store
from ..process.guarded import guarded, unless_away

log = logging.getLogger("parsync.leader")

TASKS_PER_PASS: Final = 4000
"""Number of tasks looked at in a pass, in all shards together, while the counts agree."""

PASSES_PER_LEASE: Final = 8
"""Number of passes in a lease.

Each looks at this part of the partitions, so that all have a turn.
"""

ACCOUNTS_PER_PASS: Final = 500
"""Approximate number of accounts of a shard that are compared in a pass with their tasks."""

TASKS_PER_CALL: Final = 200
"""Number of tasks that one call looks at.

Such a call takes some milliseconds, and the server does nothing else meanwhile.
"""

HASTE_PART: Final = 1 / 16
"""The part of a lease that a pass may take, with its rests, while the counts do not agree."""

REST_FACTOR: Final = 4
"""Length of the rest after each call, as a multiple of the time that the call took.

Without rests the calls would double the load of the server.
"""


class PacedCalls:
    """Pauses between the calls of a pass, until `until_s`.

    pause: waits for so many seconds.
    """

    def __init__(
        self, clock: Callable[[], float], until_s: float, pause: Callable[[float], object]
    ) -> None:
        self._clock = clock
        self._until_s = until_s
        self._pause = pause
        self.begin()

    def begin(self) -> None:
        """Begin to time a call."""
        self._since_s = self._clock()

    def rest(self) -> None:
        """Rest after a call, and begin to time the next call."""
        now_s = self._clock()
        if (rest_s := min(REST_FACTOR * (now_s - self._since_s), self._until_s - now_s)) > 0:
            self._pause(rest_s)
        self.begin()


class DamageDuty:
    """The duty of this leader to search for damage.

    levels: by shard, the largest number of submissions seen.
    pause: waits for so many seconds, or less if the leader's work has to end.
    """

    def __init__(
        self, store: Store, partitions: int, lease_s: float, pause: Callable[[float], object]
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._lease_s = lease_s
        self._pause = pause
        self._repairer = Repairer(store, partitions, _log)
        self._recounter = Recounter(store, _log)
        self._next = 0
        self._share = 1.0
        self._levels: dict[int, int] = {}
        self._scans: dict[int, Iterator[ShardDamage]] = {}
        self._cursors: dict[int, tuple[int, int]] = {}
        self._account_cursors: dict[int, int] = {}

    def work(self, clock: Callable[[], float]) -> None:
        """Count what the shards have, look at some tasks, and check some of the partitions."""
        shards = range(self._store.keys.shards)
        until_s = clock() + HASTE_PART * self._lease_s
        counts = self._repairer.repair_numbers([self._levels.get(shard, 0) for shard in shards])
        self._note_losses(counts)
        for shard, counts_of_shard in enumerate(counts):
            if counts_of_shard is not None:
                guarded(
                    self._store, "look_over", self._look, shard, counts_of_shard, clock, until_s
                )
        rests = PacedCalls(clock, until_s, self._pause)
        self._share += self._partitions / PASSES_PER_LEASE
        while self._share >= 1:
            self._share -= 1
            self._next = (self._next + 1) % self._partitions
            guarded(
                self._store,
                "repair_partition",
                self._repairer.check_partition,
                self._next,
                rests.rest,
            )

    def _note_losses(self, counts: Sequence[QueueCounts | None]) -> None:
        """Record which numbers of submissions decreased.

        The numbers are repaired now, so no other process can notice the decrease.
        """
        lost = []
        for shard, counts_of_shard in enumerate(counts):
            level = self._levels.get(shard, 0)
            name = "submitted" if len(counts) == 1 else f"submitted_q{shard}"
            numbers = [
                level_lost(self._store, shard, level, damage)
                for damage in (counts_of_shard.damage if counts_of_shard else ())
            ]
            lost += [f"{name}={level}->{number}" for number in numbers if number is not None]
        if lost:
            log.warning(
                "the server has lost its last writes: %s; see `parsync doctor`",
                ", ".join(lost[:20]),
            )
            self._store.run(
                self._store.commands.record_loss(" ".join(["leader", *lost[:20]]), KEEP_S)
            )

    def _look(
        self, shard: int, counts: QueueCounts, clock: Callable[[], float], until_s: float
    ) -> None:
        """Look at all tasks of a shard if its counts do not agree, else at some."""
        self._levels[shard] = max(counts.submitted, self._levels.get(shard, 0))
        if (counts.damage or not counts.agree) and shard not in self._scans:
            self._scans[shard] = self._repairer.look_over_all(shard)
        if shard in self._scans:
            # an error ends the look: the next pass begins again if the counts do not agree
            scan = self._scans.pop(shard)
            with unless_away(self._store):
                for looked_over in scan:
                    self._levels[shard] = max(self._levels[shard], looked_over.highest)
                    if clock() >= until_s:
                        self._scans[shard] = scan
                        return
        else:
            self._look_at_some(shard, PacedCalls(clock, until_s, self._pause))

    def _look_at_some(self, shard: int, rests: PacedCalls) -> None:
        """Look at the next tasks of a shard, and then at those that have ended."""
        whats = ("tasks", *GENERATIONS)
        remaining = max(100, TASKS_PER_PASS // self._store.keys.shards)
        with unless_away(self._store):
            self._account_cursors[shard] = self._recounter.recount_page(
                shard, self._account_cursors.get(shard, 0), ACCOUNTS_PER_PASS
            )
            rests.rest()
            while remaining > 0:
                index, cursor = self._cursors.get(shard, (0, 0))
                looked_over = self._repairer.look_over(
                    shard, [whats[index]], cursor, min(remaining, TASKS_PER_CALL)
                )
                self._levels[shard] = max(self._levels[shard], looked_over.highest)
                self._cursors[shard] = (
                    ((index + 1) % len(whats), 0)
                    if not looked_over.cursor
                    else (index, looked_over.cursor)
                )
                remaining -= max(1, looked_over.count)
                rests.rest()
                if not looked_over.cursor:
                    break


def _log(finding: Finding) -> None:
    """Log what was found, and what was done."""
    log.warning("%s: %s; %s", finding.where, finding.flaw, finding.done)

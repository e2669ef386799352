"""What a node can give now by its source, and which of its runs are beyond that."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ...model.amount import THOUSANDTHS
from ...model.capacity import FAILS, SLOTS, capacity_of, limits_of, read_capacity
from ...model.limits import MAX_BATCH
from ...model.needs import Resources, is_interruptible, read_amounts
from ...store.store import Store
from .runs import Run
from .sources import SourceReader, TextSource

log = logging.getLogger("parsync.agent")

CAPACITY_INTERVAL_S: Final = 1.0
"""Interval at which a node asks what it can give, in seconds."""


class NodeCapacity:
    """The capacity of a node. A node without a source gives what it offers.

    shrink_after_s: how long the node may hold more than its capacity before it recalls runs; None
        for ever.
    reader: the thread that asks the source, None before the agent has made it.
    """

    def __init__(
        self, source: TextSource | None = None, shrink_after_s: float | None = None
    ) -> None:
        self.source = source
        self.reader: SourceReader | None = None
        self._shrink_after_s = shrink_after_s
        self._given: Mapping[str, int] = {}
        self._cut = set[str]()
        self._exceeded_s = 0.0

    def take(self, text: str) -> None:
        """Take a text of the source; raises InvalidInput for a text that cannot be read."""
        self._given = read_capacity(text)

    def of(self, offer: Resources) -> str:
        """Return the capacity as the record has it; '' if the node gives what it offers.

        Each name of which the source gives more than the node offers is logged once.
        """
        if self.source is None:
            return ""
        capacity, cut = capacity_of(offer, self._given)
        for name in cut:
            if name not in self._cut:
                self._cut.add(name)
                log.warning(
                    "the source of the capacity gives more %s than this node offers: the node "
                    "gives what it offers",
                    name,
                )
        return capacity + FAILS if self.reader and self.reader.flaw else capacity

    def has_room(self, run: Run, going: Collection[Run], offer: Resources) -> bool:
        """Return whether a run may begin beside the runs that go on."""
        return self._lacking([*going, run], offer).keys().isdisjoint(_amounts(run))

    def to_recall(self, store: Store, going: Collection[Run], offer: Resources) -> list[Run]:
        """Return the runs beyond the capacity, if the node has held too much for too long.

        Tasks with interruptible=False are left out. Runs that end already do not count.
        """
        if not self._is_exceeded(going, offer):
            return []
        runs = _in_order(_staying(going))[:MAX_BATCH]
        ids = [run.place.task for run in runs]
        records = store.run(store.commands.read_tasks(ids, extras=False))
        interruptible = [
            run
            for run, record in zip(runs, records, strict=True)
            if record.line and is_interruptible(record.line.kind)
        ]
        return self.runs_beyond(going, interruptible, offer)

    def runs_beyond(
        self, going: Collection[Run], recallable: Iterable[Run], offer: Resources
    ) -> list[Run]:
        """Return runs without which the node would hold no more than its capacity.

        Tasks with the fewest attempts come first, of these the newest runs. So a task that was
        recalled before is recalled again only if no other run would do.

        recallable: the runs to choose from.
        """
        staying = _staying(going)
        recalled = list[Run]()
        for run in _in_order(recallable):
            if not self._lacking(staying, offer).keys().isdisjoint(_amounts(run)):
                recalled.append(run)
                staying.remove(run)
        return recalled

    def _is_exceeded(self, going: Collection[Run], offer: Resources) -> bool:
        """Return whether the node has held more than its capacity for too long."""
        now_s = time.monotonic()
        if self._shrink_after_s is None or not self._lacking(_staying(going), offer):
            self._exceeded_s = 0.0
            return False
        self._exceeded_s = self._exceeded_s or now_s
        return now_s - self._exceeded_s >= self._shrink_after_s

    def _lacking(self, runs: Iterable[Run], offer: Resources) -> dict[str, int]:
        """Return by how much runs hold more than the capacity, {name: thousandths}."""
        limits = limits_of(self.of(offer))
        lacking = {name: -limit for name, limit in limits.items()}
        for run in runs if limits else ():
            for name, amount in _amounts(run).items():
                if name in lacking:
                    lacking[name] += amount
        return {name: amount for name, amount in lacking.items() if amount > 0}


def _staying(going: Iterable[Run]) -> list[Run]:
    return [run for run in going if not run.ending]


def _in_order(runs: Iterable[Run]) -> list[Run]:
    """Return runs in the order in which they are recalled."""
    return sorted(runs, key=lambda run: (run.place.attempt_number, -run.place.since_ms))


def _amounts(run: Run) -> dict[str, int]:
    """Return what a run holds, in thousandths, with its slots."""
    return {SLOTS: len(run.place.slots) * THOUSANDTHS, **read_amounts(run.place.asked)}

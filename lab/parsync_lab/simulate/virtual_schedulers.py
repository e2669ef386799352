"""Schedulers in virtual time, whose plans go to the store in memory.

They hear what scheduler processes hear: ticks, and the store's messages. Those that hear something
carry out plans by turns in random order, until none has anything to do.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

import numpy as np

from parsync_redis.model.options import Strategy
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.process.plan_runner import PlanRunner

from ..replay.virtual_store import VirtualStore

MOST_TURNS: Final = 200
"""The most round trips at one time; a scheduler with more to do goes on at the next time."""


class VirtualSchedulers:
    """The schedulers of a cluster, named s0, s1, ...

    start: is called after each plan with the core and the time; it starts the tasks of won claims
        as their nodes' workers do.
    """

    def __init__(
        self,
        store: VirtualStore,
        partitions: int,
        seeds: Sequence[np.random.SeedSequence],
        rng: np.random.Generator,
        start: Callable[[Core, float], None],
    ) -> None:
        """seeds: one for each scheduler. rng: draws the order of the turns."""
        self.cores = [
            Core(f"s{number}", partitions, Strategy.QUALITY, inf, np.random.default_rng(seed))
            for number, seed in enumerate(seeds)
        ]
        self._store = store
        self._rng = rng
        self._start = start
        self._runners = [PlanRunner(store, core) for core in self.cores]
        # the schedulers that have something to do, by number
        self._busy = set(range(len(self.cores)))

    def begin(self) -> None:
        """Tell each scheduler that it is one of so many."""
        for ordinal, core in enumerate(self.cores):
            core.on_members(ordinal, len(self.cores))

    def on_tick(self, number: int) -> None:
        """Begin a tick: each scheduler reads the partitions that are due."""
        for core in self.cores:
            core.on_tick(number)
        self._busy.update(range(len(self.cores)))

    def work(self, now_s: float) -> None:
        """Let the schedulers hear the store's messages and carry out their plans."""
        self._hear()
        for _ in range(MOST_TURNS):
            if not self._busy:
                break
            for index in self._rng.permutation(sorted(self._busy)).tolist():
                self._turn(index, now_s)

    def _hear(self) -> None:
        """Give the schedulers the messages that the store has published for them."""
        for channel, text in self._store.published:
            index = int(channel.rpartition(":s")[2])
            word, *numbers = text.split()
            if word == "freed":
                self.cores[index].on_freed(int(numbers[0]))
            else:
                self.cores[index].on_wake(0)
            self._busy.add(index)
        self._store.published.clear()

    def _turn(self, index: int, now_s: float) -> None:
        """Carry out one plan of a scheduler."""
        core = self.cores[index]
        runner = self._runners[index]
        runner.wake_if_due(now_s)
        plan = core.plan(confirm=False)
        if not plan:
            self._busy.discard(index)
            return
        runner.carry_out(plan, lambda: now_s)
        self._start(core, now_s)
        self._hear()

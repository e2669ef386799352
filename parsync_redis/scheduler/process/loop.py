"""The loop of a scheduler.

The loop hears ticks and wake-ups, asks the core for a plan, and carries the plan out.
"""

import logging
import os
import threading
import time
from dataclasses import asdict
from typing import Final

import numpy as np
from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...health_file import HealthFile
from ...model.ids import check_name
from ...model.octaves import CHOOSE_EVERY_S
from ...model.options import Strategy
from ...model.views import DELAYS, WAITS
from ...settings import Settings
from ...store.cluster import ClusterConfig
from ...store.server.server_errors import Backoff
from ...store.store import Store
from ..core.core import Core
from .booking_reader import BookingReader
from .listener import TICKS_LOST, Listener
from .membership import RENEWALS_PER_LEASE, Membership, Rank, Stats
from .plan_runner import PlanRunner
from .policy_reader import PolicyReader
from .run_time_reader import FastReader
from .taken_tasks import TakenTasks
from .tick_clock import PeriodicDuty, TickClock


def first_figures() -> Stats:
    """Return the figures of a scheduler that has made no turn yet."""
    return {"pid": os.getpid()}


def figures_of(core: Core, now_s: float) -> Stats:
    """Return the figures that a scheduler reports with each renewal, for people and metrics."""
    return {
        "strategy": core.selector.strategy,
        "selector": core.selector.resolve(""),
        "delay_ms": round(core.selector.delay_s * 1e3, 1),
        "in_flight": core.in_flight,
        "free": core.view.free_count,
        **core.view.age_figures(now_s),
        **first_figures(),
        **asdict(core.counters),
        DELAYS: core.waits.all.text,
        WAITS: core.waits.text,
    }


log = logging.getLogger("parsync.scheduler")

DEBOUNCE_S: Final = 0.02
"""Seconds from a release in a nearly full partition to the read of that partition.

One read then covers the releases of the meantime.
"""

NEARLY_FULL_PART: Final = 4
"""A partition is nearly full if fewer than one in so many slots is free."""

RESTS_PER_GAP: Final = 4
"""Number of times in a gap at which a scheduler without work takes in the ticks."""

CONFIRM_S: Final = 0.25
"""Seconds that a worker has to start a task after the claim was won.

The scheduler confirms a claim whose task has not started by then.
"""

OBSERVE_S: Final = 0.25
"""Minimum interval between updates of the figures."""

LONGEST_WAIT_S: Final = 0.5
"""Maximum time that the loop waits for a message."""


class Scheduler:
    """A scheduler process: the core, the store, the listener and the membership thread.

    rng: the core's random generator; None for one that the system seeds.
    core: is used instead of a new core, by benches.
    """

    def __init__(
        self,
        store: Store,
        config: ClusterConfig,
        settings: Settings,
        name: str,
        at_most: int = 0,
        rng: np.random.Generator | None = None,
        core: Core | None = None,
        health: HealthFile | None = None,
    ) -> None:
        self.store = store
        self.config = config
        self.name = check_name("scheduler name", name)
        strategy = Strategy(settings.strategy)
        dice = rng or np.random.default_rng()
        self.core = core or Core(
            name, config.partitions, strategy, settings.tau_s, dice, shards=config.shards
        )
        self._backfill = BookingReader(store, self.core, config.gap_s, config.lease_s)
        self._policy = PolicyReader(store, self.core)
        self._fast = FastReader(store, self.core, config.lease_s)
        self.listener = Listener(store, name, config.partitions)
        self._stats = first_figures()
        self._health = health or HealthFile()
        large = self._backfill.large
        forget_s = settings.forget_s
        self.membership = Membership(
            store.with_own_connections(),
            name,
            config,
            lambda: self._stats,
            at_most,
            large,
            forget_s,
        )
        self._rank = self.membership.rank
        self._plans = PlanRunner(store, self.core)
        self._taken = TakenTasks(store, self.core)
        self.ticks = TickClock(time.monotonic())
        renew_s = config.lease_s / RENEWALS_PER_LEASE
        self._duties = [
            PeriodicDuty(CONFIRM_S, lambda _: self._taken.confirm_due()),
            PeriodicDuty(config.lease_s, lambda _: self._taken.give_back_strays()),
            PeriodicDuty(OBSERVE_S, self._observe),
            PeriodicDuty(config.gap_s, self._backfill.work),
            PeriodicDuty(config.gap_s, self._fast.work),
            PeriodicDuty(config.gap_s, lambda _: self._policy.work()),
            PeriodicDuty(renew_s, lambda _: self._policy.read_shares()),
            PeriodicDuty(CHOOSE_EVERY_S, lambda _: self.core.waits.choose()),
            PeriodicDuty(renew_s, lambda _: self._say_well()),
        ]
        self._only_read = False
        self._run_id = ""
        self._backoff = Backoff(log, f"scheduler {self.name}")

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set or the cluster puts the scheduler out; then leave the cluster."""
        entered = False
        failed = False
        while not (stop.is_set() or self.membership.out):
            try:
                if not entered:
                    if not self.enter():
                        break
                    self.membership.start()
                    entered = True
                    log.info("scheduler %s runs in cluster %s", self.name, self.store.keys.cluster)
                if failed:
                    self.recover()
                    failed = False
                self.turn()
            except (ParsyncError, RedisError, OSError) as error:
                failed = True
                stop.wait(self._backoff.pause_s(error))
        try:
            if entered:
                self._leave()
        finally:
            self._close()

    def enter(self) -> bool:
        """Join the cluster. Returns False if the cluster has as many schedulers as it may have."""
        self.membership.enter()
        if self.membership.out:
            return False
        # nothing is copied yet, so each later copy is of these servers, or of their successors
        self._rank = self.membership.rank
        self._run_id = self._rank.server
        self.core.on_members(self._rank.ordinal, self._rank.members)
        self.listener.listen()
        return True

    def turn(self) -> None:
        """Carry out the next plan, and hear what came meanwhile.

        Without a plan, wait for a message.
        """
        # two turns in a row never only read, because ticks may come faster than turns
        self._only_read = self.core.due and not self._only_read
        self._plans.wake_if_due(time.monotonic())
        plan = self.core.plan(place=not self._only_read, confirm=False)
        if plan:
            self._plans.carry_out(plan, time.monotonic)
            if answering_shards := self._plans.take_answering():
                self._taken.give_back_strays(answering_shards)
            # a full server refuses takes and commits, and accepts other calls
            if plan.shard_looks or plan.commit:
                self._backoff.well()
        now_s = time.monotonic()
        for duty in self._duties:
            duty.run_if_due(now_s)
        self._hear(0.0 if plan else self._wait_s(now_s))

    # -- hearing -----------------------------------------------------------------------------------

    def _wait_s(self, now_s: float) -> float:
        """Return how long to wait for a message.

        The wait ends when an own tick, a delayed task or the end of a rest is due. There is no wait
        while the next plan goes on with kinds that may have room again.
        """
        if self.core.queue.full.any_roomier:
            return 0.0
        due_s = self.ticks.due_s(self._interval_s)
        if self._rests and not self.ticks.is_own:
            due_s = now_s + self.config.gap_s / RESTS_PER_GAP
        return max(0.0, min(due_s - now_s, self._plans.due_s - now_s, LONGEST_WAIT_S))

    @property
    def _rests(self) -> bool:
        """True if the scheduler lets ticks wait: it has nothing to do, and ticks come often."""
        return self.core.at_rest and self._rank.members > RESTS_PER_GAP

    @property
    def _interval_s(self) -> float:
        """Time between two ticks."""
        return self.config.gap_s / self._rank.members

    def _hear(self, timeout_s: float) -> None:
        """Take in the messages that are there.

        If the leader's ticks do not come, the scheduler ticks by its own clock.
        """
        due_s = 0.0
        while messages := self.listener.hear(timeout_s, ticks=not self._rests):
            now_s = time.monotonic()
            for words in messages:
                if words[0] == "tick":
                    self._backfill.heard = len(words) > 3
                    self._on_tick(int(words[1]), int(words[2]))
                elif words[0] == TICKS_LOST:
                    self.ticks.on_lost()
                elif words[0] == "wake":
                    self.core.on_wake(int(words[1]))
                elif words[0] == "freed":
                    self.core.on_freed(int(words[1]))
                    is_nearly_full = NEARLY_FULL_PART * int(words[2]) < int(words[3])
                    due_s = due_s or now_s + (
                        DEBOUNCE_S if is_nearly_full and not self.core.in_flight else 0.0
                    )
            timeout_s = due_s - now_s
            if timeout_s <= 0:
                break
        if self.membership.rank is not self._rank:
            self._on_rank(self.membership.rank)
        now_s = time.monotonic()
        interval_s = self._interval_s
        self.ticks.start_own(now_s, interval_s)
        if self.ticks.becomes_deaf(now_s, interval_s):
            if self.store.several:
                self.listener.listen_to_ticks()
            else:
                self.listener.listen()
        for number in self.ticks.own_ticks(now_s, interval_s):
            self.core.on_tick(number, is_own=True)

    def _on_tick(self, sequence: int, epoch: int) -> None:
        """Take in a tick of the leader; a new epoch means that the members have changed."""
        self.ticks.on_tick(sequence, time.monotonic())
        self.core.on_tick(sequence)
        if epoch != self._rank.epoch:
            self.membership.poke()

    def _on_rank(self, rank: Rank) -> None:
        """Take in a new rank.

        The scheduler gives back all tasks if other schedulers took it for dead meanwhile, or if the
        server is another server now.
        """
        if rank.joined != self._rank.joined:
            log.warning("scheduler %s was taken for dead; its tasks were given back", self.name)
            self._taken.give_back_all()
        elif (
            rank.server
            and rank.server not in (self._rank.server, self._run_id)
            and not self.store.several
        ):
            log.warning(
                "scheduler %s: the server is another one now; its tasks are given back", self.name
            )
            self._taken.give_back_all()
        for name, run_id in rank.servers.items():
            if name and self._rank.servers.get(name) != run_id:
                self._plans.read_anew(name)
        self._rank = rank
        self._run_id = rank.server or self._run_id
        self.core.on_members(rank.ordinal, rank.members)

    # -- beginnings and ends -----------------------------------------------------------------------

    def recover(self) -> None:
        """After an outage confirm won claims, give back all other tasks, and read everything again.

        Only won claims are certain, and only if the server is the same.
        """
        self._run_id = self.store.run_id()
        self.listener.listen()
        if self._run_id and self._run_id == self._rank.server:
            self._taken.confirm(self.core.won.unconfirmed)
        self._taken.give_back_all()

    def leave(self) -> None:
        """Give back what is taken, and leave the cluster."""
        self._taken.give_back_all()
        self.membership.leave()

    def _leave(self) -> None:
        """End the membership thread, confirm won claims, and leave; an error is logged."""
        self.membership.stop()
        try:
            self._taken.confirm(self.core.won.unconfirmed)
            self.leave()
            log.info("scheduler %s has left", self.name)
        except (ParsyncError, RedisError, OSError) as error:
            log.warning("scheduler %s could not leave in order: %s", self.name, error)

    def _close(self) -> None:
        """Close this scheduler's own connections: another scheduler may follow in this process."""
        self.listener.close()
        self.membership.store.disconnect()

    def _observe(self, now_s: float) -> None:
        """Update the figures that membership writes with each renewal."""
        self._plans.read_names()
        self._stats = figures_of(self.core, now_s)

    def _say_well(self) -> None:
        """Renew the health file, as of the last renewal of the membership.

        A fresh file says that both this loop and the membership thread are well.
        """
        leads = ", the leader" if self.membership.leads else ""
        self._health.renew(
            self.membership.renewed_s,
            f"scheduler {self.name} is one of {self._rank.members}{leads}",
        )

"""The scheduler's core: events in, plans out.

It does no I/O, reads no clock and throws no dice: those are arguments.

The loop (loop.py) feeds it what it hears and what Redis answered, asks for a `Plan`, and carries
that out in one round trip; the simulator does the same in virtual time. Queue and free slots are
both views, copies of Redis' state: queue.py and view.py. placer.py matches the one to the other.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np

from ...model.claim import Claim, ClaimOutcome
from ...model.named_times import NamedTimes
from ...model.node import Node
from ...model.options import Strategy
from ...model.replies import Judged, Snapshot, Took
from ...placement.strategy import EMA_WEIGHT, SHARPNESS, StrategySelector
from .claim_outcomes import CallSize, Merges, Refusals, Refusing, WonClaims
from .freshness import ORDERS, Freshness, Order, Turns, partitioned
from .large_kinds import LeastAsked
from .partition import PartitionCopy
from .placer import Placer
from .plan import Counters, Plan
from .queue import QueueCopy
from .reservations import Bars
from .shard_polling import Looks
from .view import View
from .wait_reasons import Explainer

CHANGES: Final = 1000
"""Kinds that one look at a shard of the queue returns at most."""


class Core:
    """The state of one scheduler and its decisions.

    turns: which partitions are due at a tick. orders: in which groups a strategy tries partitions.
    asks: whether it reads more than what is due, and asks partitions to tell it of freed slots. A
    scheduler process uses the defaults; experiments compare them with others.
    """

    def __init__(
        self,
        name: str,
        partitions: int,
        strategy: Strategy,
        tau_s: float,
        rng: np.random.Generator,
        ema: float = EMA_WEIGHT,
        sharpness: float = SHARPNESS,
        turns: Turns = partitioned,
        orders: Mapping[Strategy, Order] = ORDERS,
        asks: bool = True,
        shards: int = 1,
    ) -> None:
        self.name = name
        self.rng = rng
        self.view = View(partitions, sharpness)
        self.selector = StrategySelector(strategy, tau_s, ema)
        self.counters = Counters()
        # nodes changed since the last plan
        self.ordinal = 0
        self.members = 1
        self._to_rescale = False
        self.queue = QueueCopy(self.view, shards)
        self._looks = Looks(self.queue)
        self._freshness = Freshness(self.view.partitions, self.counters, turns, asks)
        self._placer = Placer(
            name, self.view, self.queue, self._freshness, self.selector, orders, rng
        )
        self.won = WonClaims()
        self.waits = NamedTimes()
        self._merges = Merges()
        self._refusals = Refusals()
        self._refusing = list[Refusing]()
        self._call_size = CallSize()
        self._explainer = Explainer(self.view, self.queue)

    # -- events ------------------------------------------------------------------------------------

    def on_members(self, ordinal: int, members: int) -> None:
        """Note that this scheduler is number `ordinal` of `members`."""
        if (ordinal, members) != (self.ordinal, self.members):
            self.queue.forget_reasons()  # kinds are dealt anew; their reasons are others' until now
        self.ordinal = ordinal
        self.members = max(1, members)
        self._placer.ticks_of_gap = self.members

    def on_tick(self, number: int, own: bool = False) -> None:
        """Tick k: the partitions p with p mod N = (ordinal + k) mod N are due; on its turn it looks
        for tasks.
        """
        self.counters.ticks += 1
        self.counters.own_ticks += own
        self._placer.ticks += 1
        self._freshness.on_tick(self.ordinal, self.members, number)
        gap, rest = divmod(self.ordinal + number, self.members)
        if not rest:
            self._looks.on_gap(self.ordinal, self.members, gap)
            self._explainer.on_gap()
            self._placer.choices.on_gap()

    def on_wake(self, shard: int = 0) -> None:
        """Look at a shard of the queue: something may wait."""
        self._looks.on_wake(shard)

    def on_freed(self, partition: int) -> None:
        """Read a partition that this scheduler asked to tell it of a freed slot, and look who wants
        that.
        """
        self._freshness.on_freed(partition)
        self._looks.on_freed()

    def on_stale(self) -> None:
        """Read everything again: the connection was lost, and any copy may be old."""
        self._freshness.read_all()
        self._looks.on_stale()

    def on_nodes(self, partition: int, nodes: Iterable[Node], epoch: int) -> None:
        """Take in the nodes of a partition, read when its epoch was `epoch` or later."""
        self.view.partitions[partition].set_nodes(nodes, epoch)
        self._to_rescale = True

    def on_names(self, digest: str, names: Collection[str]) -> None:
        """Take in the task names that a digest of nodes stands for."""
        self.view.set_names(digest, names)
        self._to_rescale = True

    def on_least(self, least: LeastAsked) -> None:
        """Judge by these amounts, which their owner keeps up to date, which tasks are large."""
        self._placer.least = least

    def on_bars(self, bars: Bars) -> None:
        """Take in which nodes are barred for which kinds."""
        self._to_rescale |= self.queue.set_bars(bars)

    def on_snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        """Take in a partition that was read."""
        self.counters.reads += 1
        partition = self.view.partitions[snapshot.partition]
        if snapshot.epoch != partition.epoch:
            self._on_changed(partition)
            return
        self._merges.on_snapshot(snapshot)
        self._refusals.on_snapshot(snapshot.partition)
        self._freshness.on_read(partition, now_s)
        if snapshot.bits is not None or -1 < partition.judged <= snapshot.version:
            partition.set_free(snapshot.bits, snapshot.left, snapshot.version, snapshot.whole)
            self._placer.changed.add(snapshot.partition)

    def on_took(self, took: Took) -> None:
        """Take in the changes of a shard and the tasks that are this scheduler's now."""
        self.counters.taken += len(took.tasks)
        self.queue.update(took)
        self._looks.on_took(took)
        self._placer.on_took(took.shard, took.tasks)

    def on_judged(self, judged: Judged, now_s: float = 0.0) -> None:
        """Take in the verdicts on claims: those that won are to be confirmed, the tasks of the
        others placed again.
        """
        partition = self.view.partitions[judged.partition]
        freshness = self._freshness
        claimed = self._placer.unplaced.claimed
        delays_s = list[float]()
        lost = 0
        changed = False
        last = None
        won = False
        since_ms = 0
        held = ""
        self._placer.choices.on_judged(judged, now_s)
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            task = claimed.pop(claim.task, None)
            if verdict is not last:  # most are one object
                last = verdict
                won = verdict.won
                since_ms, held = (verdict.since_ms, verdict.held) if won else (0, "")
            if won:
                self.won.unconfirmed.append(claim.won(since_ms, held))
                if task is not None:
                    waited_ms = max(0, since_ms - task.ready_ms)
                    delays_s.append(waited_ms / 1000)
                    self.waits.add(task.kind.name, waited_ms)
                continue
            lost += 1
            if verdict.word is ClaimOutcome.CHANGED:
                changed = True
            elif freshness.asks or verdict.word is not ClaimOutcome.CONFLICT:
                freshness.to_read.add(judged.partition)
            if task is not None:
                self._placer.unplaced.seatless.append(task)
        if changed:
            self._on_changed(partition)
        self.selector.observe(delays_s)
        self._call_size.on_judged(len(judged.claims), lost)
        self.counters.claims += len(judged.claims)
        self.counters.placed += len(judged.claims) - lost
        current = self._merges.is_current(judged, len(judged.claims) - lost)
        self.counters.merged += 0 if current else len(judged.claims) - lost
        self._refusing += self._refusals.on_judged(judged, current, lost)
        self.counters.conflicts += lost
        partition.judged = judged.version
        if lost and current:  # nobody else changed anything: the copy is wrong
            partition.version = -1

    def on_unread(self, partition: int, claims: Iterable[Claim] = ()) -> None:
        """Place nothing in a partition whose server does not answer until it is read; the tasks of
        `claims` go back.
        """
        self._freshness.on_unread(self.view.partitions[partition])
        self._placer.on_unjudged(claims)

    def on_untaken(self, shard: int) -> None:
        """Put back the seats that were reserved for a shard whose server did not answer."""
        self._placer.on_took(shard, ())
        self._looks.on_away(shard)

    def _on_changed(self, partition: PartitionCopy) -> None:
        """Read the nodes of a partition and its free slots with the next plan."""
        self._freshness.nodes_due.add(partition.number)
        partition.close()

    def forget(self) -> None:
        """Drop every task that it holds; the loop has given them back, or Redis has."""
        self._placer.forget()
        self.queue.clear()
        self.won.confirmed(len(self.won.unconfirmed))
        self.on_stale()

    # -- state -------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Number of tasks that this scheduler has taken and not placed."""
        return len(self._placer.unplaced)

    @property
    def at_rest(self) -> bool:
        """True if nothing depends on its view: it has no tasks, does not look for any, and none
        could find a seat.
        """
        return not (self._looks or self.in_flight or self.queue.any_open)

    @property
    def due(self) -> bool:
        """True if partitions are to be read: the freshest copy may be another's by now, so that it
        reads first.
        """
        return bool(self._freshness.to_read or self._freshness.nodes_due)

    @property
    def taken(self) -> set[str]:
        """Ids of the tasks that Redis should have in `taken` for this scheduler: those that are not
        confirmed.
        """
        return {task.id for task in self._placer.unplaced} | {
            place.task for place in self.won.unconfirmed
        }

    @property
    def unclaimed(self) -> dict[str, str]:
        """The taken tasks of which no claim can have won, with their attempts."""
        return self._placer.unclaimed

    # -- decisions ---------------------------------------------------------------------------------

    def plan(self, place: bool = True, confirm: bool = True, room: int | None = None) -> Plan:
        """Return what to do next; empty if there is nothing to do until the next event.

        place: find seats; without it, what is due is read first. confirm: confirm won claims;
        without it they are kept, because a task may start meanwhile. room: the most tasks to take;
        by default that follows the lost claims.
        """
        plan = Plan(read_nodes=sorted(self._freshness.nodes_due), suspect=self._refusing)
        self._refusing = []
        if self._to_rescale:
            self.view.rescale()
            self.queue.regroup()
            self._placer.changed.update(range(len(self.view.partitions)))
            self._to_rescale = False
        if place:
            self._placer.retry(plan)
        self._placer.commit(plan)
        if place:
            self._placer.reserve(plan, self._call_size.tasks if room is None else room)
        self.counters.given_back += len(plan.give_back)
        self._looks.fill(plan, self._placer.left_behind)
        if (
            place
            and self._freshness.asks
            and (self.queue.blocked or self._placer.unplaced.seatless)
        ):
            self._freshness.ask(plan)
        self._explainer.explain(plan, self.ordinal, self.members)
        self._freshness.fill(plan)
        if confirm:
            plan.confirm = self.won.take()
        return plan

"""The scheduler's core: events in, plans out. It does no I/O, reads no clock and throws no dice: those are arguments.

The loop (loop.py) feeds it what it hears and what Redis answered, asks for a `Plan`, and carries that out in one round
trip; the simulator does the same in virtual time. A task that it holds is *taken* in Redis, and here in one of these:

    took -> backlog -> (place) claimed -> judged: won -> to confirm, unless started -> gone
                 ^                          lost -> backlog again
                 `-- no seat: blocked until the view changes; the reason is written; too many blocked: given back
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np

from ..model.claim import ClaimOutcome
from ..model.limits import MAX_BATCH
from ..model.node import Node
from ..model.options import Strategy
from ..model.place import Place
from ..model.replies import Judged, Snapshot, Took
from ..placement.strategy import EMA_WEIGHT, SHARPNESS, StrategySelector
from .backlog import Backlog
from .freshness import ORDERS, Freshness, Order, Turns, partitioned
from .placer import Placer
from .plan import Counters, Plan
from .view import View

AHEAD: Final = 16
"""Tasks that it takes beyond the seats that it sees, while more wait, so that a freed slot need not wait for a take."""


class Core:
    """The state of one scheduler and its decisions.

    turns: which partitions are due at a tick. orders: in which groups a strategy tries partitions. asks: whether it
    reads more than what is due, and asks partitions to tell it of freed slots. A scheduler process uses the defaults;
    experiments compare them with others.
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
    ) -> None:
        self.name, self.rng = name, rng
        self.view = View(partitions, sharpness)
        self.selector = StrategySelector(strategy, tau_s, ema)
        self.counters = Counters()
        self.ordinal, self.members = 0, 1
        self.wants_tasks = True
        self._backlog = Backlog(self.view)
        self._freshness = Freshness(self.view.partitions, self.counters, turns, asks)
        self._placer = Placer(self.view, self._backlog, self._freshness, self.selector, orders, rng)
        self._to_confirm: list[Place] = []
        self._due_to_confirm = 0  # how many of them were won before the last look at them
        self._waiting = 0  # tasks that waited when it last took some
        self._to_explain = False  # once a gap
        self._to_rescale = False  # nodes changed since the last plan

    # -- events ------------------------------------------------------------------------------------------------------

    def on_members(self, ordinal: int, members: int) -> None:
        """Note that this scheduler is number `ordinal` of `members`."""
        self.ordinal, self.members = ordinal, max(1, members)

    def on_tick(self, number: int, own: bool = False) -> None:
        """Tick k: the partitions p with p mod N = (ordinal + k) mod N are due; on its turn it looks for tasks."""
        self.counters.ticks += 1
        self.counters.own_ticks += own
        self._freshness.on_tick(self.ordinal, self.members, number)
        if (self.ordinal + number) % self.members == 0:
            self.wants_tasks = self._to_explain = True
            self._freshness.on_gap()

    def on_wake(self) -> None:
        """Look for tasks: some may wait."""
        self.wants_tasks = True

    def on_freed(self, partition: int) -> None:
        """Read a partition that this scheduler asked to tell it of a freed slot."""
        self._freshness.on_freed(partition)

    def on_stale(self) -> None:
        """Read everything again: the connection was lost, and any copy may be old."""
        self._freshness.read_all()
        self.wants_tasks = True

    def on_nodes(self, partition: int, nodes: Iterable[Node], epoch: int) -> None:
        """Take in the nodes of a partition, read when its epoch was `epoch` or later."""
        self.view.partitions[partition].set_nodes(nodes, epoch)
        self._freshness.to_read.add(partition)
        self._to_rescale = True

    def on_names(self, digest: str, names: Collection[str]) -> None:
        """Take in the task names that a digest of nodes stands for."""
        self.view.set_names(digest, names)
        self.view.changes += 1
        self._to_rescale = True

    def on_snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        """Take in a partition that was read."""
        self.counters.reads += 1
        partition = self.view.partitions[snapshot.partition]
        if snapshot.epoch != partition.epoch:
            self._freshness.nodes_due.add(snapshot.partition)
            return
        self._freshness.on_read(partition, now_s)
        if snapshot.bits is not None:
            partition.set_free(snapshot.bits, snapshot.left, snapshot.version)
            self.view.changes += 1

    def on_took(self, took: Took) -> None:
        """Take in tasks that are this scheduler's now."""
        self.counters.taken += len(took.tasks)
        self._waiting = took.waiting
        self.wants_tasks = took.waiting > 0
        for task in took.tasks:
            self._backlog.add(task)

    def on_judged(self, judged: Judged) -> None:
        """Take in the verdicts on claims: those that won are to be confirmed, the tasks of the others placed again."""
        partition, freshness = self.view.partitions[judged.partition], self._freshness
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            task = self._placer.claimed.pop(claim.task, None)
            self.counters.claims += 1
            if verdict.won:
                since_ms = int(verdict.detail)
                self.counters.placed += 1
                self._to_confirm.append(
                    Place(claim.task, claim.attempt, claim.partition, claim.node, claim.slots[0], claim.inc, since_ms)
                )
                if task is not None:
                    self.selector.observe(max(0, since_ms - task.ready_ms) / 1000)
                continue
            self.counters.conflicts += 1
            if freshness.asks or verdict.word is not ClaimOutcome.CONFLICT:
                freshness.to_read.add(judged.partition)
                if verdict.word not in (ClaimOutcome.CONFLICT, ClaimOutcome.SHORT):
                    freshness.nodes_due.add(judged.partition)
            if task is not None:
                self._backlog.add(task, front=True)
        partition.version = -1  # our own claims moved it on: Redis never had what the copy shows now

    def forget(self) -> None:
        """Drop every task that it holds; the loop has given them back, or Redis has."""
        self._backlog.clear()
        self._placer.claimed.clear()
        self._to_confirm.clear()
        self._due_to_confirm = 0
        self.on_stale()

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Number of tasks that this scheduler has taken and not placed."""
        return len(self._backlog)

    @property
    def at_rest(self) -> bool:
        """True if it neither has tasks nor looks for any: nothing depends on its view until it does."""
        return not (self.wants_tasks or self._placer.claimed or self.in_flight)

    @property
    def due(self) -> bool:
        """True if partitions are to be read: the freshest copy may be another's by now, so that it reads first."""
        return bool(self._freshness.to_read)

    @property
    def unconfirmed(self) -> list[Place]:
        """Won claims that are not confirmed yet."""
        return list(self._to_confirm)

    @property
    def taken(self) -> set[str]:
        """Ids of the tasks that Redis should have in `taken` for this scheduler: those that are not confirmed."""
        return self._backlog.ids | self._placer.claimed.keys() | {place.task for place in self._to_confirm}

    @property
    def due_to_confirm(self) -> list[Place]:
        """The won claims that had been won when `confirmed` was called last."""
        return self._to_confirm[: self._due_to_confirm]

    def confirmed(self, count: int) -> None:
        """Drop the first `count` won claims; those that are left are due to confirm the next time."""
        del self._to_confirm[:count]
        self._due_to_confirm = len(self._to_confirm)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def plan(self, place: bool = True, confirm: bool = True) -> Plan:
        """Return what to do next; empty if there is nothing to do until the next event.

        place: make claims; without it, what is due is read first. confirm: confirm won claims; without it they are
        kept, because a task that starts meanwhile need not be confirmed.
        """
        plan = Plan(read_nodes=sorted(self._freshness.nodes_due))
        if self._to_rescale:
            self.view.rescale()
            self._backlog.regroup()
            self._to_rescale = False
        if place:
            self._placer.place(plan)
        blocked = self._backlog.blocked()
        if self.wants_tasks:
            in_flight = self.in_flight
            seated = in_flight - sum(len(kind.tasks) for kind in blocked)
            ahead = AHEAD - in_flight if in_flight <= AHEAD // 2 and self._waiting >= AHEAD else 0
            plan.take = min(MAX_BATCH, max(0, self.view.free_count - seated, ahead))
        short = self.wants_tasks and (self._waiting or not self.view.free_count)
        if self._freshness.asks and (blocked or short):
            self._freshness.ask(plan, bool(blocked))
        if blocked:
            self._backlog.explain(plan, blocked, all_reasons=self._to_explain)
            self.counters.given_back += len(plan.give_back)
            self._to_explain = False
        self._freshness.fill(plan)
        if confirm:
            plan.confirm = self._to_confirm[:MAX_BATCH]
            del self._to_confirm[:MAX_BATCH]
            self._due_to_confirm = max(0, self._due_to_confirm - MAX_BATCH)
        return plan

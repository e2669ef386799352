"""The scheduler's core: events in, plans out.

The core does no I/O, reads no clock and draws no random numbers: time and random generator are
arguments. The loop (process/loop.py) feeds the core what it hears and what Redis answered, asks for
a `Plan`, and carries the plan out in one round trip. The simulator does the same in virtual time.
Queue and free slots are views, copies of the state in Redis: queue.py and view.py. placer.py
matches tasks to seats.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from ...model.claim import Claim, ClaimOutcome
from ...model.node import Node
from ...model.octaves import NamedTimes
from ...model.options import Strategy
from ...model.policy import Policy
from ...model.replies import Judged, Snapshot, Took
from ...placement.strategy import EMA_WEIGHT, SHARPNESS, StrategySelector
from .claim_outcomes import CallSize, KnownVersions, Refusals, RefusingNode, WonClaims
from .freshness import ORDERS, Freshness, PartitionOrder, TurnRule, partitioned
from .large_kinds import LeastAsked
from .partition import PartitionCopy
from .placer import Placer
from .plan import Counters, Plan
from .queue import QueueCopy
from .reservations import BarredNodes
from .shard_polling import ShardPolling
from .view import View
from .wait_reasons import Explainer

MAX_KINDS_PER_LOOK: Final = 1000
"""Maximum number of changed kinds in one `take` reply."""


class Core:
    """The state of one scheduler, and its decisions.

    turn_rule: which partitions are due at a tick.
    orders: in which groups each strategy searches the partitions.
    asks: the scheduler reads partitions out of turn, and asks them to tell of freed slots. A
        scheduler process uses the defaults; experiments compare them with other values.
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
        turn_rule: TurnRule = partitioned,
        orders: Mapping[Strategy, PartitionOrder] = ORDERS,
        asks: bool = True,
        shards: int = 1,
    ) -> None:
        self.name = name
        self.rng = rng
        self.view = View(partitions, sharpness)
        self.selector = StrategySelector(strategy, tau_s, ema)
        self.counters = Counters()
        self.ordinal = 0
        self.members = 1
        # nodes or names have changed since the last plan
        self._to_rescale = False
        self.queue = QueueCopy(self.view, shards)
        self._polling = ShardPolling(self.queue)
        self._freshness = Freshness(self.view.partitions, self.counters, turn_rule, asks)
        self._placer = Placer(
            name, self.view, self.queue, self._freshness, self.selector, orders, rng
        )
        self.won = WonClaims()
        self.waits = NamedTimes()
        self._known_versions = KnownVersions()
        self._refusals = Refusals()
        self._refusing = list[RefusingNode]()
        self._call_size = CallSize()
        self._explainer = Explainer(self.view, self.queue)

    # -- events ------------------------------------------------------------------------------------

    def on_members(self, ordinal: int, members: int) -> None:
        """Note that this scheduler is number `ordinal` of `members`."""
        if (ordinal, members) != (self.ordinal, self.members):
            # this scheduler explains other kinds now, and others wrote their reasons until now
            self.queue.forget_reasons()
        self.ordinal = ordinal
        self.members = max(1, members)
        self._placer.ticks_of_gap = self.members

    def on_tick(self, number: int, is_own: bool = False) -> None:
        """Begin a tick: some partitions are due, and at its own turn the scheduler looks for tasks.

        At tick k the partitions p with p mod N = (ordinal + k) mod N are due, for N members.
        is_own: the tick is of this scheduler's own clock.
        """
        self.counters.ticks += 1
        self.counters.own_ticks += is_own
        self._placer.ticks += 1
        self._freshness.on_tick(self.ordinal, self.members, number)
        gap, position = divmod(self.ordinal + number, self.members)
        if position == 0:
            self._polling.on_gap(self.ordinal, self.members, gap)
            self._explainer.on_gap()
            self._placer.choices.on_gap()

    def on_wake(self, shard: int = 0) -> None:
        """Look at a shard of the queue, because something may wait there."""
        self._polling.on_wake(shard)

    def on_freed(self, partition: int) -> None:
        """Read a partition that told of a freed slot, and look which task gets the slot."""
        self._freshness.on_freed(partition)
        self._polling.on_freed()

    def on_stale(self) -> None:
        """Read everything again: the connection was lost, so any copy may be old."""
        self._freshness.read_all()
        self._polling.on_stale()

    def on_nodes(self, partition: int, nodes: Iterable[Node], epoch: int) -> None:
        """Take in the nodes of a partition, read when its epoch was `epoch` or later."""
        self.view.partitions[partition].set_nodes(nodes, epoch)
        self._to_rescale = True

    def on_nodes_again(self, partition: int, nodes: Sequence[Node], epoch: int) -> None:
        """Take in the nodes of a partition if what one of them can give now has changed.

        A change of a capacity keeps the epoch, so that no claim is lost by it.
        """
        copy = self.view.partitions[partition]
        capacities = {node.name: node.capacity for node in copy.nodes}
        if epoch != copy.epoch or capacities != {node.name: node.capacity for node in nodes}:
            self.on_nodes(partition, nodes, epoch)

    def on_names(self, digest: str, names: Collection[str]) -> None:
        """Take in the task names that a digest of nodes stands for."""
        self.view.set_names(digest, names)
        self._to_rescale = True

    def on_least(self, least: LeastAsked) -> None:
        """Take the amounts by which tasks are judged large; their owner keeps them up to date."""
        self._placer.least = least

    def on_policy(self, policy: Policy) -> None:
        """Take in what the policy says of the tenants."""
        self.queue.set_policy(policy)

    def on_time(self, shard: int, now_ms: float) -> None:
        """Note the time of the server of a shard: the next token of a rate may have come."""
        self.queue.on_time(shard, now_ms)

    def token_due_ms(self, shard: int) -> float:
        """Return when a kind in a shard may get the next token of a rate (server time), or inf."""
        return self.queue.full.due_ms(shard)

    def on_barred(self, barred: BarredNodes) -> None:
        """Take in which nodes are barred for which kinds."""
        barred.see(self.view.notices)
        self._to_rescale |= self.queue.set_barred(barred)

    def on_snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        """Take in a partition that was read. now_s: monotonic."""
        self.counters.reads += 1
        partition = self.view.partitions[snapshot.partition]
        if snapshot.epoch != partition.epoch:
            self._on_changed(partition)
            return
        self._known_versions.on_snapshot(snapshot)
        self._refusals.on_snapshot(snapshot.partition)
        self._freshness.on_read(partition, now_s)
        if snapshot.bits is not None or -1 < partition.judged <= snapshot.version:
            partition.set_free(snapshot.bits, snapshot.left, snapshot.version, snapshot.whole)
            self._placer.changed.add(snapshot.partition)

    def on_took(self, took: Took) -> None:
        """Take in the changes of a shard, and the tasks that this scheduler has taken there."""
        self.counters.taken += len(took.tasks)
        self.queue.update(took)
        self._polling.on_took(took)
        self._placer.on_took(took.shard, took.tasks)

    def on_judged(self, judged: Judged, now_s: float = 0.0) -> None:
        """Take in the verdicts on claims.

        Won claims are to be confirmed. The tasks of lost claims are placed again.
        """
        partition = self.view.partitions[judged.partition]
        freshness = self._freshness
        claimed = self._placer.unplaced.claimed
        losses = self._placer.unplaced.losses
        delays_s = list[float]()
        lost = 0
        changed = False
        verdict_before = None
        won = False
        since_ms = 0
        amounts_held = ""
        self._placer.choices.on_judged(judged, now_s)
        self._placer.widths.on_judged(judged, claimed)
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            task = claimed.pop(claim.task, None)
            if verdict is not verdict_before:  # most verdicts are one object
                verdict_before = verdict
                won = verdict.won
                since_ms = verdict.since_ms if won else 0
                amounts_held = verdict.held if won else ""
            if won:
                self.won.unconfirmed.append(claim.won(since_ms, amounts_held))
                if task is not None:
                    if losses:
                        losses.pop(task.id, None)
                    waited_ms = max(0, since_ms - task.ready_ms)
                    delays_s.append(waited_ms / 1000)
                    self.waits.add(task.kind.name, waited_ms)
                continue
            lost += 1
            self._placer.choices.on_lost(claim, verdict)
            if verdict.word is ClaimOutcome.CHANGED:
                changed = True
            elif freshness.asks or verdict.word is not ClaimOutcome.CONFLICT:
                freshness.to_read.add(judged.partition)
            if task is not None:
                self._placer.unplaced.on_lost(task)
        if changed:
            self._on_changed(partition)
        self.selector.observe(delays_s)
        self._call_size.on_judged(len(judged.claims), lost)
        self.counters.claims += len(judged.claims)
        self.counters.placed += len(judged.claims) - lost
        current = self._known_versions.is_current(judged, len(judged.claims) - lost)
        self.counters.merged += 0 if current else len(judged.claims) - lost
        self._refusing += self._refusals.on_judged(judged, current, lost)
        self.counters.conflicts += lost
        partition.judged = judged.version
        if lost and current:  # nobody else changed the partition, so the copy is wrong
            partition.version = -1

    def on_unread(self, partition: int, claims: Iterable[Claim] = ()) -> None:
        """Close a partition whose server does not answer until it is read.

        The tasks of `claims` go back.
        """
        self._freshness.on_unread(self.view.partitions[partition])
        self._placer.on_unjudged(claims)

    def on_untaken(self, shard: int) -> None:
        """Put back the seats that were reserved for a shard whose server did not answer."""
        self._placer.on_took(shard, ())
        self._polling.on_away(shard)

    def _on_changed(self, partition: PartitionCopy) -> None:
        """Read the nodes of a partition and its free slots with the next plan."""
        self._freshness.nodes_due.add(partition.number)
        partition.close()

    def forget(self) -> None:
        """Drop every task: the loop has given the tasks back, or Redis has."""
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
        """True if nothing depends on the view.

        The scheduler has no tasks, no look is due, and no group may fit.
        """
        return not (self._polling or self.in_flight or self.queue.any_open)

    @property
    def due(self) -> bool:
        """True if partitions are to be read.

        The freshest copy may be of a partition whose turn is another scheduler's by now.
        """
        return bool(self._freshness.to_read or self._freshness.nodes_due)

    @property
    def taken(self) -> set[str]:
        """Ids of the tasks that Redis should have in `taken` for this scheduler."""
        return {task.id for task in self._placer.unplaced} | {
            place.task for place in self.won.unconfirmed
        }

    @property
    def unclaimed(self) -> dict[str, str]:
        """The attempts, by task, of which no claim can have won."""
        return self._placer.unclaimed

    # -- decisions ---------------------------------------------------------------------------------

    def plan(self, place: bool = True, confirm: bool = True, room: int | None = None) -> Plan:
        """Return what to do next; an empty plan if there is nothing to do until the next event.

        place: find seats; if False, what is due is read first.
        confirm: confirm won claims; if False they are kept, because a worker may start their tasks
            meanwhile.
        room: maximum number of tasks to take; by default it follows the share of lost claims.
        """
        plan = self._placer.plan
        plan.read_nodes = sorted(self._freshness.nodes_due)
        plan.suspect = self._refusing
        self._refusing = []
        if self._to_rescale:
            self.view.rescale()
            self.queue.barred.see(self.view.notices)
            self.queue.regroup()
            self._placer.changed.update(range(len(self.view.partitions)))
            self._to_rescale = False
        if place:
            self._placer.retry()
            self._placer.reserve(self._call_size.tasks if room is None else room)
        self._placer.choices.fill(plan)
        self.counters.given_back += len(plan.give_back)
        self._polling.fill(plan, self._placer.left_behind)
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
        self._placer.plan = Plan()
        return plan

"""The scheduler's core: events in, instructions out. No I/O, no clock, no dice of its own: time and dice are arguments.

The loop (loop.py) feeds it what it hears and what Redis answered, asks for a `Plan`, and carries it out in one round
trip; the simulator does the same in virtual time. A task is in one of these hands here, all of them *taken* in Redis:

    took -> backlog -> (place) claimed -> judged: won -> to confirm, unless started -> gone
                 ^                          lost -> backlog again
                 `-- no seat: blocked until the view changes; noted why; too many blocked: given back
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..model.apps import TASKS_LABEL, digest_of
from ..model.claim import Claim, ClaimOutcome
from ..model.limits import MAX_BATCH
from ..model.needs import Resources, parse_resources
from ..model.node import Node
from ..model.place import Place
from ..model.replies import Judged, Snapshot, Took
from ..model.task import Strategy, Taken
from ..placement.strategy import EMA_WEIGHT, SHARPNESS, StrategySelector, sample
from .view import Knowers, PartitionView, Seats, View

HOLD: Final = 256
"""Tasks without a seat that a scheduler holds, so that a freed slot finds a taker; more are given back for a while."""

AHEAD: Final = 16
"""Tasks that it takes beyond the seats that it sees, while more wait, so that a freed slot need not wait for a take."""

FRESH: Final = 1
"""Ticks after its turn at which a partition still counts as this scheduler's, for tasks that are not to wait."""

GIVE_BACK_MS: Final = 1000

Turns = Callable[[int, int, int, int], Iterable[int]]
Order = Callable[[Sequence[PartitionView]], Sequence[Sequence[PartitionView]]]


def partitioned(ordinal: int, members: int, tick: int, partitions: int) -> range:
    """The partitions that scheduler `ordinal` of `members` reads at a tick: no two read the same, N ticks cover all."""
    return range((ordinal + tick) % members, partitions, members)


def all_at_once(known: Sequence[PartitionView]) -> Sequence[Sequence[PartitionView]]:
    """Quality-first: one group, in which the score alone decides."""
    return [known] if known else []


def freshest_first(known: Sequence[PartitionView]) -> Sequence[Sequence[PartitionView]]:
    """Latency-first: groups by the turn at which they were read and by when, the last first.

    The turn goes first: who hears some ticks late, all at once, reads what is another's by now along with its own.
    """
    found: dict[tuple[int, float], list[PartitionView]] = {}
    for partition in known:
        found.setdefault((partition.turn, partition.read_s), []).append(partition)
    return [found[turn] for turn in sorted(found, reverse=True)]


ORDERS: Final[Mapping[Strategy, Order]] = {Strategy.QUALITY: all_at_once, Strategy.LATENCY: freshest_first}


def needs_at(node: Node, needs: str) -> str:
    """What a claim asks of a node: the task's needs, and that its worker knows the tasks that the view says it does.

    So commit judges what the scheduler looked at: a digest stands for the same names for ever.
    """
    digest = digest_of(node.offer)
    return f"{needs} {TASKS_LABEL}:{digest}" if digest else needs


@dataclass(slots=True)
class Plan:
    """What to do in one round trip, in this order; the replies of reads, takes and commits come back as events.

    Of the partitions in `read`, those in `ask` are to tell this scheduler of the next slot that is freed in them.
    """

    confirm: list[Place] = field(default_factory=list)
    note: list[tuple[str, str, str]] = field(default_factory=list)
    give_back: list[tuple[str, str, str]] = field(default_factory=list)
    commit: dict[int, list[Claim]] = field(default_factory=dict)
    take: int = 0
    read: list[int] = field(default_factory=list)
    read_nodes: list[int] = field(default_factory=list)
    ask: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(
            self.confirm or self.note or self.give_back or self.commit or self.take or self.read or self.read_nodes
        )


@dataclass(slots=True)
class Counters:
    """What a scheduler counts, since it started."""

    taken: int = 0
    claims: int = 0
    conflicts: int = 0
    placed: int = 0
    given_back: int = 0
    ticks: int = 0
    own_ticks: int = 0
    reads: int = 0


@dataclass(slots=True)
class _Kind:
    """Tasks of the same needs and wishes whose names the same nodes know, oldest first.

    `blocked_at` is the view's change at which none had a seat.
    """

    needs: Resources
    wish: str
    knowers: Knowers
    tasks: deque[Taken] = field(default_factory=deque)
    blocked_at: int = -1
    noted: dict[str, str] = field(default_factory=dict)


class Core:
    """The state of one scheduler and its decisions.

    turns: which partitions are due at a tick; orders: in which groups a strategy tries partitions; asks: whether it
    reads more than what is due, and wants to hear of freed slots. A scheduler process has the defaults; experiments
    compare them with others.
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
        self._turns, self._orders, self._asks = turns, orders, asks
        self.counters = Counters()
        self.ordinal, self.members = 0, 1
        self.wants_tasks = True
        self._kinds: dict[tuple[str, str, Knowers], _Kind] = {}
        self._claimed: dict[str, Taken] = {}
        self._to_confirm: list[Place] = []
        self._due_to_confirm = 0  # how many of them were won before the last look at them
        self._fetched: set[int] = set()  # of those to be read, those that are read out of turn to place something there
        self._passes = 0  # how often it has made claims, or could have
        self._waiting = 0  # tasks that waited when it last took some
        self._asked: set[int] = set()  # partitions that will tell it of a freed slot; asked anew once a gap
        self._to_explain = False  # once a gap
        self._to_read: set[int] = set(range(partitions))
        self._nodes_due: set[int] = set(range(partitions))
        self._to_rescale = False  # nodes changed since the last plan

    # -- events ------------------------------------------------------------------------------------------------------

    def on_members(self, ordinal: int, members: int) -> None:
        """This scheduler is number `ordinal` of `members`."""
        self.ordinal, self.members = ordinal, max(1, members)

    def on_tick(self, number: int, own: bool = False) -> None:
        """Tick k: the partitions p with p mod N = (ordinal + k) mod N are due; on its turn it looks for tasks."""
        self.counters.ticks += 1
        self.counters.own_ticks += own
        for due in self._turns(self.ordinal, self.members, number, len(self.view.partitions)):
            self._to_read.add(due)
            self.view.partitions[due].due = self.counters.ticks
        if (self.ordinal + number) % self.members == 0:
            self.wants_tasks = True
            self._asked.clear()
            self._to_explain = True

    def on_wake(self) -> None:
        """Tasks may wait."""
        self.wants_tasks = True

    def on_freed(self, partition: int) -> None:
        """A slot was freed in a partition that this scheduler asked to hear of."""
        self._asked.discard(partition)
        self._to_read.add(partition)
        self._fetched.add(partition)

    def on_stale(self) -> None:
        """Whatever the view says may be old (the connection was lost): read everything."""
        self._nodes_due = set(range(len(self.view.partitions)))
        self._to_read = set(self._nodes_due)
        self.wants_tasks = True

    def on_nodes(self, partition: int, nodes: Iterable[Node], epoch: int) -> None:
        """The nodes of a partition were read, when its epoch was `epoch` or later."""
        self.view.partitions[partition].set_nodes(nodes, epoch)
        self._to_read.add(partition)
        self._to_rescale = True

    def on_names(self, digest: str, names: Collection[str]) -> None:
        """The task names for which a digest of nodes stands were read."""
        self.view.set_names(digest, names)
        self.view.changes += 1
        self._to_rescale = True

    def on_snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        """A partition was read."""
        self.counters.reads += 1
        partition = self.view.partitions[snapshot.partition]
        if snapshot.epoch != partition.epoch:
            self._nodes_due.add(snapshot.partition)
            return
        partition.read_s, partition.turn = now_s, partition.due
        if snapshot.partition in self._fetched:
            self._fetched.discard(snapshot.partition)
            partition.fetched_pass = self._passes
        if snapshot.bits is not None:
            partition.set_free(snapshot.bits, snapshot.left, snapshot.version)
            self.view.changes += 1

    def on_took(self, took: Took) -> None:
        """Tasks are this scheduler's now."""
        self.counters.taken += len(took.tasks)
        self._waiting = took.waiting
        self.wants_tasks = took.waiting > 0
        for task in took.tasks:
            self._backlog(task)

    def on_judged(self, judged: Judged) -> None:
        """Claims were judged: the won are to be confirmed, the lost are placed again."""
        partition = self.view.partitions[judged.partition]
        for claim, verdict in zip(judged.claims, judged.verdicts, strict=True):
            task = self._claimed.pop(claim.task, None)
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
            if self._asks or verdict.word is not ClaimOutcome.CONFLICT:
                self._to_read.add(judged.partition)
                if verdict.word not in (ClaimOutcome.CONFLICT, ClaimOutcome.SHORT):
                    self._nodes_due.add(judged.partition)
            if task is not None:
                self._backlog(task, front=True)
        partition.version = -1  # our own claims moved it on: what we know of it is not a version that Redis had

    def forget(self) -> None:
        """Drops every task in hand; the loop has given them back, or Redis has."""
        self._kinds.clear()
        self._claimed.clear()
        self._to_confirm.clear()
        self._due_to_confirm = 0
        self.on_stale()

    # -- decisions ---------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Tasks that this scheduler has taken and not placed."""
        return sum(len(kind.tasks) for kind in self._kinds.values())

    @property
    def at_rest(self) -> bool:
        """Whether it neither has tasks nor looks for any: nothing rests on its view until it does."""
        return not (self.wants_tasks or self._claimed or self.in_flight)

    @property
    def due(self) -> bool:
        """Whether partitions are to be read: what was freshest until now may be another's, so that it reads first."""
        return bool(self._to_read)

    @property
    def unconfirmed(self) -> list[Place]:
        """Won claims that are in this scheduler's hands yet."""
        return list(self._to_confirm)

    @property
    def hands(self) -> set[str]:
        """The tasks that are this scheduler's and not confirmed, as far as it knows."""
        waiting = {task.id for kind in self._kinds.values() for task in kind.tasks}
        return waiting | self._claimed.keys() | {place.task for place in self._to_confirm}

    @property
    def due_to_confirm(self) -> list[Place]:
        """The won claims that had been won when `confirmed` was called last."""
        return self._to_confirm[: self._due_to_confirm]

    def confirmed(self, count: int) -> None:
        """The first so many won claims leave this scheduler's hands; the others are due_to_confirm the next time."""
        del self._to_confirm[:count]
        self._due_to_confirm = len(self._to_confirm)

    def plan(self, place: bool = True, confirm: bool = True) -> Plan:
        """What to do next. Empty if there is nothing to do until the next event.

        Without `place` no claims are made: what is due is read first. Without `confirm` won claims stay in hand: a task
        may start before it is confirmed, and need not be confirmed then.
        """
        plan = Plan(read_nodes=sorted(self._nodes_due))
        if self._to_rescale:
            self.view.rescale()
            self._regroup()
            self._to_rescale = False
        if place:
            self._place(plan)
            self._passes += 1
        if self.wants_tasks:
            seated = sum(len(kind.tasks) for kind in self._kinds.values() if not self._blocked(kind))
            in_flight = self.in_flight
            ahead = AHEAD - in_flight if in_flight <= AHEAD // 2 and self._waiting >= AHEAD else 0
            plan.take = min(MAX_BATCH, max(0, self.view.free_count - seated, ahead))
        blocked = [kind for kind in self._kinds.values() if kind.tasks and self._blocked(kind)]
        self._ask(plan, bool(blocked))
        if blocked:
            self._explain(plan, blocked)
        plan.read = sorted(self._to_read - self._nodes_due)
        self._to_read.clear()
        self._nodes_due = set()
        if confirm:
            plan.confirm = self._to_confirm[:MAX_BATCH]
            del self._to_confirm[:MAX_BATCH]
            self._due_to_confirm = max(0, self._due_to_confirm - MAX_BATCH)
        return plan

    def _ask(self, plan: Plan, blocked: bool) -> None:
        """While tasks wait, each partition without a seat for them is asked to tell of a freed slot, until it does."""
        if not self._asks or not (blocked or (self.wants_tasks and (self._waiting or not self.view.free_count))):
            return
        plan.ask = {
            p.number
            for p in self.view.partitions
            if p.nodes and p.number not in self._asked and (blocked or not p.free_count or p.number in self._to_read)
        } - self._nodes_due
        self._asked |= plan.ask
        self._to_read |= plan.ask

    def _blocked(self, kind: _Kind) -> bool:
        return kind.blocked_at == self.view.changes

    def _backlog(self, task: Taken, front: bool = False) -> _Kind:
        knowers = self.view.knowers(task.name)
        key = (task.needs, task.strategy, knowers)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(parse_resources(task.needs), task.strategy, knowers)
        if front:
            kind.tasks.appendleft(task)
            kind.blocked_at = -1
        else:
            kind.tasks.append(task)
        return kind

    def _regroup(self) -> None:
        """Puts the tasks in hand into kinds anew: nodes have changed, and with them who knows which name."""
        noted = {id: why for kind in self._kinds.values() for id, why in kind.noted.items()}
        tasks = [task for kind in self._kinds.values() for task in kind.tasks]
        self._kinds = {}
        for task in sorted(tasks, key=lambda task: task.ready_ms):
            kind = self._backlog(task)
            if task.id in noted:
                kind.noted[task.id] = noted[task.id]

    def _place(self, plan: Plan) -> None:
        """Makes claims, first for the kind whose first task waits longest: else one that never ends starves others."""
        room = MAX_BATCH
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.tasks}
        for kind in sorted(self._kinds.values(), key=lambda kind: kind.tasks[0].ready_ms):
            if self._blocked(kind) or not room:
                continue
            room -= self._place_kind(plan, kind, min(room, len(kind.tasks)))
            if kind.tasks and room and not self._fetch(kind):
                kind.blocked_at = self.view.changes

    def _place_kind(self, plan: Plan, kind: _Kind, count: int) -> int:
        """Makes claims for up to `count` tasks of a kind; how many it made."""
        made = 0
        for group in self._order(kind):
            found_in = (partition.seats(kind.needs, kind.knowers) for partition in group)
            seats = [found for found in found_in if len(found.leads)]
            if seats:
                made += self._claim(plan, kind, seats, count - made)
            if made == count:
                break
        return made

    def _order(self, kind: _Kind) -> Sequence[Sequence[PartitionView]]:
        """Groups of partitions, to be tried one after the other; within a group the score decides."""
        known = [p for p in self.view.partitions if p.free_count and not self._is_stale(p, kind)]
        return self._orders[self.selector.resolve(kind.wish)](known)

    def _is_stale(self, partition: PartitionView, kind: _Kind) -> bool:
        """Whether a task that is not to wait for a lost claim must not be placed there before it is read anew.

        Another scheduler's turn has come since: it places there now. What was fetched since the last pass is never
        stale, however many ticks came meanwhile: passes may be slower than ticks.
        """
        latency = self._asks and self.selector.resolve(kind.wish) is Strategy.LATENCY
        return latency and partition.fetched_pass < self._passes and self.counters.ticks - partition.turn > FRESH

    def _fetch(self, kind: _Kind) -> bool:
        """Has stale partitions read that had seats for what is left of a kind, more likely those that had many.

        Whether there are any.
        """
        stale = [p for p in self.view.partitions if p.free_count and self._is_stale(p, kind)]
        seats = np.array([len(p.seats(kind.needs, kind.knowers).leads) for p in stale], dtype=float)
        wanted, found = len(kind.tasks), 0
        for i in sample(self.rng, 1 / np.maximum(seats, 1e-9), len(stale)).tolist():
            if found >= wanted or not seats[i]:
                break
            self._fetched.add(stale[i].number)
            found += int(seats[i])
        self._to_read |= self._fetched
        return found > 0

    def _claim(self, plan: Plan, kind: _Kind, seats: list[Seats], count: int) -> int:
        paces = np.concatenate([found.paces for found in seats])
        ends = np.cumsum([len(found.leads) for found in seats])
        chosen = sample(self.rng, paces, count)
        which = np.searchsorted(ends, chosen, side="right")
        for i in sorted(set(which.tolist())):
            found, mine = seats[i], chosen[which == i]
            number = found.partition.number
            claims = plan.commit.setdefault(number, [])
            begin = int(ends[i]) - len(found.leads)
            for node, slots in found.partition.occupy(found, mine - begin, kind.needs):
                task = kind.tasks.popleft()
                kind.noted.pop(task.id, None)
                self._claimed[task.id] = task
                claims.append(
                    Claim(task.id, task.attempt, number, node.name, node.inc, slots, needs_at(node, task.needs))
                )
        return len(chosen)

    def _explain(self, plan: Plan, blocked: list[_Kind]) -> None:
        """Gives back tasks that are too many to hold; once a gap, notes of those that are left why they wait."""
        surplus = sum(len(kind.tasks) for kind in blocked) - HOLD
        noting, self._to_explain = self._to_explain, False
        for kind in sorted(blocked, key=lambda kind: -len(kind.tasks)):
            why = self.view.why_not(kind.needs, kind.knowers) if noting or surplus > 0 else ""
            while surplus > 0 and len(kind.tasks) > 1 and len(plan.give_back) < MAX_BATCH:
                task = kind.tasks.pop()
                kind.noted.pop(task.id, None)
                plan.give_back.append((task.id, task.attempt, why))
                surplus -= 1
            if noting:
                changed = [task for task in kind.tasks if kind.noted.get(task.id) != why]
                for task in changed[: MAX_BATCH - len(plan.note)]:
                    plan.note.append((task.id, task.attempt, why))
                    kind.noted[task.id] = why
        self.counters.given_back += len(plan.give_back)

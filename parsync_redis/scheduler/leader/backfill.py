"""The duty to book nodes for tasks that have waited long (EASY backfill).

So small tasks do not starve large ones. The leader's ticks tell schedulers that there are bookings.
The key has a TTL, so the bookings of a dead leader lapse.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from math import ceil, inf
from typing import Any, Final, cast

from ...model.booking import Booking
from ...model.ids import encode_id, readable
from ...model.kind import Kind, split_kind
from ...model.near import settled
from ...model.needs import Resources, parse_needs
from ...model.node import Node
from ...model.times import LearntTimes, RunTimes
from ...placement.backfill import (
    MAX_BOOKINGS,
    MOST_LOOKS,
    NEAREST,
    LargeTask,
    by_lack,
    choose,
    makes_room,
    unused,
)
from ...placement.facts import NodeFacts
from ...placement.forecast import ExpectedEnd
from ...store.reads.live_nodes import LiveNode, facts_of, read_holders
from ...store.reads.times import read_times
from ...store.reads.views import Directory, read_booked, read_live_nodes
from ...store.repair.lost_leases import now_ms
from ...store.store import Store
from ..core.large_kinds import LargeKind
from ..process.lease_watch import AgeTracker

TASKS_PER_KIND: Final = 2 * MAX_BOOKINGS
"""Number of waiting tasks of a kind that are read.

When the first tasks have started, the leader has already seen the next ones wait.
"""


class BackfillDuty:
    """The duty of this leader to book nodes.

    large: a function that returns the large kinds without room.
    booked: whether there are bookings.
    """

    def __init__(
        self, store: Store, lease_s: float, large: Callable[[], Sequence[LargeKind]]
    ) -> None:
        self._store = store
        self._lease_s = lease_s
        self._large = large
        self._ages = AgeTracker(lease_s)
        # by id, of the tasks that held a node at the last look
        self._kinds: dict[str, str] = {}
        self._kinds_before: dict[str, str] = {}
        self._apps = Directory(store)
        # perhaps the leader before this one has booked, or a writer that sets no TTL
        self.booked = True

    def work(self, now_s: float) -> None:
        """Book nodes for the tasks that have waited long; all other bookings end."""
        large = self._large()
        tasks = self._tasks(large) if large else []
        ages = self._ages.look(now_s, [task for task, _ in tasks])
        if not large and not self.booked:
            return
        bookings = self._choose(large, tasks, ages) if tasks else []
        self._store.run(self._store.commands.book(bookings, ceil(self._lease_s)))
        self.booked = bool(bookings)

    def _choose(
        self,
        large: Sequence[LargeKind],
        tasks: Sequence[tuple[str, str]],
        ages: Mapping[Any, float],
    ) -> list[Booking]:
        """Return the nodes to book for these tasks.

        ages: by task, for how long the leader has seen the task wait, in seconds.
        """
        store = self._store
        apps = self._apps.by_digest()
        before = read_booked(store)
        states = {state.node.name: state for state in chain.from_iterable(read_live_nodes(store))}
        alive = {name for name, state in states.items() if state.node.state != "down"}
        now = now_ms(store)
        leaving = {name: state for name, state in states.items() if state.node.notice}
        times = read_times(store) if leaving else LearntTimes()
        latest_ms: dict[tuple[str, str], float] = {}
        needs: dict[str, Resources] = {}
        by_kind: dict[str, list[NodeFacts]] = {}
        for text in (large_kind.kind for large_kind in large):
            kind = Kind.of(text)
            needs[text] = parse_needs(settled(kind.needs, alive))
            booked = [booking.node for booking in before if booking.kind == text]
            for name, state in leaving.items():
                latest_ms[text, name] = self._latest_ms(
                    state.node, times.of(kind.name, state.node.offer)
                )
            facts = [
                facts_of(state, kind.name, apps)
                for name, state in states.items()
                if latest_ms.get((text, name), inf) >= now
            ]
            by_kind[text] = by_lack(needs[text], facts, booked)
        with_turns = {kind.kind for kind in large if kind.turn_numbers is not None}
        nodes, ends_by_node = self._look(by_kind, needs, with_turns, states, now)
        previous = unused(before, ends_by_node, self._kinds)
        waiting = [
            LargeTask(kind, needs[kind], task, 1000 * ages[task])
            for task, kind in _in_turn(large, tasks)
        ]
        open_nodes = sum(
            state.node.state == "up" and not state.node.draining for state in states.values()
        )
        return choose(waiting, nodes, ends_by_node, previous, open_nodes, now, latest_ms)

    def _latest_ms(self, node: Node, learnt: RunTimes | None) -> float:
        """Return when a task must start on a node to end before it leaves (server time).

        learnt: the run times of its name there; None if no run time is known, which counts as too
            long.
        """
        if node.notice is None:
            return inf
        return node.notice.end_ms(self._lease_s) - learnt.p95_ms if learnt else -inf

    def _look(
        self,
        by_kind: Mapping[str, Sequence[NodeFacts]],
        needs: Mapping[str, Resources],
        with_turns: Collection[str],
        states: Mapping[str, LiveNode],
        now: int,
    ) -> tuple[dict[str, list[NodeFacts]], dict[str, list[ExpectedEnd]]]:
        """Return by kind the nodes that may be booked, and by node the tasks that hold it.

        by_kind: those that could hold its tasks, of which the first are looked at.
        with_turns: the kinds with tenants. Nodes that such a tenant has won are left out.
        """
        nodes: dict[str, list[NodeFacts]] = {text: [] for text in by_kind}
        ends_by_node: dict[str, list[ExpectedEnd]] = {}
        self._kinds_before = self._kinds
        self._kinds = {}
        for start in range(0, MOST_LOOKS * NEAREST, NEAREST):
            looked_at = {
                text: facts[start : start + NEAREST]
                for text, facts in by_kind.items()
                if not start or (text in with_turns and len(nodes[text]) < NEAREST)
            }
            if not any(looked_at.values()):
                break
            candidates: dict[int, dict[str, Node]] = {}
            for name in {node.name for node in chain.from_iterable(looked_at.values())}:
                if name not in ends_by_node:
                    candidates.setdefault(states[name].partition, {})[name] = states[name].node
            ends_by_node |= self._expected_ends(candidates, now)
            for text, facts in looked_at.items():
                nodes[text] += [
                    node
                    for node in facts
                    if text not in with_turns
                    or not self._is_won(text, needs[text], ends_by_node.get(node.name, ()))
                ]
        return nodes, ends_by_node

    def _is_won(self, kind: str, needs: Resources, ends: Sequence[ExpectedEnd]) -> bool:
        """Return whether a task of the same tenant makes room for a task of a kind when it ends."""
        tenant = split_kind(kind).tenant
        return any(
            makes_room(end.holder, needs)
            and split_kind(self._kinds.get(end.holder.task, "")).tenant == tenant
            for end in ends
        )

    def _tasks(self, large: Sequence[LargeKind]) -> list[tuple[str, str]]:
        """Return the first waiting tasks of these kinds, each with its kind, in the queue's order.

        A queue that cannot be read now counts as empty.
        """
        queues = [(large_kind.kind, shard) for large_kind in large for shard in large_kind.shards]
        keys = [self._store.keys.pending(kind, shard) for kind, shard in queues]
        reads = [("zrange", key, 0, TASKS_PER_KIND - 1, False, True) for key in keys]
        replies = cast(list[list[Any] | Exception], self._store.pipe_each(reads))
        tasks: list[tuple[float, str, str]] = []
        for (kind, _), reply in zip(queues, replies, strict=True):
            if not isinstance(reply, Exception):
                tasks += [(order, readable(id), kind) for id, order in reply]
        return [(task, kind) for _, task, kind in sorted(tasks)]

    def _expected_ends(
        self, nodes_by_partition: Mapping[int, Mapping[str, Node]], now: int
    ) -> dict[str, list[ExpectedEnd]]:
        """Return by node the tasks that hold it, each with its expected end."""
        store = self._store
        ends_by_node = dict[str, list[ExpectedEnd]]()
        holders = [
            holder
            for p, nodes in nodes_by_partition.items()
            for holder in read_holders(store, p, [*nodes.values()])
        ]
        kinds = self._kinds_before
        new = [holder.task for holder in holders if holder.task not in kinds]
        if new:
            statuses = store.statuses(map(encode_id, new))
            # a task without a name is read again at the next look
            kinds = kinds | {task.id: task.kind for task in statuses if task.name}
        self._kinds |= {
            holder.task: kinds[holder.task] for holder in holders if holder.task in kinds
        }
        times = read_times(store) if holders else LearntTimes()
        nodes = {
            name: node
            for nodes_by_name in nodes_by_partition.values()
            for name, node in nodes_by_name.items()
        }
        for holder in holders:
            learnt = times.of(
                split_kind(self._kinds.get(holder.task, "")).name, nodes[holder.node].offer
            )
            until_ms = learnt.end_ms(holder.since_ms, now) if learnt else None
            ends_by_node.setdefault(holder.node, []).append(ExpectedEnd(holder, until_ms))
        return ends_by_node


def _in_turn(large: Sequence[LargeKind], tasks: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the tasks that may have bookings, in their turns.

    tasks: (id, kind) in the order of the queue, which decides without tenants.
    """
    numbers = {
        kind.kind: iter(kind.turn_numbers) for kind in large if kind.turn_numbers is not None
    }
    if not numbers:
        return [*tasks]
    numbered = [
        (number, task, kind)
        for task, kind in tasks
        if kind in numbers and (number := next(numbers[kind], None)) is not None
    ]
    return [(task, kind) for _, task, kind in sorted(numbered)]

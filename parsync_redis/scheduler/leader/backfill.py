"""Book nodes for tasks that have waited long, so that small tasks do not starve large ones (EASY
backfill).

The leader's ticks tell schedulers that there are bookings. The key has a TTL: the bookings of a
dead leader lapse.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Final, cast

from ...model.booking import Booking
from ...model.ids import encode_id, readable
from ...model.kind import Kind, split_kind
from ...model.near import settled
from ...model.needs import Resources, parse_needs
from ...model.node import Node
from ...model.times import LearntTimes
from ...placement.backfill import MAX_BOOKINGS, LargeTask, choose, nearest, unused
from ...placement.facts import NodeFacts
from ...placement.forecast import ExpectedEnd
from ...store.reads.facts import facts_of, read_holders
from ...store.reads.times import read_times
from ...store.reads.views import Directory, read_booked, read_live_nodes
from ...store.repair.lost_leases import now_ms
from ...store.store import Store
from ..core.large_kinds import Large
from ..process.lease_watch import AgeTracker

WINDOW: Final = 2 * MAX_BOOKINGS
"""Waiting tasks of a kind that are looked at: when those in front have started, the leader has seen
the next ones.
"""


class BackfillDuty:
    """The bookings of this leader.

    large: tells the large kinds that find no room. booked: there are bookings.
    """

    def __init__(self, store: Store, lease_s: float, large: Callable[[], Sequence[Large]]) -> None:
        self._store = store
        self._lease_s = lease_s
        self._large = large
        self._ages = AgeTracker(lease_s)
        self._kinds: dict[str, str] = {}  # of the tasks that held some node at the last look
        self._apps = Directory(store)
        self.booked = True  # perhaps: by the leader before, or by a writer who knows no TTL

    def work(self, now_s: float) -> None:
        """Book nodes, as far as tasks have waited long; other bookings end."""
        large = self._large()
        tasks = self._tasks(large) if large else []
        ages = self._ages.look(now_s, [task for task, _ in tasks])
        if not large and not self.booked:
            return
        found = self._choose(large, tasks, ages) if tasks else []
        self._store.run(self._store.commands.book(found, ceil(self._lease_s)))
        self.booked = bool(found)

    def _choose(
        self, large: Sequence[Large], tasks: Sequence[tuple[str, str]], ages: Mapping[Any, float]
    ) -> list[Booking]:
        store = self._store
        apps = self._apps.by_digest()
        before = read_booked(store)
        states = {state.node.name: state for some in read_live_nodes(store) for state in some}
        alive = {name for name, state in states.items() if state.node.state != "down"}
        nodes: dict[str, list[NodeFacts]] = {}
        needs: dict[str, Resources] = {}
        for one in large:
            kind = Kind.of(one.kind)
            needs[one.kind] = parse_needs(settled(kind.needs, alive))
            mine = [booking.node for booking in before if booking.kind == one.kind]
            facts = [facts_of(state, kind.name, apps) for state in states.values()]
            nodes[one.kind] = nearest(needs[one.kind], facts, mine)
        near: dict[int, dict[str, Node]] = {}
        for name in {node.name for some in nodes.values() for node in some}:
            near.setdefault(states[name].partition, {})[name] = states[name].node
        now = now_ms(store)
        held = self._held(near, now)
        waiting = [LargeTask(kind, needs[kind], task, 1000 * ages[task]) for task, kind in tasks]
        open_nodes = sum(
            state.node.state == "up" and not state.node.draining for state in states.values()
        )
        return choose(waiting, nodes, held, unused(before, held, self._kinds), open_nodes, now)

    def _tasks(self, large: Sequence[Large]) -> list[tuple[str, str]]:
        """Return the first waiting tasks of these kinds in their order, each with its kind.

        Of a queue that cannot be read now there are none.
        """
        queues = [(one.kind, shard) for one in large for shard in one.shards]
        keys = [self._store.keys.pending(kind, shard) for kind, shard in queues]
        reads = [("zrange", key, 0, WINDOW - 1, False, True) for key in keys]
        replies = cast(list[list[Any] | Exception], self._store.pipe_each(reads))
        tasks: list[tuple[float, str, str]] = []
        for (kind, _), reply in zip(queues, replies, strict=True):
            if not isinstance(reply, Exception):
                tasks += [(order, readable(id), kind) for id, order in reply]
        return [(task, kind) for _, task, kind in sorted(tasks)]

    def _held(
        self, near: Mapping[int, Mapping[str, Node]], now: int
    ) -> dict[str, list[ExpectedEnd]]:
        """Return what holds these nodes, by node, with the expected end of each."""
        store = self._store
        found = dict[str, list[ExpectedEnd]]()
        holders = [
            one for p, nodes in near.items() for one in read_holders(store, p, [*nodes.values()])
        ]
        new = [one.task for one in holders if one.task not in self._kinds]
        known = self._kinds
        if new:
            statuses = store.statuses(map(encode_id, new))
            # others are asked for again
            known = known | {task.id: task.kind for task in statuses if task.name}
        self._kinds = {one.task: known[one.task] for one in holders if one.task in known}
        times = read_times(store) if holders else LearntTimes()
        nodes = {name: node for some in near.values() for name, node in some.items()}
        for one in holders:
            learnt = times.of(split_kind(self._kinds.get(one.task, "")).name, nodes[one.node].offer)
            until_ms = learnt.end_ms(one.since_ms, now) if learnt else None
            found.setdefault(one.node, []).append(ExpectedEnd(one, until_ms))
        return found

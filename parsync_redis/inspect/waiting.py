"""Find out why tasks wait, at this moment: the reason that a scheduler wrote may be old, and a dead
one writes none.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ..model.booking import Booking
from ..model.ids import decode_id, encode_id
from ..model.kind import Kind
from ..model.near import near_of, settled
from ..model.needs import Resources, are_needs, parse_needs
from ..model.node import Node
from ..model.status import TaskStatus
from ..model.task import FINAL, StoredState, TaskState
from ..model.times import LearntTimes
from ..placement.facts import Holder, NodeFacts
from ..placement.fits import fits
from ..placement.now import clock_text
from ..placement.reasons import MAX_NAMED, ROOM, explain_waiting, find_fitting
from ..store.reads.facts import facts_of, read_holders
from ..store.reads.live_nodes import live_nodes
from ..store.reads.purge import server_ms
from ..store.reads.schedulers import find_fault, look_for_cluster, read_refusals, read_schedulers
from ..store.reads.times import read_times
from ..store.reads.views import Directory, fetch, read_booked, read_holds
from ..store.server.server_errors import Fault
from ..store.store import Store

MOST_IN_A_LIST: Final = 2500
"""Nodes that are compared with the tasks of one list, at most: each task of other needs is compared
with all nodes.
"""

MOST_SEATED: Final = 500
"""Nodes with look-ahead whose waiting seats are read."""

NOT_YET: Final = "not explained yet: `parsync explain` explains one task"

MOST_COMPARED: Final = 30_000
"""Comparisons of a kind of waiting tasks with nodes of equal offers, for one explanation."""

_OVER: Final = frozenset((*FINAL, StoredState.PENDING, StoredState.GONE))
"""States of tasks of which no attempt may hold slots."""


def explain_tasks(store: Store, tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    """Return the tasks; those that wait say in `why` why they do, by nodes, leases and schedulers
    as they are now.

    What a list costs has a bound: with more nodes, or tasks of more needs and names, a task keeps
    what a scheduler wrote last, or says that it is not explained yet. A single task is always
    explained. Tasks of which nothing is known say so if there is no such cluster. Costs a few round
    trips, and none if no task waits and none is gone. Raises ServerUnreachable.
    """
    if any(task.state is TaskState.GONE and not task.why for task in tasks):
        missing = str(look_for_cluster(store) or "")
        tasks = [
            replace(task, why=task.why or missing) if task.state is TaskState.GONE else task
            for task in tasks
        ]
    if not any(task.state is TaskState.WAITING for task in tasks):
        return list(tasks)
    looker = Looker(store, MOST_IN_A_LIST if len(tasks) > 1 else None)
    return [
        replace(task, why=looker.why(task)) if task.state is TaskState.WAITING else task
        for task in tasks
    ]


class Looker:
    """The cluster as it was read at one moment; it explains tasks.

    most_compared: so many nodes it compares with tasks at most; None for all.
    """

    def __init__(self, store: Store, most_compared: int | None = None) -> None:
        self.store = store
        rows = list(fetch(store))
        compared = sum(len(records) for _, (_, _, _, records, *_) in rows)
        self._most_explained = None if most_compared is None else most_compared // max(1, compared)
        self._refusals = read_refusals(store)
        self._fault = find_fault(store, read_schedulers(store), self._refusals)
        if self._most_explained == 0:
            rows = []  # a large cluster: to parse them costs as much as the comparison
        nodes = [state for number, (_, *texts) in rows for state in live_nodes(number, *texts)]
        self.states = {state.node.name: state for state in nodes}
        self._alive = {state.node.name for state in nodes if state.node.state != "down"}
        self.apps = Directory(store).by_digest()
        self.now_ms = server_ms(store)
        self.bookings = read_booked(store)
        self.holds = read_holds(store)
        self.times = read_times(store) if self.bookings else LearntTimes()
        self._at_workers = self._read_waiting_seats()
        self._holders: dict[str, list[Holder]] = {}
        self._placed: dict[str, str] = {}  # the node of each task that was seen to hold slots
        self._found: dict[tuple[str, str], str] = {}

    def fault_of(self, task: TaskStatus) -> Fault | None:
        """Return what keeps a task whatever it needs; None if nothing does.

        No scheduler is known to live, or the server of its shard takes no writes. A task without an
        id has no shard.
        """
        if self._fault or not task.id:
            return self._fault
        home = self.store.place_of(self.store.keys.in_shard_of("meta", encode_id(task.id)))
        return next((refusal for refusal in self._refusals if refusal.address == home), None)

    def why(self, task: TaskStatus) -> str:
        """Return the reason why a waiting task waits, and which other servers take no writes."""
        fault = self.fault_of(task)
        others = [f"; besides, {refusal}" for refusal in self._refusals if refusal is not fault]
        return self._reason(task, fault) + "".join(others)

    def _reason(self, task: TaskStatus, fault: Fault | None) -> str:
        ready_ms = task.times.get("ready")
        if ready_ms is not None and ready_ms > self.now_ms:
            when = clock_text(ready_ms)
            due = f"{task.why}: it is tried again at {when}" if task.why else f"it is due at {when}"
            return f"{due}; {fault}" if fault else due
        if node := self._at_workers.get(task.id):
            return (
                f"it waits at {node} until a short task there ends; if that takes long, it goes "
                "back"
            )
        asked = (task.needs, task.name)
        if asked not in self._found:
            if self._most_explained is not None and len(self._found) >= self._most_explained:
                why = task.why or NOT_YET
                return f"{fault}; and {why}" if fault else why
            self._found[asked] = self._why(*asked)
        if task.id in self._placed:
            return f"a scheduler has just placed it on {self._placed[task.id]}"
        reason = self._found[asked]
        if fault is not None:
            return str(fault) if reason.endswith(ROOM) else f"{fault}; and {reason}"
        if reason.endswith(ROOM) and task.history:
            last = task.history[-1]
            return f"{reason}; its last attempt left {last.node}: {last.why}"
        return reason

    def _read_waiting_seats(self) -> dict[str, str]:
        """Return by id the nodes of the tasks that wait at their worker (decision 0028); one round
        trip a partition.
        """
        nodes: dict[int, list[Node]] = {}
        ahead = [state for state in self.states.values() if state.node.has_waiting_seats]
        for state in ahead[:MOST_SEATED]:
            nodes.setdefault(state.partition, []).append(state.node)
        slots = {node.name: node.offer.slots for some in nodes.values() for node in some}
        leases = [
            lease
            for p, some in nodes.items()
            for lease in self.store.leases(p, some)
            if lease.leads
        ]
        places = [lease.place for lease in leases]
        return {
            decode_id(place.task): place.node for place in places if place.slot >= slots[place.node]
        }

    def _why(self, needs: str, name: str) -> str:
        if not are_needs(needs):
            return f"its record is damaged: needs={needs!r:.80}"
        needed = self.settled(needs)
        facts = self.facts(name, needs)
        full = [node for node in find_fitting(needed, facts)[:MAX_NAMED] if node.open]
        holders = self.holders_of([node.name for node in full])
        return explain_waiting(needed, facts, holders)

    def settled(self, needs: str) -> Resources:
        """Return sound needs as they count now: a node that is down is not required."""
        return parse_needs(settled(needs, self._alive))

    def facts(self, name: str, needs: str) -> list[NodeFacts]:
        """Return the facts of all nodes for a task of this name and needs."""
        found = [facts_of(state, name, self.apps) for state in self.states.values()]
        barred = {one.node: one.whom for one in self.bookings if self._bars(one, name, needs)}
        held = self.holds.get(name, frozenset())
        return [
            replace(
                node,
                booked=barred.get(node.name, ""),
                held_back=(node.name, self.states[node.name].node.inc) in held,
            )
            if node.name in barred or held
            else node
            for node in found
        ]

    def _bars(self, booking: Booking, name: str, needs: str) -> bool:
        state = self.states.get(booking.node)
        times = self.times.of(name, state.node.offer) if state else None
        return booking.bars(name, needs, times.p95_ms if times else None, self.now_ms)

    def competing(self, kinds: Collection[Kind], nodes: Iterable[NodeFacts]) -> set[Kind] | None:
        """Return the kinds of which a task could be placed on one of these nodes: those may take a
        task's place.

        nodes: that fit the task. A closed node is nobody's; nodes of equal offers are judged once
        for each kind. Returns None if that takes more than MOST_COMPARED comparisons.
        """
        alike: dict[str, list[Node]] = {}
        for facts in nodes:
            if facts.open:
                alike.setdefault(facts.offer.text, []).append(self.states[facts.name].node)
        rivals = set[Kind]()
        compared = 0
        for kind in kinds if alike else ():
            if not are_needs(kind.needs):
                continue
            needs = self.settled(kind.needs)
            barred = {
                booking.node
                for booking in self.bookings
                if self._bars(booking, kind.name, kind.needs)
            }
            for nodes_alike in alike.values():
                if compared == MOST_COMPARED:
                    return None
                compared += 1
                if self._admits(kind.name, needs, nodes_alike, barred):
                    rivals.add(kind)
                    break
        return rivals

    def _admits(
        self, name: str, needs: Resources, alike: Sequence[Node], barred: Collection[str]
    ) -> bool:
        """Return whether a task may be placed on one of some nodes with equal offers.

        barred: nodes that are booked.
        """
        first = facts_of(self.states[alike[0].name], name, self.apps)
        if not first.knows or not fits(first.offer, needs):
            return False
        holding_back = self.holds.get(name, frozenset())
        near = near_of(needs)
        return any(
            near in ("", node.name)
            and (node.name, node.inc) not in holding_back
            and node.name not in barred
            for node in alike
        )

    def holders_of(self, names: Sequence[str]) -> list[Holder]:
        """Return the tasks that hold slots of some nodes; two round trips for each partition, once.

        A lease may outlive its run: so the tasks are asked whether that attempt is over.
        """
        unread: dict[int, list[Node]] = {}
        for state in (self.states[name] for name in names if name not in self._holders):
            unread.setdefault(state.partition, []).append(state.node)
        for partition, nodes in unread.items():
            self._holders |= {node.name: [] for node in nodes}
            holders = read_holders(self.store, partition, nodes)
            records = self.store.records(
                [encode_id(holder.task) for holder in holders], extras=False
            )
            for holder, record in zip(holders, records, strict=True):
                ended = record.attempt != holder.attempt or record.state in _OVER
                self._holders[holder.node].append(replace(holder, ended=ended))
                if not ended:
                    self._placed[holder.task] = holder.node
        return [holder for name in names for holder in self._holders[name]]

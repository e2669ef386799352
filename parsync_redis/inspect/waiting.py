"""The reasons why tasks wait, found out at this moment.

The reason that a scheduler wrote may be old, and a dead scheduler writes none.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ..model.booking import Booking, outlasts
from ..model.human import clock_text
from ..model.ids import decode_id, encode_id
from ..model.kind import Kind, split_kind
from ..model.near import near_of, settled
from ..model.needs import Resources, are_needs, parse_needs
from ..model.node import Node
from ..model.status import TaskStatus
from ..model.task import FINAL, StoredState, TaskState
from ..model.times import LearntTimes
from ..placement.facts import Holder, NodeFacts
from ..placement.fits import fits
from ..placement.now import LEAVES_NOW, leaves_in
from ..placement.reasons import MAX_NAMED, ROOM, explain_waiting, find_fitting
from ..store.cluster import read_config
from ..store.reads.cancel import server_ms
from ..store.reads.live_nodes import facts_of, live_nodes, read_holders
from ..store.reads.schedulers import find_fault, look_for_cluster, read_refusals, read_schedulers
from ..store.reads.times import read_times
from ..store.reads.views import Directory, fetch, read_booked, read_holds
from ..store.server.server_errors import Fault
from ..store.store import Store
from .accounts import AccountExplainer

MOST_COMPARED_FOR_LIST: Final = 2500
"""Maximum number of comparisons, of needs with nodes, to explain one list of tasks."""

MOST_READ_SEATS: Final = 500
"""Maximum number of nodes with look-ahead whose waiting seats are read."""

NOT_YET: Final = "not explained yet: `parsync explain` explains one task"

MOST_COMPARED: Final = 30_000
"""Maximum number of comparisons, of kinds with nodes of equal offers, for one explanation."""

_OVER: Final = frozenset((*FINAL, StoredState.PENDING, StoredState.GONE))
"""States of tasks that may hold no slots."""


def explain_tasks(store: Store, tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    """Return the tasks; `why` of each waiting task says why the task waits now.

    A list has a bounded cost (MOST_COMPARED_FOR_LIST). Beyond the bound a task keeps the reason
    that a scheduler wrote last, or says that it is not explained yet. A single task is always
    explained. Tasks that are unknown say so if the cluster does not exist. Costs a few round trips;
    none if no task waits and no task is unknown. Raises ServerUnreachable.
    """
    if any(task.state is TaskState.GONE and not task.why for task in tasks):
        missing = str(look_for_cluster(store) or "")
        tasks = [
            replace(task, why=task.why or missing) if task.state is TaskState.GONE else task
            for task in tasks
        ]
    if not any(task.state is TaskState.WAITING for task in tasks):
        return list(tasks)
    reading = ClusterReading(store, MOST_COMPARED_FOR_LIST if len(tasks) > 1 else None)
    reading.accounts.read({task.kind for task in tasks if task.state is TaskState.WAITING})
    return [
        replace(task, why=reading.why(task)) if task.state is TaskState.WAITING else task
        for task in tasks
    ]


class ClusterReading:
    """The cluster as it was read at one moment; explains tasks from that.

    most_compared: the bound on comparisons of needs with nodes; None for no bound.
    times: the run times if the caller has read them; else they are read if a node is booked or
        leaves.
    """

    def __init__(
        self, store: Store, most_compared: int | None = None, times: LearntTimes | None = None
    ) -> None:
        self.store = store
        rows = list(fetch(store))
        compared = sum(len(records) for _, (_, _, _, records, *_) in rows)
        self._most_explained = None if most_compared is None else most_compared // max(1, compared)
        self._refusals = read_refusals(store)
        self._fault = find_fault(store, read_schedulers(store), self._refusals)
        if self._most_explained == 0:
            rows = []  # the bound is reached: parsing the rows costs as much as the comparison
        nodes = [state for number, (_, *texts) in rows for state in live_nodes(number, *texts)]
        self.states = {state.node.name: state for state in nodes}
        self._alive = {state.node.name for state in nodes if state.node.state != "down"}
        self.apps = Directory(store).by_digest()
        self.now_ms = server_ms(store)
        self.accounts = AccountExplainer(store, self.now_ms, most_compared is not None)
        self.bookings = read_booked(store)
        self.holds = read_holds(store)
        leaving = any(state.node.notice for state in nodes)
        config = read_config(store) if leaving else None
        self._lease_s = config.lease_s if config else 0.0
        if times is None:
            times = read_times(store) if self.bookings or leaving else LearntTimes()
        self.times = times
        self._at_workers = self._read_waiting_seats()
        self._holders: dict[str, list[Holder]] = {}
        self._placed: dict[str, str] = {}  # task -> the node on which it holds slots
        self._reasons: dict[tuple[str, str, str], str] = {}

    def fault_of(self, task: TaskStatus) -> Fault | None:
        """Return the fault that keeps the task whatever it needs; None if there is none.

        The fault is that no scheduler is known to live, or that the server of the task's shard
        takes no writes. A task without an id has no shard.
        """
        if self._fault or not task.id:
            return self._fault
        home = self.store.place_of(self.store.keys.in_shard_of("meta", encode_id(task.id)))
        return next((refusal for refusal in self._refusals if refusal.address == home), None)

    def why(self, task: TaskStatus) -> str:
        """Return why a task waits, and which other servers take no writes."""
        fault = self.fault_of(task)
        further_refusals = [
            f"; besides, {refusal}" for refusal in self._refusals if refusal is not fault
        ]
        return self._reason(task, fault) + "".join(further_refusals)

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
        if why := self.accounts.why(task.kind):
            return f"{fault}; and {why}" if fault else why
        cause = (task.name, task.needs, task.tenant)
        if cause not in self._reasons:
            if self._most_explained is not None and len(self._reasons) >= self._most_explained:
                why = task.why or NOT_YET
                return f"{fault}; and {why}" if fault else why
            self._reasons[cause] = self._why(task)
        if task.id in self._placed:
            return f"a scheduler has just placed it on {self._placed[task.id]}"
        reason = self._reasons[cause]
        if fault is not None:
            return str(fault) if reason.endswith(ROOM) else f"{fault}; and {reason}"
        if reason.endswith(ROOM) and task.history:
            last = task.history[-1]
            return f"{reason}; its last attempt left {last.node}: {last.why}"
        return reason

    def _read_waiting_seats(self) -> dict[str, str]:
        """Return the node of each task that waits at its worker (decision 0028), by id.

        Costs one round trip per partition.
        """
        nodes: dict[int, list[Node]] = {}
        ahead = [state for state in self.states.values() if state.node.has_waiting_seats]
        for state in ahead[:MOST_READ_SEATS]:
            nodes.setdefault(state.partition, []).append(state.node)
        slots = {state.node.name: state.node.offer.slots for state in ahead}
        places = [
            lease.place
            for partition, nodes_of_partition in nodes.items()
            for lease in self.store.leases(partition, nodes_of_partition)
            if lease.leads
        ]
        return {
            decode_id(place.task): place.node for place in places if place.slot >= slots[place.node]
        }

    def _why(self, task: TaskStatus) -> str:
        if not are_needs(task.needs):
            return f"its record is damaged: needs={task.needs!r:.80}"
        needed = self.settled(task.needs)
        facts = self.facts(split_kind(task.kind))
        full = [node for node in find_fitting(needed, facts)[:MAX_NAMED] if node.open]
        holders = self.holders_of([node.name for node in full])
        return explain_waiting(needed, facts, holders)

    def settled(self, needs: str) -> Resources:
        """Return sound needs as they count now: a node that is down is not required."""
        return parse_needs(settled(needs, self._alive))

    def facts(self, kind: Kind) -> list[NodeFacts]:
        """Return the facts of all nodes for a task of a kind."""
        facts = [facts_of(state, kind.name, self.apps) for state in self.states.values()]
        barred = {
            booking.node: booking.whom for booking in self.bookings if self._bars(booking, kind)
        }
        holding_back = self.holds.get(kind.name, frozenset())
        for i, node in enumerate(facts):
            if node.name in barred or holding_back:
                holds_back = (node.name, self.states[node.name].node.inc) in holding_back
                facts[i] = replace(node, booked=barred.get(node.name, ""), held_back=holds_back)
            if leaves := self._leaves(self.states[node.name].node, kind.name):
                facts[i] = replace(facts[i], leaves=leaves)
        return facts

    def _leaves(self, node: Node, name: str) -> str:
        """Return how a node leaves before tasks of a name end; '' if it does not."""
        if node.notice is None or node.notice.over:
            return LEAVES_NOW if node.notice else ""
        times = self.times.of(name, node.offer)
        run_ms = times.p95_ms if times else None
        if not outlasts(run_ms, self.now_ms, node.notice.end_ms(self._lease_s)):
            return ""
        return leaves_in(node.notice.at_ms, run_ms, self.now_ms)

    def _bars(self, booking: Booking, kind: Kind) -> bool:
        """Return whether a booking keeps tasks of a kind off its node."""
        state = self.states.get(booking.node)
        times = self.times.of(kind.name, state.node.offer) if state else None
        return booking.bars(kind, times.p95_ms if times else None, self.now_ms)

    def competing(self, kinds: Collection[Kind], nodes: Iterable[NodeFacts]) -> set[Kind] | None:
        """Return the kinds whose tasks could be placed on one of these nodes.

        nodes: the nodes that fit a task. A closed node counts for no kind. Nodes of equal offers
        are judged once per kind. Returns None beyond MOST_COMPARED comparisons.
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
            barred = {booking.node for booking in self.bookings if self._bars(booking, kind)}
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
        """Return whether a task may be placed on one of the nodes, which have equal offers.

        barred: names of booked nodes.
        """
        first = facts_of(self.states[alike[0].name], name, self.apps)
        if not first.knows or not fits(first.offer, needs):
            return False
        holding_back = self.holds.get(name, frozenset())
        required_node = near_of(needs)
        return any(
            required_node in ("", node.name)
            and (node.name, node.inc) not in holding_back
            and node.name not in barred
            and not self._leaves(node, name)
            for node in alike
        )

    def holders_of(self, names: Sequence[str]) -> list[Holder]:
        """Return the tasks that hold slots of the nodes.

        A lease may outlive its run, so the record of each task says whether its attempt is over.
        Costs two round trips per partition, once per node.
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

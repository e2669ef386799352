"""Find out why tasks wait, at this moment: the reason that a scheduler wrote may be old, and a dead one writes none."""

from collections.abc import Sequence
from dataclasses import replace

from ..model.booking import Booking
from ..model.ids import decode_id
from ..model.near import settled
from ..model.needs import Resources, are_needs, parse_needs
from ..model.node import Node
from ..model.status import TaskStatus
from ..model.task import WAITING
from ..model.times import LearntTimes
from ..placement.facts import Holder, NodeFacts
from ..placement.now import clock_text
from ..placement.reasons import ROOM, SHOWN, explain_waiting, find_fitting
from ..store.booked import read_booked, read_holds
from ..store.facts import facts_of, read_holders
from ..store.members import explain_no_scheduler, read_schedulers, start_one
from ..store.purge import server_ms
from ..store.store import Store
from ..store.times import read_times
from ..store.views import Directory, read_live_nodes


def explain_tasks(store: Store, tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    """Return the tasks; those that wait say in `why` why they do, by nodes, leases and schedulers as they are now.

    Costs a few round trips, and none if no task waits. Raises ServerUnreachable.
    """
    if not any(task.phase == WAITING for task in tasks):
        return list(tasks)
    looker = Looker(store)
    return [replace(task, why=looker.why(task)) if task.phase == WAITING else task for task in tasks]


class Looker:
    """The cluster as it was read at one moment; it explains any number of tasks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.no_scheduler = explain_no_scheduler(store, read_schedulers(store))
        if self.no_scheduler:
            self.no_scheduler += f": start one: {start_one(store)}"
        self.states = {state.node.name: state for states in read_live_nodes(store) for state in states}
        self.apps = Directory(store).by_digest()
        self.now_ms = server_ms(store)
        self.bookings = read_booked(store)
        self.holds = read_holds(store)
        self.times = read_times(store) if self.bookings else LearntTimes()
        self._at_workers = self._read_waiting_seats()
        self._holders: dict[str, list[Holder]] = {}
        self._placed: dict[str, str] = {}  # the node of each task that was seen to hold slots
        self._found: dict[tuple[str, str], str] = {}

    def why(self, task: TaskStatus) -> str:
        """Return the reason why a pending or taken task waits."""
        ready_ms = task.times.get("ready")
        if ready_ms is not None and ready_ms > self.now_ms:
            due = f"it is due at {clock_text(ready_ms)}"
            return f"{due}; {self.no_scheduler}" if self.no_scheduler else due
        if node := self._at_workers.get(task.id):
            return f"it waits at {node} until a short task there ends; if that takes long, it goes back"
        asked = (task.needs, task.name)
        if asked not in self._found:
            self._found[asked] = self._why(*asked)
        if task.id in self._placed:
            return f"a scheduler has just placed it on {self._placed[task.id]}"
        return self._found[asked]

    def _read_waiting_seats(self) -> dict[str, str]:
        """Return by id the nodes of the tasks that wait at their worker (decision 0028); one round trip a partition."""
        nodes: dict[int, list[Node]] = {}
        for state in self.states.values():
            if state.node.has_waiting_seats:
                nodes.setdefault(state.partition, []).append(state.node)
        slots = {node.name: node.offer.slots for some in nodes.values() for node in some}
        leases = [lease for p, some in nodes.items() for lease in self.store.leases(p, some) if lease.leads]
        places = [lease.place for lease in leases]
        return {decode_id(place.task): place.node for place in places if place.slot >= slots[place.node]}

    def _why(self, needs: str, name: str) -> str:
        if not are_needs(needs):
            return f"its record is damaged: needs={needs!r:.80}"
        needed = self.settled(needs)
        facts = self.facts(name, needs)
        full = [node for node in find_fitting(needed, facts)[:SHOWN] if node.open]
        holders = self.holders_of([node.name for node in full])
        found = explain_waiting(needed, facts, holders)
        if not self.no_scheduler:
            return found
        return self.no_scheduler if found.endswith(ROOM) else f"{self.no_scheduler}; and {found}"

    def settled(self, needs: str) -> Resources:
        """Return sound needs as they count now: a node that is down is not required."""
        return parse_needs(settled(needs, {name for name, state in self.states.items() if state.node.state != "down"}))

    def facts(self, name: str, needs: str) -> list[NodeFacts]:
        """Return the facts of all nodes for a task of this name and needs."""
        found = [facts_of(state, name, self.apps) for state in self.states.values()]
        barred = {one.node: one.whom for one in self.bookings if self._bars(one, name, needs)}
        held = self.holds.get(name, frozenset())
        return [
            replace(node, booked=barred.get(node.name, ""), held=(node.name, self.states[node.name].node.inc) in held)
            if node.name in barred or held
            else node
            for node in found
        ]

    def _bars(self, booking: Booking, name: str, needs: str) -> bool:
        state = self.states.get(booking.node)
        times = self.times.of(name, state.node.offer) if state else None
        return booking.bars(name, needs, times.p95_ms if times else None, self.now_ms)

    def holders_of(self, names: Sequence[str]) -> list[Holder]:
        """Return the tasks that hold slots of some nodes; a round trip for each partition, once."""
        unread: dict[int, list[Node]] = {}
        for state in (self.states[name] for name in names if name not in self._holders):
            unread.setdefault(state.partition, []).append(state.node)
        for partition, nodes in unread.items():
            self._holders |= {node.name: [] for node in nodes}
            for holder in read_holders(self.store, partition, nodes):
                self._holders[holder.node].append(holder)
                self._placed[holder.task] = holder.node
        return [holder for name in names for holder in self._holders[name]]

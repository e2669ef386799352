"""All about one node: what it runs and for how long, what could run there, and what failed there
last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from ..errors import AccessDenied, InvalidInput
from ..model.ids import check_name, encode_id, shown
from ..model.needs import are_needs, parse_needs
from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import KindView, NodeView
from ..placement.reasons import find_fitting
from ..store.reads.demand import read_demand
from ..store.reads.facts import facts_of
from ..store.reads.find_tasks import TaskQuery, find_tasks
from ..store.reads.live_nodes import LiveNode
from ..store.reads.purge import server_ms
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.tasks import FoundTasks
from ..store.reads.views import Directory, read_booked, read_node, read_node_views
from ..store.store import Store

MOST_KINDS: Final = 100
"""Kinds of waiting tasks that are looked at, the next to be placed first."""

MOST_FAILURES: Final = 5
_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Occupant:
    """A task that holds slots of a node: the slots and the amounts, with the devices; since when,
    and its run.
    """

    task: str
    name: str
    state: TaskState
    slots: tuple[int, ...]
    holds: str
    placed_ms: int
    started_ms: int | None


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """A node, the server's time, its occupants by slot, the kinds that wait and fit it, its last
    failures.

    failures_part: why the failures may not be the last ones, '' if they are.
    """

    node: NodeView
    now_ms: int
    occupants: Sequence[Occupant]
    waiting: Sequence[KindView]
    failures: Sequence[TaskStatus]
    failures_part: str


def read_node_detail(store: Store, name: str) -> NodeDetail:
    """Return all about a node.

    Raises InvalidInput that names the nearest if there is none, and ServerUnreachable.
    """
    check_name("node name", name)
    found = read_node(store, name)
    if found is None:
        known = [node.name for node in read_node_views(store)]
        raise InvalidInput(
            no_such_node(name, known, "" if known else str(look_for_cluster(store) or ""))
        )
    live, view = found
    whom = next((booking.whom for booking in read_booked(store) if booking.node == name), "")
    failed = TaskQuery(frozenset((TaskState.FAILED,)), node=name, sort="ended", limit=MOST_FAILURES)
    try:
        failures = find_tasks(store, failed)
    except AccessDenied:  # a client's login may not list tasks
        failures = FoundTasks((), "this login may not list tasks")
    return NodeDetail(
        replace(view, reserved=whom),
        server_ms(store),
        _occupants(store, live),
        _fitting_kinds(store, live),
        failures.tasks,
        failures.part,
    )


def no_such_node(name: str, known: Sequence[str], missing: str = "") -> str:
    """Say that there is no such node, and which are the nearest.

    missing: that there is no such cluster. Pure.
    """
    if not known:
        return f"no node {shown(name)}: {missing or 'no node is registered'}"
    near = get_close_matches(name, known, _NAMED, 0.5) or [*known[:_NAMED]]
    more = f", ... ({len(known):,} in all)" if len(known) > len(near) else ""
    return f"no node {shown(name)}: there are {', '.join(near)}{more}"


def _occupants(store: Store, live: LiveNode) -> list[Occupant]:
    places = [lease.place for lease in store.leases(live.partition, [live.node]) if lease.leads]
    tasks = (
        {encode_id(task.id): task for task in store.statuses([place.task for place in places])}
        if places
        else {}
    )
    return [
        Occupant(
            tasks[place.task].id,
            tasks[place.task].name,
            tasks[place.task].state,
            place.slots,
            place.asked,
            place.since_ms,
            tasks[place.task].times.get("started"),
        )
        for place in sorted(places, key=lambda place: place.slots)
        if place.task in tasks
    ]


def _fitting_kinds(store: Store, live: LiveNode) -> list[KindView]:
    """Return the kinds of which tasks wait that the node could hold if it were empty."""
    apps = Directory(store).by_digest()
    found = []
    for kind in read_demand(store)[:MOST_KINDS]:
        if are_needs(kind.needs):
            fits = find_fitting(parse_needs(kind.needs), [facts_of(live, kind.name, apps)])
            found += [kind] if fits else []
    return found

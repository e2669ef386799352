"""One node in detail: its running tasks, the kinds that could run there, its last failures."""

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
from ..store.reads.cancel import server_ms
from ..store.reads.demand import read_demand
from ..store.reads.find_tasks import TaskQuery, find_tasks
from ..store.reads.live_nodes import LiveNode, facts_of
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.tasks import FoundTasks
from ..store.reads.views import Directory, read_booked, read_node, read_node_views
from ..store.store import Store

MOST_FITTED_KINDS: Final = 100
"""Maximum number of waiting kinds that are compared with the node, the next to be placed first."""

MOST_FAILURES: Final = 5
_MOST_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class Occupant:
    """A task that holds slots of a node.

    holds: the amounts and devices, as text.
    placed_ms, started_ms: POSIX milliseconds; started_ms is None before the run begins.
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
    """A node with its occupants by slot, the waiting kinds that fit it, and its last failures.

    now_ms: the server's time.
    failures_part: why `failures` may lack failures; '' if complete.
    """

    node: NodeView
    now_ms: int
    occupants: Sequence[Occupant]
    waiting: Sequence[KindView]
    failures: Sequence[TaskStatus]
    failures_part: str


def read_node_detail(store: Store, name: str) -> NodeDetail:
    """Return all about a node.

    Raises InvalidInput if there is no such node; the message has the nearest names. Raises
    ServerUnreachable.
    """
    check_name("node name", name)
    live_and_view = read_node(store, name)
    if live_and_view is None:
        names = [node.name for node in read_node_views(store)]
        no_cluster = "" if names else str(look_for_cluster(store) or "")
        raise InvalidInput(no_such_node(name, names, no_cluster))
    live, view = live_and_view
    reserved_for = next(
        (booking.whom for booking in read_booked(store) if booking.node == name), ""
    )
    failed = TaskQuery(frozenset((TaskState.FAILED,)), node=name, sort="ended", limit=MOST_FAILURES)
    try:
        failures = find_tasks(store, failed)
    except AccessDenied:  # a client's login may not list tasks
        failures = FoundTasks((), "this login may not list tasks")
    return NodeDetail(
        replace(view, reserved=reserved_for),
        server_ms(store),
        _occupants(store, live),
        _fitting_kinds(store, live),
        failures.tasks,
        failures.part,
    )


def no_such_node(name: str, names: Sequence[str], missing: str = "") -> str:
    """Say that a node does not exist, with the nearest names. Pure.

    missing: a sentence that the cluster does not exist; '' if it does.
    """
    if not names:
        return f"no node {shown(name)}: {missing or 'no node is registered'}"
    nearest = get_close_matches(name, names, _MOST_NAMES, 0.5) or [*names[:_MOST_NAMES]]
    total = f", ... ({len(names):,} in all)" if len(names) > len(nearest) else ""
    return f"no node {shown(name)}: there are {', '.join(nearest)}{total}"


def _occupants(store: Store, live: LiveNode) -> list[Occupant]:
    """Return the tasks that hold slots of the node, by slot."""
    places = [lease.place for lease in store.leases(live.partition, [live.node]) if lease.leads]
    statuses = store.statuses([place.task for place in places]) if places else []
    tasks = {encode_id(task.id): task for task in statuses}
    return [
        Occupant(
            task.id,
            task.name,
            task.state,
            place.slots,
            place.asked,
            place.since_ms,
            task.times.get("started"),
        )
        for place in sorted(places, key=lambda place: place.slots)
        if (task := tasks.get(place.task))
    ]


def _fitting_kinds(store: Store, live: LiveNode) -> list[KindView]:
    """Return the waiting kinds whose tasks would fit the node if it were empty."""
    apps = Directory(store).by_digest()
    fitting = []
    for kind in read_demand(store)[:MOST_FITTED_KINDS]:
        if are_needs(kind.needs):
            fits = find_fitting(parse_needs(kind.needs), [facts_of(live, kind.name, apps)])
            fitting += [kind] if fits else []
    return fitting

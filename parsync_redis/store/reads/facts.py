"""Read the facts of nodes by which tasks are judged, and the tasks that hold slots."""

from collections.abc import Mapping, Sequence

from ...model.apps import KnownTasks, digest_of
from ...model.ids import decode_id
from ...model.needs import read_amounts
from ...model.node import Node
from ...placement.facts import Holder, NodeFacts
from ..store import Store
from .live_nodes import LiveNode


def facts_of(state: LiveNode, name: str, apps: Mapping[str, KnownTasks]) -> NodeFacts:
    """Return the facts about a node by which a task of this name is judged.

    state: the node as it is now.
    apps: by digest, the tasks that the workers of an app know.
    """
    node = state.node
    digest = digest_of(state.node.offer)
    knows = not digest or (digest in apps and name in apps[digest].declared)
    return NodeFacts(
        node.name,
        node.state,
        node.draining,
        node.offer,
        state.free,
        state.amounts_left,
        state.note,
        state.down_ms,
        knows,
    )


def read_holders(store: Store, partition: int, nodes: Sequence[Node]) -> list[Holder]:
    """Return the tasks that hold slots of some nodes of a partition, with their amounts, each once.

    A task at a waiting seat is listed with 0 slots. After a pool has shrunk, a task may hold a slot
    behind the pool's slots. That task keeps one slot of the node shut, so the shut slot is counted
    as the task's.
    """
    behind = {
        node.name: node.offer.slots if node.has_waiting_seats else node.span for node in nodes
    }
    places = [lease.place for lease in store.leases(partition, nodes) if lease.leads]
    slot_counts = [sum(slot < behind[place.node] for slot in place.slots) for place in places]
    return [
        Holder(
            place.node,
            decode_id(place.task),
            read_amounts(place.asked),
            slots,
            place.since_ms,
            place.attempt,
        )
        for place, slots in zip(places, slot_counts, strict=True)
    ]

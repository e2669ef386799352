"""Nodes as they are now, the facts by which tasks are judged, and the tasks that hold slots."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...model.amount import THOUSANDTHS
from ...model.apps import KnownTasks, digest_of
from ...model.ids import decode_id, readable
from ...model.needs import read_amounts
from ...model.node import Node, read_nodes
from ...model.text import COUNTER
from ...placement.facts import Holder, NodeFacts
from ...placement.now import LEAVES_NOW
from ..store import Store


def note_of(node: Node, note: str) -> str:
    """Return a node's note, '' if the node is neither drained nor suspect any more."""
    return note if node.draining or node.state == "suspect" else ""


def _down_ms(counter: bytes) -> int | None:
    """Return when a node was marked down (ms), None if it is up or the line is damaged.

    counter: the line of the node's counter.
    """
    since = (COUNTER.read(readable(counter)) or {}).get("since")
    return int(since) if since else None


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node as it is now.

    free: the number of free slots.
    free_ahead: the number of free waiting seats.
    amounts_left: thousandths by name.
    note: why the node is drained or suspect.
    down_ms: when the node was marked down, None if it is up.
    """

    partition: int
    node: Node
    free: int
    free_ahead: int
    amounts_left: Mapping[str, int]
    note: str
    down_ms: int | None


def count_bits(bitmap: bytes, first: int, count: int) -> int:
    """Return how many of `count` bits from bit `first` on are 1.

    Does without numpy, whose import takes longer than the count.
    """
    part = bitmap[first // 8 : (first + count + 7) // 8]
    width = max(0, 8 * len(part) - first % 8)
    return ((int.from_bytes(part, "big") & ((1 << width) - 1)) >> max(0, width - count)).bit_count()


def live_nodes(
    number: int,
    free: bytes | None,
    amounts_left: dict[bytes, bytes],
    records: dict[bytes, bytes],
    notes: dict[bytes, bytes],
    counters: dict[bytes, bytes],
) -> list[LiveNode]:
    """Return the nodes of a partition by name, from the replies to the commands of `reads_of`.

    number: the partition.
    free: the bitmap.
    amounts_left, records, notes, counters: the hashes `left`, `nodes`, `notes` and `alive` of the
        partition.
    """
    nodes = []
    for name, node in sorted(read_nodes(records)[0].items()):
        nodes.append(
            LiveNode(
                number,
                node,
                count_bits(free or b"", node.first, node.offer.slots),
                count_bits(free or b"", node.first + node.offer.slots, node.waiting_seats),
                read_amounts(readable(amounts_left.get(name.encode(), b""))),
                note_of(node, readable(notes.get(name.encode(), b""))),
                _down_ms(counters.get(name.encode(), b"")),
            )
        )
    return nodes


def open_amounts(states: Iterable[LiveNode]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what the open ones of these nodes can give now, and what is not free there.

    Both are in thousandths by name, `slots` too; devices are summed by their kinds.
    """
    totals = Counter[str]()
    used = Counter[str]()
    for state in states:
        if state.node.state != "up" or state.node.draining:
            continue
        capacity = state.node.given
        totals["slots"] += capacity.slots * THOUSANDTHS
        used["slots"] += (capacity.slots - state.free) * THOUSANDTHS
        for name, amount in capacity.amounts:
            resource = name.partition("@")[0]
            totals[resource] += amount
            used[resource] += amount - state.amounts_left.get(name, amount)
    return dict(totals), dict(used)


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
        leaves=LEAVES_NOW if node.notice and node.notice.over else "",
        has_notice=node.notice is not None,
        gives=node.gives,
        score=node.score,
        capacity=node.capacity,
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

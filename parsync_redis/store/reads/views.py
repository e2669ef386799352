"""Read nodes, partitions and known tasks for people: a round trip for every hundred partitions.

A process that reads the views again and again keeps what it has parsed (ViewReader).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...model.amount import amount_numbers
from ...model.apart import undeclared
from ...model.apps import KnownTasks
from ...model.booking import Booking, read_bookings
from ...model.capacity import limits_of, source_fails
from ...model.ids import readable
from ...model.needs import Resources, is_resources, labels_of, parse_resources, queues_of
from ...model.node import Node
from ...model.streak import Streak
from ...model.taints import taints_of
from ...model.views import NodeView, PartitionView, gather_partition
from ..repair.lost_leases import now_ms
from ..server.server_errors import translate
from ..store import Store
from .live_nodes import LiveNode, live_nodes

_PARTITIONS_PER_READ: Final = 100


def read_views(store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
    """Yield each partition with its nodes, by number; nothing before the first scheduler joins.

    The partitions are read one after another while the cluster goes on. The log names partitions
    whose server is away. Raises ServerUnreachable if the settings' server is away, or if all
    servers are.
    """
    for number, rows in fetch(store):
        yield view_partition(store, number, *rows)


def count_partitions(store: Store) -> int:
    """Return the number of partitions; 0 before the first scheduler, or for a damaged config."""
    return partitions_of(store.config())


def partitions_of(config: Mapping[str, str]) -> int:
    """Return the number of partitions in a config, 0 if it is missing or damaged."""
    text = config.get("partitions", "")
    return min(int(text), 4096) if text.isdecimal() and len(text) < 9 else 0


def find_node(store: Store, name: str) -> int | None:
    """Return the number of the partition that has a node of this name, or None."""
    count = count_partitions(store)
    keys = [store.keys.partition(number, "nodes") for number in range(count)]
    replies = store.pipe_each([("hexists", key, name) for key in keys])
    for number, has_node in enumerate(replies):
        if has_node is True:
            return number
    for reply in replies:
        if isinstance(reply, Exception):  # The node may be in this partition.
            raise translate(store.address, reply)
    return None


def read_names(store: Store) -> list[str]:
    """Return the task names that the nodes' workers know."""
    return sorted({name for tasks in Directory(store).newest_first() for name in tasks.declared})


class Directory:
    """The tasks that the cluster's workers know, by app.

    A digest stands for the tasks of an app (model/apps.py). A second read reads only new digests.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, KnownTasks] = {}

    def newest_first(self) -> list[KnownTasks]:
        """Return the tasks of each app that a node has, the last registered app first.

        Raises ServerUnreachable.
        """
        digests = self._store.read_any("zrevrange", "apps", 0, -1)
        return self._known([readable(digest) for digest in digests])

    def read(self) -> "Apps":
        """Return the apps as they are now. Raises ServerUnreachable."""
        reads: list[tuple[Any, ...]] = []
        for meta, apps in zip(*map(self._store.keys.queues, ("meta", "apps")), strict=True):
            # The stamp is read first, because it must not be newer than the apps.
            reads += [("hmget", meta, ["apps"]), ("zrevrange", apps, 0, -1)]
        replies = self._store.pipe_each(reads)
        answers = [*zip(replies[::2], replies[1::2], strict=True)]
        readable_digests = [digests for _, digests in answers if isinstance(digests, list)]
        newest = readable_digests[0] if readable_digests else answers[0][1]
        if isinstance(newest, Exception):
            raise translate(self._store.address, newest)
        stamps = [
            readable(stamp[0] or b"0")
            if isinstance(stamp, list) and digests == newest
            else "changing"
            for stamp, digests in answers
        ]
        return Apps(stamps, self._known([readable(digest) for digest in newest]))

    def _known(self, digests: Sequence[str]) -> list[KnownTasks]:
        """Return the tasks of these digests; read the texts of new digests only."""
        if new := [digest for digest in digests if digest not in self._read]:
            texts = self._store.read_any("hmget", "names", new)
            tasks_by_digest = {
                digest: KnownTasks(readable(text))
                for digest, text in zip(new, texts, strict=True)
                if text
            }
            self._read = {
                digest: tasks for digest, tasks in self._read.items() if digest in digests
            } | tasks_by_digest
        return [self._read[digest] for digest in digests if digest in self._read]

    def by_digest(self) -> Mapping[str, KnownTasks]:
        """Return the apps by the digest in the offers of their nodes. Raises ServerUnreachable."""
        self.newest_first()
        return self._read


@dataclass(frozen=True, slots=True)
class Apps:
    """The tasks of each app that a node has, the last registered app first.

    stamps: tells submit which copy of the apps this is, for each shard. A shard whose apps were
    others at that moment refuses the copy.
    """

    stamps: Sequence[str]
    newest_first: Sequence[KnownTasks]

    def declared(self, names: Iterable[str]) -> dict[str, Mapping[str, Any] | None]:
        """Return what the newest app that knows each name declares for it, None for nothing.

        Names that no app knows are left out.
        """
        declarations: dict[str, Mapping[str, Any] | None] = {}
        for name in names:
            knowing = next((app for app in self.newest_first if name in app.declared), None)
            if knowing is not None:
                declarations[name] = knowing.declared[name]
        return declarations


def read_offers(store: Store) -> dict[str, Resources]:
    """Return what each node offers while it is empty, by name; submit judges by that."""
    shapes = {
        readable(node): readable(offer)
        for node, offer in store.read_any("hgetall", "shapes").items()
    }
    return {node: parse_resources(offer) for node, offer in shapes.items() if is_resources(offer)}


def fetch(store: Store) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each partition whose server answers, and the replies to `reads_of`."""
    numbers = range(count_partitions(store))
    for start in range(0, len(numbers), _PARTITIONS_PER_READ):
        reads = {
            number: reads_of(store, number)
            for number in numbers[start : start + _PARTITIONS_PER_READ]
        }
        yield from store.pipe_live("partition", reads).items()


def reads_of(store: Store, number: int) -> list[tuple[Any, ...]]:
    """Return the commands that read a partition: its version and epoch, bitmap and hashes."""
    meta = store.keys.partition(number, "meta")
    free = store.keys.partition(number, "free")
    hashes = [
        ("hgetall", store.keys.partition(number, kind))
        for kind in ("left", "nodes", "notes", "alive")
    ]
    return [("hmget", meta, ["version", "epoch"]), ("get", free), *hashes]


def read_live_nodes(store: Store) -> Iterator[list[LiveNode]]:
    """Yield the nodes of each partition, by number; nothing before the first scheduler joins."""
    for number, (_, *rows) in fetch(store):
        yield live_nodes(number, *rows)


def view_partition(
    store: Store, number: int, meta: list[bytes | None], *rows: Any
) -> tuple[PartitionView, list[NodeView]]:
    """Return a partition and its nodes, from the replies to `reads_of`."""
    return complete(
        store, number, meta, [(state.node, view_of(state)) for state in live_nodes(number, *rows)]
    )


def view_of(state: LiveNode) -> NodeView:
    """Return the view of a node, without the fields that only the node's leases tell."""
    node = state.node
    offer = state.node.offer
    return NodeView(
        node.name,
        state.partition,
        node.state_shown,
        node.draining,
        node.inc,
        node.score,
        offer.slots,
        state.free,
        offer.slots - state.free,
        amount_numbers(offer.amounts),
        amount_numbers(
            (name, amount) for name, amount in state.amounts_left.items() if not undeclared(name)
        ),
        labels_of(offer),
        f"over {state.note}" if node.drain == 2 else state.note or node.gives,
        tuple(queues_of(offer)),
        state.down_ms,
        node.waiting_seats - state.free_ahead,
        node.waiting_seats,
        taints=taints_of(offer),
        leaves_ms=node.notice.at_ms if node.notice else None,
        capacity=amount_numbers(limits_of(node.capacity).items()),
        capacity_fails=source_fails(node.capacity),
    )


def complete(
    store: Store,
    number: int,
    meta: list[bytes | None],
    nodes_and_views: Sequence[tuple[Node, NodeView]],
) -> tuple[PartitionView, list[NodeView]]:
    """Return a partition and the views of its nodes, completed with what only leases tell."""
    # In these nodes the bits of free slots do not tell how many slots are held, because a slot
    # may be neither free nor held, and a shut seat may be held. So their leases are counted.
    unusual = {
        node.name: node
        for node, _ in nodes_and_views
        if node.state != "up" or node.draining or node.span != node.offer.slots + (node.ahead or 0)
    }
    views = [view for _, view in nodes_and_views]
    held_counts = Counter[str]()
    waiting_counts = Counter[str]()
    for lease in store.leases(number, unusual.values()):
        node = unusual[lease.place.node]
        if node.has_waiting_seats and lease.slot >= node.offer.slots:
            waiting_counts[node.name] += 1
        else:
            held_counts[node.name] += 1
    for position, view in enumerate(views):
        if view.name in unusual:
            views[position] = replace(
                view, held=held_counts[view.name], waiting=waiting_counts[view.name]
            )
    version, epoch = (int(value) if value and value.isdigit() else 0 for value in meta)
    return gather_partition(number, version, epoch, views), views


def read_node(store: Store, name: str) -> tuple[LiveNode, NodeView] | None:
    """Return a node and its view, or None if no node has this name. Raises ServerUnreachable."""
    number = find_node(store, name)
    if number is None:
        return None
    meta, *rows = store.pipe(reads_of(store, number))
    live = {state.node.name: state for state in live_nodes(number, *rows)}
    views = {view.name: view for view in view_partition(store, number, meta, *rows)[1]}
    return (live[name], views[name]) if name in live else None


def read_booked(store: Store) -> tuple[Booking, ...]:
    """Return the bookings of nodes. Raises ServerUnreachable."""
    return read_bookings(store.read("hgetall", store.keys.shared("bookings")))


def read_holds(store: Store) -> dict[str, frozenset[tuple[str, int]]]:
    """Return, by name, the nodes that hold back tasks of that name now: (node, incarnation).

    There may be 100,000 lines, and schedulers read them often, so only lines with a hold are
    parsed. Raises ServerUnreachable.
    """
    fields: dict[bytes, bytes] = store.read("hgetall", store.keys.shared("streaks"))
    holds: list[Streak] = []
    for name, text in fields.items():
        if b" held=" in text:
            lines = [line for line in text.split(b"\n") if b" held=" in line]
            holds += Streak.read(readable(name), readable(b"\n".join(lines)))
    now = now_ms(store) if holds else 0
    nodes: dict[str, set[tuple[str, int]]] = {}
    for hold in holds:
        if hold.held_ms > now:
            nodes.setdefault(hold.name, set()).add((hold.node, hold.inc))
    return {name: frozenset(holding_nodes) for name, holding_nodes in nodes.items()}


def read_node_views(store: Store) -> list[NodeView]:
    """Return every node, by name, and for whom it is reserved. Raises ServerUnreachable."""
    return read_all_views(store)[1]


def read_all_views(
    store: Store,
    read: Callable[[Store], Iterable[tuple[PartitionView, list[NodeView]]]] = read_views,
) -> tuple[list[PartitionView], list[NodeView]]:
    """Return every partition by number, and what `read_node_views` returns.

    read: reads the views; use ViewReader.read for repeated reads. Raises ServerUnreachable.
    """
    partitions = list(read(store))
    views = sorted((node for _, nodes in partitions for node in nodes), key=lambda node: node.name)
    whom = {booking.node: booking.whom for booking in read_booked(store)} if views else {}
    views = [
        replace(view, reserved=whom[view.name]) if view.name in whom else view for view in views
    ]
    return [partition for partition, _ in partitions], views


class ViewReader:
    """A reader of the views that keeps the view of each node until the node changes."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[int, bytes], _ParsedNode] = {}

    def read(self, store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
        """Yield what `read_views` yields. Raises ServerUnreachable."""
        before = self._parsed
        self._parsed = {}
        for number, (meta, free, amounts_left, records, notes, counters) in fetch(store):
            raws = {}
            for raw, record in records.items():
                counter = counters.get(raw, b"")
                raws[raw] = (
                    record,
                    amounts_left.get(raw),
                    notes.get(raw),
                    counter if b"since" in counter else b"",
                )
                parsed = before.get((number, raw))
                if parsed and parsed.raws == raws[raw] and parsed.bits == _bits(free, parsed.node):
                    self._parsed[number, raw] = parsed
            changed = {
                raw: record for raw, record in records.items() if (number, raw) not in self._parsed
            }
            for state in live_nodes(number, free, amounts_left, changed, notes, counters):
                node = state.node
                raw = state.node.name.encode()
                self._parsed[number, raw] = _ParsedNode(
                    raws[raw], _bits(free, node), node, view_of(state)
                )
            readable_names = [raw for raw in sorted(records) if (number, raw) in self._parsed]
            parsed_nodes = [self._parsed[number, raw] for raw in readable_names]
            nodes_and_views = [(parsed.node, parsed.view) for parsed in parsed_nodes]
            yield complete(store, number, meta, nodes_and_views)


@dataclass(frozen=True, slots=True)
class _ParsedNode:
    """A parsed node.

    raws: the texts from which the node was parsed.
    bits: the node's part of the bitmap.
    view: the node's view, without the fields that only its leases tell.
    """

    raws: tuple[bytes | None, ...]
    bits: bytes
    node: Node
    view: NodeView


def _bits(free: bytes | None, node: Node) -> bytes:
    """Return the bytes of the bitmap that have the bits of a node.

    The first and the last byte may also have bits of the node's neighbours.
    """
    return (free or b"")[node.first // 8 : (node.first + node.span + 7) // 8]

"""Read nodes and partitions for people: many keys, a round trip for every hundred partitions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..model.apps import KnownTasks
from ..model.ids import readable
from ..model.needs import RESERVED, Resources, is_resources, parse_resources, queues_of
from ..model.node import Node, read_nodes
from ..model.text import COUNTER
from ..model.views import NodeView, PartitionView, gather_partition
from .store import Store

_CHUNK: Final = 100


def read_views(store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
    """Yield each partition with its nodes, by number; nothing for a cluster that no scheduler has joined yet.

    They are read one after another, while the cluster goes on. Raises ServerUnreachable.
    """
    count = count_partitions(store)
    for start in range(0, count, _CHUNK):
        numbers = range(start, min(start + _CHUNK, count))
        for number, rows in zip(numbers, _fetch(store, numbers), strict=True):
            yield _read_partition(store, number, *rows)


def count_partitions(store: Store) -> int:
    """Return the number of partitions; 0 before the cluster's first scheduler, or if its config is damaged."""
    return partitions_of(store.config())


def partitions_of(config: Mapping[str, str]) -> int:
    """Return the number of partitions in a config, 0 if it is missing or damaged."""
    text = config.get("partitions", "")
    return min(int(text), 4096) if text.isdecimal() and len(text) < 9 else 0


def find_node(store: Store, name: str) -> int | None:
    """Return the number of the partition whose node has this name, or None."""
    count = count_partitions(store)
    keys = [store.keys.partition(number, "nodes") for number in range(count)]
    found = store.pipe([("hexists", key, name) for key in keys])
    return next((number for number, there in enumerate(found) if there), None)


def read_names(store: Store) -> list[str]:
    """Return the task names that the nodes' workers know."""
    return sorted({name for tasks in Directory(store).newest_first() for name in tasks.declared})


class Directory:
    """The tasks that the cluster's workers know. A second look reads only the digests that are new."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, KnownTasks] = {}

    def newest_first(self) -> list[KnownTasks]:
        """Return the tasks of each app that a node has, the last registered first. Raises ServerUnreachable."""
        (digests,) = self._store.pipe([("zrevrange", self._store.keys.queue("apps"), 0, -1)])
        return self._known([readable(digest) for digest in digests])

    def read(self) -> "Apps":
        """Return the apps as they are now. Raises ServerUnreachable."""
        keys = self._store.keys  # the stamp is read first: it must not be newer than the apps
        reads = [("hmget", keys.queue("meta"), ["apps"]), ("zrevrange", keys.queue("apps"), 0, -1)]
        (stamp,), digests = self._store.pipe(reads)
        return Apps(readable(stamp or b"0"), self._known([readable(digest) for digest in digests]))

    def _known(self, digests: Sequence[str]) -> list[KnownTasks]:
        """Return the tasks of these digests; read those that are new."""
        keys = self._store.keys
        if new := [digest for digest in digests if digest not in self._read]:
            texts = self._store.pipe([("hmget", keys.queue("names"), new)])[0]
            found = {digest: KnownTasks(readable(text)) for digest, text in zip(new, texts, strict=True) if text}
            self._read = {digest: tasks for digest, tasks in self._read.items() if digest in digests} | found
        return [self._read[digest] for digest in digests if digest in self._read]

    def by_digest(self) -> Mapping[str, KnownTasks]:
        """Return the apps by the digest in the offers of their nodes. Raises ServerUnreachable."""
        self.newest_first()
        return self._read


@dataclass(frozen=True, slots=True)
class Apps:
    """The tasks of each app that a node has, the last registered first; `stamp` tells submit which copy this is."""

    stamp: str
    newest_first: Sequence[KnownTasks]

    def declared(self, names: Iterable[str]) -> dict[str, Mapping[str, Any] | None]:
        """Return what the newest app that knows each name declares for it, None for nothing.

        Names that no app knows are left out.
        """
        found: dict[str, Mapping[str, Any] | None] = {}
        for name in names:
            knowing = next((app for app in self.newest_first if name in app.declared), None)
            if knowing is not None:
                found[name] = knowing.declared[name]
        return found


def read_offers(store: Store) -> dict[str, Resources]:
    """Return what each node offers when it is empty; submit judges by that."""
    shapes = store.hash(store.keys.queue("shapes"))
    return {node: parse_resources(offer) for node, offer in shapes.items() if is_resources(offer)}


def _fetch(store: Store, numbers: range) -> Iterator[tuple[Any, ...]]:
    commands: list[tuple[Any, ...]] = []
    for number in numbers:
        meta, free, left, nodes = (store.keys.partition(number, kind) for kind in ("meta", "free", "left", "nodes"))
        commands += [
            ("hmget", meta, ["version", "epoch"]),
            ("get", free),
            ("hgetall", left),
            ("hgetall", nodes),
            ("hgetall", store.keys.partition(number, "notes")),
            ("hgetall", store.keys.partition(number, "alive")),
        ]
    replies = store.pipe(commands)
    return zip(*[iter(replies)] * 6, strict=True)


def note_of(node: Node, note: str) -> str:
    """Return a node's note, '' if the node is neither drained nor suspect any more."""
    return note if node.draining or node.state == "suspect" else ""


def _down_ms(counter: bytes) -> int | None:
    """Return when a node was marked down (ms), by the line of its counter; None if it is up or the line is damaged."""
    since = (COUNTER.read(readable(counter)) or {}).get("since")
    return int(since) if since else None


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node with its free slots, the amounts that are left, its note, and since when it is down (ms)."""

    partition: int
    node: Node
    free: int
    left: Mapping[str, int]
    note: str
    down_ms: int | None


def read_live_nodes(store: Store) -> Iterator[list[LiveNode]]:
    """Yield the nodes of each partition, by number; nothing for a cluster that no scheduler has joined yet."""
    count = count_partitions(store)
    for start in range(0, count, _CHUNK):
        numbers = range(start, min(start + _CHUNK, count))
        for number, (_, *rows) in zip(numbers, _fetch(store, numbers), strict=True):
            yield _live_nodes(number, *rows)


def count_bits(bitmap: bytes, first: int, count: int) -> int:
    """Return how many of `count` bits from bit `first` on are 1, without numpy: its import takes longer."""
    part = bitmap[first // 8 : (first + count + 7) // 8]
    width = max(0, 8 * len(part) - first % 8)
    return ((int.from_bytes(part, "big") & ((1 << width) - 1)) >> max(0, width - count)).bit_count()


def _live_nodes(
    number: int,
    free: bytes | None,
    left: dict[bytes, bytes],
    records: dict[bytes, bytes],
    notes: dict[bytes, bytes],
    counters: dict[bytes, bytes],
) -> list[LiveNode]:
    found = []
    for name, node in sorted(read_nodes(records)[0].items()):
        amounts = readable(left.get(name.encode(), b""))
        unheld = parse_resources(amounts if is_resources(amounts) else "")
        found.append(
            LiveNode(
                number,
                node,
                count_bits(free or b"", node.first, node.span),
                dict(unheld.amounts),
                note_of(node, readable(notes.get(name.encode(), b""))),
                _down_ms(counters.get(name.encode(), b"")),
            )
        )
    return found


def _read_partition(
    store: Store, number: int, meta: list[bytes | None], *rows: Any
) -> tuple[PartitionView, list[NodeView]]:
    views, nodes = [], []
    for state in _live_nodes(number, *rows):
        node, offer = state.node, state.node.offer
        nodes.append(node)
        views.append(
            NodeView(
                node.name,
                number,
                node.state,
                node.draining,
                node.inc,
                node.score,
                offer.slots,
                state.free,
                offer.slots - state.free,
                dict(offer.amounts),
                state.left,
                {label: value for label, value in offer.labels if not label.startswith(RESERVED)},
                f"over {state.note}" if node.drain == 2 else state.note,
                tuple(queues_of(offer)),
                state.down_ms,
            )
        )
    # Where a slot that is not free need not be held, its leases are counted.
    unusual = [node for node in nodes if node.state != "up" or node.draining or node.span != node.offer.slots]
    held: dict[str, int] = {node.name: 0 for node in unusual}
    for lease in store.leases(number, unusual):
        held[lease.place.node] += 1
    views = [replace(view, held=held[view.name]) if view.name in held else view for view in views]
    version, epoch = (int(value) if value and value.isdigit() else 0 for value in meta)
    return gather_partition(number, version, epoch, views), views

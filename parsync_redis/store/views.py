"""Reads nodes and partitions for people: many keys, a round trip for every hundred partitions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from redis.exceptions import RedisError

from ..model.ids import readable
from ..model.needs import Bundle, is_bundle, parse_bundle
from ..model.node import Node, read_nodes
from ..model.views import NodeView, PartitionView, gather_partition
from .store import Store
from .trouble import translate

_CHUNK: Final = 100


def read_views(store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
    """Each partition with its nodes, by number; nothing for a cluster that no scheduler has joined yet.

    They are read one after another, while the cluster goes on. Raises ServerUnreachable.
    """
    count = count_partitions(store)
    for start in range(0, count, _CHUNK):
        numbers = range(start, min(start + _CHUNK, count))
        for number, rows in zip(numbers, _fetch(store, numbers), strict=True):
            yield _read_partition(store, number, *rows)


def count_partitions(store: Store) -> int:
    """The number of the cluster's partitions; 0 before its first scheduler, or if its config is damaged."""
    text = store.config().get("partitions", "")
    return min(int(text), 4096) if text.isdecimal() and len(text) < 9 else 0


def find_node(store: Store, name: str) -> int | None:
    """The number of the partition whose node has this name, or None."""
    count = count_partitions(store)
    keys = [store.keys.partition(number, "nodes") for number in range(count)]
    found = pipe(store, [("hexists", key, name) for key in keys])
    return next((number for number, there in enumerate(found) if there), None)


def read_names(store: Store) -> list[str]:
    """The task names that the nodes' workers know."""
    return sorted(readable(name) for name in pipe(store, [("smembers", store.keys.queue("names"))])[0])


def read_offers(store: Store) -> dict[str, Bundle]:
    """What each node has when it is empty, as submit judges by it."""
    shapes = store.hash(store.keys.queue("shapes"))
    return {node: parse_bundle(offer) for node, offer in shapes.items() if is_bundle(offer)}


def _fetch(store: Store, numbers: range) -> Iterator[tuple[Any, ...]]:
    commands: list[tuple[Any, ...]] = []
    for number in numbers:
        meta, free, left, nodes = (store.keys.partition(number, kind) for kind in ("meta", "free", "left", "nodes"))
        commands += [("hmget", meta, ["version", "epoch"]), ("get", free), ("hgetall", left), ("hgetall", nodes),
                     ("hgetall", store.keys.partition(number, "notes"))]  # fmt: skip
    replies = pipe(store, commands)
    return zip(*[iter(replies)] * 5, strict=True)


def pipe(store: Store, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies of plain commands, (name of the redis-py method, arguments...), in one round trip."""
    try:
        with store.client.pipeline(transaction=False) as batch:
            for command, *args in commands:
                getattr(batch, command)(*args)
            return batch.execute()
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def note_of(node: Node, note: str) -> str:
    """What a note tells people of a node: nothing, if it is of a suspicion that the node has outlived."""
    kind, _, text = note.partition(" ")
    return text if (kind == "drain" and node.draining) or (kind == "suspect" and node.state == "suspect") else ""


def _read_partition(
    store: Store, number: int, meta: list[bytes | None], free: bytes | None, left: dict[bytes, bytes],
    records: dict[bytes, bytes], notes: dict[bytes, bytes],
) -> tuple[PartitionView, list[NodeView]]:  # fmt: skip
    import numpy as np  # here, for it takes long to import and few who import this module look at partitions

    bits = np.unpackbits(np.frombuffer(free or b"", dtype=np.uint8))
    nodes = dict(sorted(read_nodes(records)[0].items()))
    views = []
    for name, node in nodes.items():
        usable = int(bits[node.first : node.first + node.span].sum())
        amounts = readable(left.get(name.encode(), b""))
        unheld = parse_bundle(amounts if is_bundle(amounts) else "")
        views.append(
            NodeView(
                name, number, node.state, node.draining, node.inc, node.score, node.offer.slots, usable,
                node.offer.slots - usable, dict(node.offer.resources), dict(unheld.resources), dict(node.offer.labels),
                note_of(node, readable(notes.get(name.encode(), b""))),
            )
        )  # fmt: skip
    # Where a slot that is not free need not be held, its leases are counted.
    unusual = [node for node in nodes.values() if node.state != "up" or node.draining or node.span != node.offer.slots]
    held: dict[str, int] = {node.name: 0 for node in unusual}
    for lease in store.leases(number, unusual):
        held[lease.node] += 1
    views = [replace(view, held=held[view.name]) if view.name in held else view for view in views]
    version, epoch = (int(value) if value and value.isdigit() else 0 for value in meta)
    return gather_partition(number, version, epoch, views), views

"""Reads nodes and partitions for people: many keys, a round trip for every hundred partitions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from redis.exceptions import RedisError

from ..model.needs import Bundle, parse_bundle
from ..model.node import Node
from ..model.views import NodeView, PartitionView, gather_partition
from .store import Store
from .trouble import translate

_CHUNK: Final = 100


def read_views(store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
    """Each partition with its nodes, by number; nothing for a cluster that no scheduler has joined yet.

    They are read one after another, while the cluster goes on. Raises ServerUnreachable.
    """
    count = int(store.config().get("partitions", 0))
    for start in range(0, count, _CHUNK):
        numbers = range(start, min(start + _CHUNK, count))
        for number, rows in zip(numbers, _fetch(store, numbers), strict=True):
            yield _read_partition(store, number, *rows)


def find_node(store: Store, name: str) -> int | None:
    """The number of the partition whose node has this name, or None."""
    count = int(store.config().get("partitions", 0))
    keys = [store.keys.partition(number, "nodes") for number in range(count)]
    found = pipe(store, [("hexists", key, name) for key in keys])
    return next((number for number, there in enumerate(found) if there), None)


def read_names(store: Store) -> list[str]:
    """The task names that the nodes' workers know."""
    return sorted(name.decode() for name in pipe(store, [("smembers", store.keys.queue("names"))])[0])


def read_offers(store: Store) -> dict[str, Bundle]:
    """What each node has when it is empty, as submit judges by it."""
    return {node: parse_bundle(offer) for node, offer in store.hash(store.keys.queue("shapes")).items()}


def _fetch(store: Store, numbers: range) -> Iterator[tuple[Any, ...]]:
    commands: list[tuple[Any, ...]] = []
    for number in numbers:
        meta, free, left, nodes = (store.keys.partition(number, kind) for kind in ("meta", "free", "left", "nodes"))
        commands += [("hmget", meta, ["version", "epoch"]), ("get", free), ("hgetall", left), ("hgetall", nodes)]
    replies = pipe(store, commands)
    return zip(*[iter(replies)] * 4, strict=True)


def pipe(store: Store, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies of plain commands, (name of the redis-py method, arguments...), in one round trip."""
    try:
        with store.client.pipeline(transaction=False) as batch:
            for command, *args in commands:
                getattr(batch, command)(*args)
            return batch.execute()
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def _read_partition(
    store: Store, number: int, meta: list[bytes | None], free: bytes | None, left: dict[bytes, bytes],
    records: dict[bytes, bytes],
) -> tuple[PartitionView, list[NodeView]]:  # fmt: skip
    import numpy as np  # here, for it takes long to import and few who import this module look at partitions

    bits = np.unpackbits(np.frombuffer(free or b"", dtype=np.uint8))
    nodes = {name.decode(): Node.of(name.decode(), record.decode()) for name, record in sorted(records.items())}
    views = []
    for name, node in nodes.items():
        usable = int(bits[node.first : node.first + node.span].sum())
        unheld = parse_bundle(left.get(name.encode(), b"").decode())
        views.append(
            NodeView(
                name, number, node.state, node.draining, node.inc, node.score, node.offer.slots, usable,
                node.offer.slots - usable, dict(node.offer.resources), dict(unheld.resources), dict(node.offer.labels),
            )
        )  # fmt: skip
    # Where a slot that is not free need not be held, its leases are counted.
    unusual = [node for node in nodes.values() if node.state != "up" or node.draining or node.span != node.offer.slots]
    held: dict[str, int] = {node.name: 0 for node in unusual}
    for lease in store.leases(number, unusual):
        held[lease.node] += 1
    views = [replace(view, held=held[view.name]) if view.name in held else view for view in views]
    version, epoch = (int(value or 0) for value in meta)
    return gather_partition(number, version, epoch, views), views

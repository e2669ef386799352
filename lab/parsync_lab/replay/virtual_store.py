"""The store in memory, extended by the plain reads of the product's processes, in virtual time."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from parsync_redis.model.needs import amounts_text
from parsync_redis.model.text import NODE_LINE
from parsync_redis.model.times import RunTimes
from parsync_redis.store.reference.leases import Leases, NodeRecord
from parsync_redis.store.reference.store import MemoryStore
from parsync_redis.store.store import Store

_KEY_PARTS: Final = re.compile(r"[^{]*\{[^:}]*(?::([pq])(\d+))?\}:(\w+)(?::(.*))?")
"""A key: the letter and number of its partition or shard, its kind, and an id."""


class VirtualStore(MemoryStore, Store):
    """A store of one server without a server, with the clock `now_ms`.

    times: the learnt run times by name. They are the caller's to add, because the store in memory
    learns none.
    """

    def __init__(self, cluster: str, shards: int = 1) -> None:
        MemoryStore.__init__(self, cluster, shards)
        self.times: dict[str, RunTimes] = {}

    @property
    def several(self) -> bool:
        """False: there is one server."""
        return False

    def read(self, command: str, *args: Any) -> Any:
        """Answer a plain command as a server does."""
        if command == "time":
            return self.now_ms // 1000, self.now_ms % 1000 * 1000
        return self._reply_to(command, *args)

    def pipe(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Answer plain commands as a server does."""
        return [self.read(*command) for command in commands]

    def publish(self, channel: str, text: str) -> int:
        """Record a message. Returns 1: the scheduler of the channel hears it."""
        super().publish(channel, text)
        return 1

    def pipe_each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Answer plain commands as a server does."""
        return self.pipe(commands)

    def place_of(self, key: str) -> str:
        """Return the address of the one server, which has none."""
        return ""

    def _reply_to(self, command: str, key: str, *args: Any) -> Any:
        match = _KEY_PARTS.fullmatch(key)
        assert match is not None, f"not a key: {key}"
        family = match[1]
        number = match[2]
        kind = match[3]
        id = match[4]
        if command == "delete" and kind == "inbox":
            self.partition(int(number)).nodes[id].inbox.clear()
            return 1
        if command == "get" and kind == "free":
            return bytes(self.partition(int(number)).bits)
        if command == "zrevrange" and kind == "apps":
            return [digest.encode() for digest in self.queues[int(number)].names]
        if command == "zrange" and kind == "pending":
            queue = self.queues[int(number)].kinds.get(id)
            ranked = sorted((order, task) for task, order in queue.orders.items()) if queue else []
            return [(task.encode(), order) for order, task in ranked[args[0] : args[1] + 1]]
        if command in ("hget", "hmget", "hgetall"):
            return _read_hash(self._hash(family, int(number or 0), kind), command, *args)
        raise KeyError(f"the virtual store has no {command} {key}")

    def _hash(self, family: str | None, number: int, kind: str) -> Mapping[str, str]:
        """Return a hash as a server has it."""
        if family == "p":
            return _hash_of_partition(self.partition(number), kind)
        if family == "q" and kind == "names":
            return {digest: tasks.text for digest, tasks in self.queues[number].names.items()}
        if family == "q" and kind == "accounts":
            lines = self.queues[number].accounts.lines
            return {account: line.text for account, line in lines.items() if line.holders}
        if family is None and kind == "times":
            return {name: times.text for name, times in self.times.items()}
        if family is None and kind in ("config", "bookings"):
            return self.cluster.config if kind == "config" else self.cluster.bookings
        if family is None and kind == "shares":
            return {tenant: share.text for tenant, share in self.cluster.shares.items()}
        if family is None and kind == "streaks":
            return {}
        raise KeyError(f"the virtual store has no hash {kind}")


def _hash_of_partition(partition: Leases, kind: str) -> Mapping[str, str]:
    nodes = partition.nodes
    if kind == "meta":
        return {"version": str(partition.version), "epoch": str(partition.epoch)}
    if kind == "nodes":
        return {name: _record(node) for name, node in nodes.items()}
    if kind == "left":
        amounts = {name: node.amounts_left for name, node in nodes.items()}
        return {name: amounts_text(sizes.items()) for name, sizes in amounts.items() if sizes}
    if kind == "slots":
        return {f"{node}/{slot}": place.text for (node, slot), place in partition.leases.items()}
    if kind == "notes":
        return partition.notes
    if kind == "alive":  # nobody asks since when a node is down
        return {}
    raise KeyError(f"the virtual store has no hash {kind} of a partition")


def _read_hash(hash: Mapping[str, str], command: str, fields: Any = ()) -> Any:
    """Answer a command that reads a hash.

    fields: a list of fields for hmget, the field for hget.
    """
    if command == "hgetall":
        return {field.encode(): value.encode() for field, value in hash.items()}
    if command == "hget":
        return hash[fields].encode() if fields in hash else None
    return [hash[field].encode() if field in hash else None for field in fields]


def _record(node: NodeRecord) -> str:
    """Return the record of a node as Redis has it."""
    return NODE_LINE.write(
        inc=node.inc,
        state=node.state,
        drain=node.drain,
        first=node.first,
        span=node.span,
        ahead=node.ahead,
        capacity=node.capacity or None,
        until=node.notice and node.notice.text,
        score=node.score,
        offer=node.offer.text,
    )

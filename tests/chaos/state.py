"""The whole state of a small cluster, read in one atomic script, and what must hold of it at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import redis

from parsync_redis.inspect.kind_audit import audit_kinds
from parsync_redis.inspect.partition_audit import PartitionState, audit_partition
from parsync_redis.model.node import Lease, Node
from parsync_redis.wire.keys import Keys

from .processes import PARTITIONS
from .wire import CLUSTER

KEYS = Keys(CLUSTER)
_KINDS = ("meta", "slots", "left", "nodes", "alive", "notes", "lost", "free")
_FIELDS = ("state", "attempt", "partition", "node", "slot", "inc", "cancel", "scheduler")
_READ = """
local found = {}
for p = 0, ARGV[1] - 1 do
  local at = p * 8
  local rows = {}
  for i = 1, 6 do rows[i] = redis.call('HGETALL', KEYS[at + i]) end
  rows[7] = redis.call('SMEMBERS', KEYS[at + 7])
  rows[8] = redis.call('GET', KEYS[at + 8]) or ''
  found[#found + 1] = rows
end
local at = ARGV[1] * 8
found[#found + 1] = {redis.call('ZRANGE', KEYS[at + 1], 0, -1), redis.call('HKEYS', KEYS[at + 2]),
  redis.call('HKEYS', KEYS[at + 3])}
local versions, queues = redis.call('ZRANGE', KEYS[at + 5], 0, -1, 'WITHSCORES'), {}
for i = 1, #versions, 2 do
  queues[(i + 1) / 2] = redis.call('ZRANGE', KEYS[at + 7] .. versions[i], 0, -1, 'WITHSCORES')
end
local version = redis.call('HGET', KEYS[at + 6], 'version') or '0'
found[#found + 1] = {redis.call('HGETALL', KEYS[at + 4]), versions, queues, version}
local tasks = {}
for i = at + 8, #KEYS do tasks[#tasks + 1] = redis.call('HMGET', KEYS[i], unpack(ARGV, 2)) end
found[#found + 1] = tasks
return found
"""
_FIXED = [KEYS.partition(p, kind) for p in range(PARTITIONS) for kind in _KINDS]
_FIXED += [KEYS.queue(kind) for kind in ("later", "taken", "placed", "kinds", "changed", "meta")]
_FIXED += [KEYS.pending("")]
_HOME = {"pending": ("pending", "later"), "taken": ("taken",), "placed": ("placed",), "running": ("placed",)}


class State:
    """The state as read: partitions, the indexes of tasks, the records of tasks."""

    def __init__(self, raw: list[Any] | None = None, ids: list[str] | None = None) -> None:
        self.raw, self.ids = raw, ids or []
        self.nodes: dict[str, Node] = {}
        self.leases: dict[tuple[str, int], Lease] = {}
        self.tasks: dict[str, dict[str, str]] = {}
        self.indexes: dict[str, list[str]] = {}
        self.lines: dict[str, str] = {}
        self.versions: dict[str, float] = {}
        self.queues: dict[str, dict[str, float]] = {}
        self.version = 0
        self.partitions: list[PartitionState] = []
        if raw is None:
            return
        for number in range(PARTITIONS):
            self._partition(number, raw[number])
        for kind, names in zip(("later", "taken", "placed"), raw[PARTITIONS], strict=True):
            self.indexes[kind] = [name.decode() for name in names]
        lines, versions, queues, version = raw[PARTITIONS + 1]
        self.lines, self.version = _hash(lines), int(version)
        self.versions = {kind: float(at) for kind, at in _hash(versions).items()}
        self.queues = {
            kind: {id: float(order) for id, order in _hash(queue).items()}
            for kind, queue in zip(self.versions, queues, strict=True)
        }
        self.indexes["pending"] = [id for queue in self.queues.values() for id in queue]
        for id, row in zip(self.ids, raw[PARTITIONS + 2], strict=True):
            self.tasks[id] = {f: v.decode() for f, v in zip(_FIELDS, row, strict=True) if v is not None}

    def _partition(self, number: int, rows: list[Any]) -> None:
        meta, slots, left, nodes, alive, notes = (_hash(row) for row in rows[:6])
        held: dict[tuple[str, int], Lease] = {}
        for seat, line in slots.items():
            name, _, slot = seat.rpartition("/")
            held[name, int(slot)] = Lease.of(name, int(slot), line)
        self.leases.update(held)
        mine = {name: Node.of(name, line) for name, line in nodes.items()}
        self.nodes.update(mine)
        lost = {name.decode() for name in rows[6]}
        self.partitions.append(PartitionState(number, meta, mine, held, rows[7], left, alive, notes, lost, set(), []))

    def facts(self, whole: bool) -> Iterator[tuple[int, str]]:
        """Return what does not hold: (promise, in words). `whole`: the server has kept all that it acknowledged."""
        for partition in self.partitions:
            yield from ((3, fact) for fact in audit_partition(partition))
            shrunk = {lease.node for lease in self.leases.values() if lease.inc != self.nodes[lease.node].inc}
            yield from (
                (3, f"{name} has less than nothing left: {left}")
                for name, left in partition.left.items()
                if "=-" in left and name not in shrunk  # one that came back smaller may, until it is repaired
            )
        yield from ((1, fact) for fact in audit_kinds(self.queues, self.lines, self.versions, self.version))
        listed: dict[str, list[str]] = {}
        for kind, ids in self.indexes.items():
            for id in ids:
                listed.setdefault(id, []).append(kind)
        for id, task in self.tasks.items():
            state, where = task.get("state", ""), listed.get(id, [])
            if len(where) != (state in _HOME) or (where and where[0] not in _HOME[state]):
                yield 1, f"task {id} is {state or 'gone'}, but listed in {' and '.join(where) or 'no index'}"
            if whole and state in ("placed", "running"):
                lease = self.leases.get((task["node"], int(task["slot"])))
                if lease is None or (lease.task, lease.attempt, str(lease.inc)) != (id, task["attempt"], task["inc"]):
                    yield 2, f"task {id} is {state} on {task['node']}/{task['slot']}, whose lease is not its own"


def read_state(client: redis.Redis, ids: list[str], before: State) -> State:
    """Return the state now; `before` itself if nothing has changed."""
    keys = [*_FIXED, *(KEYS.task(id) for id in ids)]
    raw = cast(list[Any], client.eval(_READ, len(keys), *keys, PARTITIONS, *_FIELDS))
    return before if raw == before.raw and ids == before.ids else State(raw, ids)


def _hash(row: list[bytes]) -> dict[str, str]:
    words = [word.decode() for word in row]
    return dict(zip(words[::2], words[1::2], strict=True))

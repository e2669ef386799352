"""The whole state of a small cluster, read in one atomic script, and what must hold of it at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import redis

from parsync_redis.inspect.kind_audit import audit_kinds
from parsync_redis.inspect.partition_audit import PartitionState, audit_partition
from parsync_redis.inspect.task_audit import Extra, QueueState, audit_tasks
from parsync_redis.model.node import Lease, Node
from parsync_redis.model.place import Place
from parsync_redis.model.record import read_run
from parsync_redis.store.tasks import GENERATIONS
from parsync_redis.wire.keys import Keys

from .processes import PARTITIONS
from .wire import CLUSTER

KEYS = Keys(CLUSTER)
_KINDS = ("meta", "slots", "left", "nodes", "alive", "notes", "lost", "free")
_HASHES = ("tasks", "messages", "taken", "running", *GENERATIONS, "kinds")
_SETS = ("later", "dead")
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
local at, hashes, sets = ARGV[1] * 8, {}, {}
for i = 1, 8 do hashes[i] = redis.call('HGETALL', KEYS[at + i]) end
for i = 1, 2 do sets[i] = redis.call('ZRANGE', KEYS[at + 8 + i], 0, -1, 'WITHSCORES') end
local versions, queues = redis.call('ZRANGE', KEYS[at + 11], 0, -1, 'WITHSCORES'), {}
for i = 1, #versions, 2 do
  queues[(i + 1) / 2] = redis.call('ZRANGE', KEYS[at + 13] .. versions[i], 0, -1, 'WITHSCORES')
end
local counts = redis.call('HMGET', KEYS[at + 12], 'version', 'submitted')
local extras = {}
for i, id in ipairs({unpack(ARGV, 2)}) do
  local key = KEYS[at + 14] .. id
  extras[i] = {redis.call('HGETALL', key), redis.call('PTTL', key)}
end
found[#found + 1] = {hashes, sets, versions, queues, {counts[1] or '0', counts[2] or '0'}, extras}
return found
"""
_FIXED = [KEYS.partition(p, kind) for p in range(PARTITIONS) for kind in _KINDS]
_FIXED += [KEYS.queue(kind) for kind in (*_HASHES, *_SETS, "changed", "meta")]
_FIXED += [KEYS.pending_prefix, KEYS.extra_prefix]


@dataclass(frozen=True, slots=True)
class TaskNow:
    """The record of a task. attempt: the last one that was given out, '' if the record has none any more."""

    state: str
    attempt: str
    place: Place | None = None


class State:
    """The state as read: partitions, the indexes of tasks, and the record of each task."""

    def __init__(self, raw: list[Any] | None = None, ids: list[str] | None = None) -> None:
        self.raw, self.ids = raw, ids or []
        self.nodes: dict[str, Node] = {}
        self.leases: dict[tuple[str, int], Lease] = {}
        self.tasks: dict[str, TaskNow] = {}
        self.partitions: list[PartitionState] = []
        if raw is None:
            return
        for number in range(PARTITIONS):
            self._partition(number, raw[number])
        hashes, sets, versions, queues, (version, submitted), extras = raw[PARTITIONS]
        self.hashes = {name: _hash(row) for name, row in zip(_HASHES, hashes, strict=True)}
        self.later, self.dead = map(_scores, sets)
        self.version, self.submitted, self.versions = int(version), int(submitted), _scores(versions)
        self.queues = {kind: _scores(queue) for kind, queue in zip(self.versions, queues, strict=True)}
        self.extras = {
            id: Extra(_hash(fields), ttl_ms >= 0)
            for id, (fields, ttl_ms) in zip(self.ids, extras, strict=True)
            if fields
        }
        for id in sorted({id for name in ("tasks", "taken", "running", *GENERATIONS) for id in self.hashes[name]}):
            self.tasks[id] = self._task(id)

    def _task(self, id: str) -> TaskNow:
        """Return what the hashes say of a task."""
        line, owner, run = (self.hashes[name].get(id, "") for name in ("tasks", "taken", "running"))
        for generation in GENERATIONS:
            if not line and (end := self.hashes[generation].get(id)):
                place, _ = read_run(end.split("\n")[2])
                return TaskNow(end.partition(" ")[0], place.attempt if place else "", place)
        if run:
            place, started_ms = read_run(run)
            return TaskNow("placed" if started_ms is None else "running", place.attempt if place else "", place)
        if owner:
            return TaskNow("taken", owner)
        if id in self.dead:
            place, _ = read_run(self.extras[id].fields.get("run", "") if id in self.extras else "")
            return TaskNow("dead", place.attempt if place else "", place)
        return TaskNow("pending", line.split(" ")[0].lstrip("+"))

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
            shrunk = {
                lease.place.node
                for lease in self.leases.values()
                if lease.place.inc != self.nodes[lease.place.node].inc
            }
            yield from (
                (3, f"{name} has less than nothing left: {left}")
                for name, left in partition.left.items()
                if "=-" in left and name not in shrunk  # one that came back smaller may, until it is repaired
            )
        lines = self.hashes["kinds"]
        yield from ((1, fact) for fact in audit_kinds(self.queues, lines, self.versions, self.version))
        yield from ((1, fact) for fact in audit_tasks(self._queue()))
        for id, task in self.tasks.items():
            if whole and task.state in ("placed", "running"):
                lease = self.leases.get((task.place.node, task.place.slot)) if task.place else None
                if lease is None or lease.place != task.place:
                    yield 2, f"task {id} is {task.state} at {task.place}, whose lease is not its own"

    def _queue(self) -> QueueState:
        """Return the tasks for the audit; of their leases, `facts` says what must hold."""
        of = self.hashes
        return QueueState(
            of["tasks"],
            [id for id in of["tasks"] if id not in of["messages"]],
            len(of["messages"]),
            of["taken"],
            of["running"],
            self.queues,
            self.later,
            self.dead,
            [of[name] for name in GENERATIONS],
            self.extras,
            frozenset(),
            frozenset(),
            self.submitted,
        )


def read_state(client: redis.Redis, ids: list[str], before: State) -> State:
    """Return the state now; `before` itself if nothing has changed."""
    raw = cast(list[Any], client.eval(_READ, len(_FIXED), *_FIXED, PARTITIONS, *ids))
    return before if raw == before.raw and ids == before.ids else State(raw, ids)


def _hash(row: list[bytes]) -> dict[str, str]:
    words = [word.decode() for word in row]
    return dict(zip(words[::2], words[1::2], strict=True))


def _scores(row: list[bytes]) -> dict[str, float]:
    return {member: float(score) for member, score in _hash(row).items()}

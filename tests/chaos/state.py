"""The whole state of a small cluster, read in one atomic script, and what must hold of it at any
moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import redis

from parsync_redis.inspect.audit import RareFields
from parsync_redis.model.ids import shard_of
from parsync_redis.model.node import Lease, Node
from parsync_redis.model.place import Place
from parsync_redis.model.record import read_run
from parsync_redis.store.reads.tasks import GENERATIONS
from parsync_redis.wire.keys import Keys
from tests.kit.oracle.accounts import audit_accounts
from tests.kit.oracle.kinds import audit_kinds
from tests.kit.oracle.partitions import PartitionState, audit_partition
from tests.kit.oracle.tasks import QueueState, audit_tasks

from .processes import PARTITIONS
from .wire import CLUSTER

LIMITS: Final = {"one": 1, "two": 2}
"""The limits of the schedules: how many units run at once."""

_KINDS = ("meta", "slots", "left", "nodes", "alive", "notes", "lost", "free", "changed")
_HASHES = ("tasks", "messages", "taken", "running", *GENERATIONS, "kinds")
_SETS = ("later", "dead")
_READ = """
local found, arg = {}, 3
for p = 0, ARGV[1] - 1 do
  local at = p * 9
  local rows = {}
  for i = 1, 6 do rows[i] = redis.call('HGETALL', KEYS[at + i]) end
  rows[7] = redis.call('SMEMBERS', KEYS[at + 7])
  rows[8] = redis.call('GET', KEYS[at + 8]) or ''
  rows[9] = redis.call('ZRANGE', KEYS[at + 9], 0, -1, 'WITHSCORES')
  found[#found + 1] = rows
end
for shard = 0, ARGV[2] - 1 do
  local at, hashes, sets, holders = ARGV[1] * 9 + shard * 16, {}, {}, {}
  for i = 1, 8 do hashes[i] = redis.call('HGETALL', KEYS[at + i]) end
  for i = 1, 2 do sets[i] = redis.call('ZRANGE', KEYS[at + 8 + i], 0, -1, 'WITHSCORES') end
  local versions, queues = redis.call('ZRANGE', KEYS[at + 11], 0, -1, 'WITHSCORES'), {}
  for i = 1, #versions, 2 do
    queues[(i + 1) / 2] = redis.call('ZRANGE', KEYS[at + 13] .. versions[i], 0, -1, 'WITHSCORES')
  end
  local counts = redis.call('HMGET', KEYS[at + 12], 'version', 'submitted')
  local extras, ids = {}, tonumber(ARGV[arg])
  for i = 1, ids do
    local key = KEYS[at + 14] .. ARGV[arg + i]
    extras[i] = {redis.call('HGETALL', key), redis.call('PTTL', key)}
  end
  arg = arg + ids + 1
  local accounts = redis.call('HGETALL', KEYS[at + 15])
  for i, name in ipairs({'one', 'two'}) do
    holders[i] = redis.call('ZRANGE', KEYS[at + 16] .. name, 0, -1)
  end
  counts = {counts[1] or '0', counts[2] or '0'}
  found[#found + 1] = {hashes, sets, versions, queues, counts, extras, accounts, holders}
end
return found
"""


@lru_cache
def _fixed(shards: int) -> list[str]:
    keys = Keys(CLUSTER, shards=shards)
    found = [keys.partition(p, kind) for p in range(PARTITIONS) for kind in _KINDS]
    for shard in range(shards):
        found += [keys.queue(kind, shard) for kind in (*_HASHES, *_SETS, "changed", "meta")]
        found += [keys.prefix("pending:", shard), keys.prefix("extra:", shard)]
        found += [keys.queue("accounts", shard), keys.prefix("holders:", shard)]
    return found


@dataclass(frozen=True, slots=True)
class TaskNow:
    """The record of a task.

    attempt: the last one that was given out, '' if the record has none any more.
    """

    state: str
    attempt: str
    place: Place | None = None


class Shard:
    """A shard of the queue as read: the indexes of its tasks, and the record of each."""

    def __init__(self, raw: list[Any], ids: list[str]) -> None:
        hashes, sets, versions, queues, (version, submitted), extras, accounts, holders = raw
        self.hashes = {name: _hash(row) for name, row in zip(_HASHES, hashes, strict=True)}
        self.later, self.dead = map(_scores, sets)
        self.version = int(version)
        self.submitted = int(submitted)
        changed = _scores(versions)
        self.versions = {
            kind: version for kind, version in changed.items() if not kind.startswith("=")
        }
        self.queues = {
            kind: _scores(queue)
            for kind, queue in zip(changed, queues, strict=True)
            if kind in self.versions
        }
        self.accounts = _hash(accounts)
        self.holders = {
            name: {id.decode() for id in ids}
            for name, ids in zip(LIMITS, holders, strict=True)
            if ids
        }
        self.extras = {
            id: RareFields(_hash(fields), ttl_ms >= 0)
            for id, (fields, ttl_ms) in zip(ids, extras, strict=True)
            if fields
        }
        self.orders = {id: int(line.split(" ")[1]) for id, line in self.hashes["tasks"].items()}
        known = {
            id for name in ("tasks", "taken", "running", *GENERATIONS) for id in self.hashes[name]
        }
        self.tasks = {id: self._task(id) for id in sorted(known)}

    def _task(self, id: str) -> TaskNow:
        """Return what the hashes say of a task."""
        line, owner, run = (self.hashes[name].get(id, "") for name in ("tasks", "taken", "running"))
        for generation in GENERATIONS:
            if not line and (end := self.hashes[generation].get(id)):
                place, _ = read_run(end.split("\n")[2])
                return TaskNow(end.partition(" ")[0], place.attempt if place else "", place)
        if run:
            place, started_ms = read_run(run)
            return TaskNow(
                "placed" if started_ms is None else "running", place.attempt if place else "", place
            )
        if owner:
            return TaskNow("taken", owner)
        if id in self.dead:
            place, _ = read_run(self.extras[id].fields.get("run", "") if id in self.extras else "")
            return TaskNow("dead", place.attempt if place else "", place)
        return TaskNow("pending", line.split(" ")[0].lstrip("+"))

    def published(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield running tasks with a successor that others than the run published: id, attempt and
        successor.
        """
        for id, extra in self.extras.items():
            task = self.tasks.get(id)
            successor = extra.fields.get("next", "")
            if task and task.state == "running" and re.search(r"^\S+ \S+ \S*\bpub=", successor):
                yield id, (task.attempt, successor)

    def facts(self) -> Iterator[str]:
        """Yield the contradictions within the shard."""
        yield from audit_kinds(self.queues, self.hashes["kinds"], self.versions, self.version)
        yield from audit_tasks(self._queue())
        held_ids = {*self.hashes["taken"], *self.hashes["running"]}
        yield from audit_accounts(self.hashes["tasks"], held_ids, self.accounts, self.holders)

    def overruns(self) -> Iterator[str]:
        """Yield the limits under which more is taken, placed or running than the policy allows."""
        for name, line in self.accounts.items():
            units = re.search(r" units=(\d+)", line)
            if units and int(units[1]) > LIMITS[name]:
                yield f"limit {name} of {LIMITS[name]} is exceeded: {line}"

    def _queue(self) -> QueueState:
        """Return the tasks for the audit; of their leases, `State.facts` says what must hold."""
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
            {},
            frozenset(),
            self.submitted,
        )


class State:
    """The state as read: partitions, shards, and the record of each task.

    ids: in each shard, whose extras are read.
    """

    def __init__(self, raw: list[Any] | None = None, ids: list[list[str]] | None = None) -> None:
        self.raw = raw
        self.ids = ids or []
        self.nodes: dict[str, Node] = {}
        self.leases: dict[tuple[str, int], Lease] = {}
        self.tasks: dict[str, TaskNow] = {}
        self.orders: dict[str, int] = {}
        self.published: dict[str, tuple[str, str]] = {}
        self.partitions: list[PartitionState] = []
        self.shards: list[Shard] = []
        if raw is None:
            return
        for number in range(PARTITIONS):
            self._partition(number, raw[number])
        self.shards = [
            Shard(rows, mine) for rows, mine in zip(raw[PARTITIONS:], self.ids, strict=True)
        ]
        self.tasks = {id: task for shard in self.shards for id, task in shard.tasks.items()}
        self.orders = {id: order for shard in self.shards for id, order in shard.orders.items()}
        self.published = {id: found for shard in self.shards for id, found in shard.published()}

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
        changed = _scores(rows[8])
        self.partitions.append(
            PartitionState(
                number, meta, mine, held, rows[7], left, changed, alive, notes, lost, set(), []
            )
        )

    def facts(self, whole: bool) -> Iterator[tuple[int, str]]:
        """Yield the contradictions: (promise, in words).

        whole: whether the servers have kept all that they acknowledged.
        """
        for partition in self.partitions:
            yield from ((3, fact) for fact in audit_partition(partition))
            shrunk = {
                lease.place.node
                for lease in self.leases.values()
                if lease.place.inc != self.nodes[lease.place.node].inc
            }
            yield from (
                (3, f"{name} has less than nothing left: {left}")
                for name, left in partition.free_amounts.items()
                # a node that came back smaller may have less than nothing left, until the repair
                if "=-" in left and name not in shrunk
            )
        for shard in self.shards:
            yield from ((1, fact) for fact in shard.facts())
            # what ran before the last writes were lost goes on
            yield from ((0, fact) for fact in shard.overruns() if whole)
        for id, task in self.tasks.items():
            if whole and task.state in ("placed", "running"):
                lease = self.leases.get((task.place.node, task.place.slot)) if task.place else None
                if lease is None or lease.place != task.place:
                    yield (
                        2,
                        f"task {id} is {task.state} at {task.place}, whose lease is not its own",
                    )


def read_state(client: redis.Redis, ids: Iterable[str], before: State, shards: int = 1) -> State:
    """Return the state now; `before` itself if nothing has changed."""
    mine: list[list[str]] = [[] for _ in range(shards)]
    for id in sorted(ids):
        mine[shard_of(id, shards)].append(id)
    words: list[str] = [word for some in mine for word in (str(len(some)), *some)]
    fixed = _fixed(shards)
    raw = cast(list[Any], client.eval(_READ, len(fixed), *fixed, PARTITIONS, shards, *words))
    return before if raw == before.raw and mine == before.ids else State(raw, mine)


def _hash(row: list[bytes]) -> dict[str, str]:
    words = [word.decode() for word in row]
    return dict(zip(words[::2], words[1::2], strict=True))


def _scores(row: list[bytes]) -> dict[str, float]:
    return {member: float(score) for member, score in _hash(row).items()}

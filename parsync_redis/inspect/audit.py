"""The audit: check what must be true of a cluster's state after every script.

It reads key by key, in chunks, while others write. So what it finds is a suspicion: it names only
what is wrong at one moment as well (second_look.py).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from redis.exceptions import RedisError

from ..model.ids import readable
from ..model.node import Lease, Node
from ..store.reads.tasks import GENERATIONS
from ..store.server.server_errors import translate
from ..store.store import Store
from ..wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS
from .kind_audit import audit_kinds
from .partition_audit import PartitionState, audit_partition, number
from .second_look import (
    RARE,
    atomic,
    kind_differs,
    look_at_kinds,
    look_at_messages,
    look_at_slots,
    look_at_tasks,
    look_at_versions,
    named_tasks,
)
from .task_audit import Extra, QueueState, audit_slots, audit_tasks

CHUNK: Final = 500

Found = Mapping[str, tuple[str, str]]
"""Every key of the cluster -> its family ('q0', 'p3'; '' for the whole cluster) and the rest of its
name.
"""


def audit(store: Store, say: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return a sentence for each fault of the state; [] if all is well. Raises ServerUnreachable.

    say: is told how far it is.
    """
    try:
        store.config()  # tells the number of shards
        keys = _keys(store)
        numbers = sorted({int(family[1:]) for family, _ in keys.values() if family.startswith("p")})
        found = [*_leaks(store, keys)]
        running = dict[str, str]()
        partitions = list[PartitionState]()
        for number in numbers:
            say(f"partition {number} of {len(numbers)}")
            partitions.append(_partition(store, number, keys, store.pipe))
            if audit_partition(partitions[-1]):
                found += audit_partition(
                    _partition(store, number, _keys(store), partial(atomic, store))
                )
        shards = sorted({int(family[1:]) for family, _ in keys.values() if family.startswith("q")})
        for shard in sorted({*shards, *range(store.keys.shards)}):
            say(f"shard {shard} of {max(store.keys.shards, *shards, 1)}")
            found += _queue(store, shard, keys, partitions, running, say)
        nodes = {
            (partition.number, name): node
            for partition in partitions
            for name, node in partition.nodes.items()
        }
        if [*audit_slots(nodes, running)]:
            found += look_at_slots(nodes, lambda: _running(store), store)
        return found
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def _running(store: Store) -> dict[str, str]:
    replies = store.pipe([("hgetall", key) for key in store.keys.queues("running")])
    return {readable(id): readable(text) for reply in replies for id, text in reply.items()}


def _keys(store: Store) -> Found:
    head = store.keys.tick.partition("}:tick")[0]
    form = re.compile(re.escape(head) + r"(?::([qp]\d+))?\}:(.*)", re.DOTALL)
    names = [
        name.decode(errors="replace")
        for name in store.client.scan_iter(match=head + "*", count=CHUNK)
    ]
    return {
        name: (match[1] or "", match[2])
        for name in sorted(names)
        if (match := form.fullmatch(name))
    }


def _pipelined(store: Store, command: str, calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """Yield the replies of one command called many times, a chunk a round trip."""
    rows = list(calls)
    for at in range(0, len(rows), CHUNK):
        pipe: Any
        with store.client.pipeline(transaction=False) as pipe:
            for row in rows[at : at + CHUNK]:
                pipe.execute_command(command, *row)
            yield from pipe.execute()


def _leaks(store: Store, keys: Found) -> Iterator[str]:
    """Check that only keys of the cluster's structure never expire; others look at those of tasks,
    kinds and nodes.
    """
    structure = {"": CLUSTER_KINDS, "q": QUEUE_KINDS, "p": PARTITION_KINDS}
    others = {"": (), "q": ("extra:", "pending:"), "p": ("inbox:",)}
    ttls = _pipelined(store, "TTL", ((key,) for key in keys))
    for (key, (family, rest)), ttl in zip(keys.items(), ttls, strict=True):
        known = rest.startswith(others[family[:1]]) or rest in structure[family[:1]]
        if not known and ttl == -1:
            yield f"key {key} is leaked: it is of no known kind and never expires"


def _queue(
    store: Store,
    shard: int,
    keys: Found,
    partitions: Iterable[PartitionState],
    running: dict[str, str],
    say: Callable[[str], object],
) -> Iterator[str]:
    """Check the tasks and the kinds of a shard; `running` takes those that are placed or run."""
    client: Any = store.client

    def queue(name: str) -> str:
        return store.keys.queue(name, shard)

    def scores(key: str) -> dict[str, float]:
        return {readable(id): score for id, score in client.zscan_iter(key, count=CHUNK)}

    def texts(name: str) -> dict[str, str]:
        return {readable(k): readable(v) for k, v in client.hscan_iter(queue(name), count=CHUNK)}

    mine = [rest for family, rest in keys.values() if family == f"q{shard}"]
    queues = {kind: scores(store.keys.pending(kind, shard)) for kind in _rest(mine, "pending:")}
    submitted, version = (
        number(readable(v or b"")) for v in client.hmget(queue("meta"), "submitted", "version")
    )
    lines = texts("kinds")
    changed = scores(queue("changed"))
    if [*audit_kinds(queues, lines, changed, version)]:
        suspects = [
            kind
            for kind in {**queues, **lines}
            if kind_differs(kind, queues, lines, changed, version)
        ]
        yield from look_at_kinds(store, shard, suspects)
        yield from look_at_versions(store, shard)
    tasks = texts("tasks")
    here = texts("running")
    running |= here
    busy = {*here, *texts("taken"), *scores(queue("dead"))}
    yield from (
        _misplaced(store, shard, id, id in busy) for id in tasks if store.keys.shard_of(id) != shard
    )
    have = _pipelined(store, "HEXISTS", ((queue("messages"), id) for id in tasks))
    state = QueueState(
        tasks,
        [id for id, there in zip(tasks, have, strict=True) if not there],
        client.hlen(queue("messages")),
        texts("taken"),
        here,
        queues,
        scores(queue("later")),
        scores(queue("dead")),
        [texts(name) for name in GENERATIONS],
        _extras(store, shard, _rest(mine, "extra:")),
        {name: node for state in partitions for name, node in state.nodes.items()},
        {lease.place.text for state in partitions for lease in state.leases.values()},
        submitted,
    )
    indexes = (
        state.taken,
        here,
        *queues.values(),
        state.later,
        state.dead,
        state.extras,
        *state.ended,
    )
    suspects = named_tasks([*audit_tasks(state)], {*tasks}.union(*indexes))
    say(f"shard {shard}: {len(tasks)} tasks were read, {len(suspects)} are looked at again")
    faults = [*look_at_tasks(store, shard, suspects, queues, submitted)]
    yield from faults
    yield from look_at_messages(
        store, shard, sum(fault.endswith(" has no message") for fault in faults)
    )


def _misplaced(store: Store, shard: int, id: str, busy: bool) -> str:
    """Say that a task is in a shard that is not its own, and how to repair that.

    busy: taken, running or dead there.
    """
    keys = store.keys
    own = f"of {keys.shards} shards its is q{keys.shard_of(id)}"
    found = f"task {id} is in shard q{shard}, where nobody looks for it: {own}"
    if busy:
        return (
            f"{found}; it is taken, running or dead there: do not submit it again while it may run"
        )
    if shard < keys.shards:
        clear = (
            f"redis-cli HDEL '{keys.queue('tasks', shard)}' {id}, and the same of "
            f"'{keys.queue('messages', shard)}'"
        )
    else:
        clear = f"delete the keys of q{shard}, which no process uses"
    return f"{found}; submit it again (the same id is safe), then {clear}"


def _rest(names: Iterable[str], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _extras(store: Store, shard: int, ids: Sequence[str]) -> dict[str, Extra]:
    prefix = store.keys.prefix("extra:", shard)
    rows = _pipelined(store, "HMGET", ((prefix + id, *RARE) for id in ids))
    ttls = _pipelined(store, "TTL", ((prefix + id,) for id in ids))
    found = {}
    for id, row, ttl in zip(ids, rows, ttls, strict=True):
        fields = {
            name: readable(value)
            for name, value in zip(RARE, row, strict=True)
            if value is not None
        }
        found[id] = Extra(fields, ttl >= 0)
    return found


def _partition(
    store: Store, number: int, keys: Found, read: Callable[[Sequence[tuple[Any, ...]]], list[Any]]
) -> PartitionState:
    """Return the records of a partition. read: runs plain commands, at one moment or not."""
    names = sorted(
        rest[6:]
        for family, rest in keys.values()
        if family == f"p{number}" and rest.startswith("inbox:")
    )

    def key(kind: str) -> str:
        return store.keys.partition(number, kind)

    hashes = ("nodes", "slots", "meta", "left", "alive", "notes")
    commands: list[tuple[Any, ...]] = [("hgetall", key(kind)) for kind in hashes]
    commands += [
        ("zrange", key("changed"), 0, -1, False, True),
        ("smembers", key("lost")),
        ("get", key("free")),
    ]
    *replies, changed, lost, free = (
        found := read([*commands, *(("exists", store.keys.inbox(number, name)) for name in names)])
    )[:9]
    texts = [{_text(k): _text(v) for k, v in reply.items()} for reply in replies]
    lines, seats, meta, left, alive, notes = texts
    nodes = {}
    bad = []
    for name, line in lines.items():
        try:
            nodes[name] = Node.of(name, line)
        except ValueError as error:
            bad.append(str(error))
    leases = {}
    for seat, line in seats.items():
        name, _, slot = seat.rpartition("/")
        try:
            leases[name, int(slot)] = Lease.of(name, int(slot), line)
        except ValueError as error:
            bad.append(str(error))
    inboxes = {name for name, there in zip(names, found[9:], strict=True) if there}
    scores = {_text(name): float(version) for name, version in changed}
    gone = {readable(name) for name in lost}
    return PartitionState(
        number, meta, nodes, leases, free or b"", left, scores, alive, notes, gone, inboxes, bad
    )


def _text(value: bytes) -> str:
    return value.decode(errors="replace")

"""The audit: check what must be true of a cluster's state after every script.

It reads key by key, in chunks, with plain commands. So its facts are of one moment only if nothing writes meanwhile; on
a busy cluster a fact counts if two audits in a row name it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from ..model.ids import readable
from ..model.kind import kind_text
from ..model.node import Lease, Node
from ..model.options import STORED
from ..model.task import FINAL, TaskState
from ..store.server_errors import translate
from ..store.store import Store
from ..wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS
from .kind_audit import audit_kinds
from .partition_audit import PartitionState, audit_partition, number

CHUNK: Final = 500
_LEFT_OVER: Final = (
    *(f"next_{name}" for name in ("message", "name", "needs", "due_ms", "expires_ms", "publication", *STORED)),
    "cancel",
)
_FIELDS: Final = (
    *("state", "attempt", "order", "scheduler", "partition", "node", "slot", "inc", "name", "needs", "strategy"),
    *_LEFT_OVER,
)
_STATES: Final = frozenset(TaskState) - {TaskState.GONE}
_ATTEMPT: Final = re.compile(r"(\d+)@(\d+)(?:\.\d+)?")

Record = Mapping[str, str]


def audit(store: Store) -> list[str]:
    """Return what is wrong with the state, a sentence each; [] if all is well. Raises ServerUnreachable."""
    try:
        keys = _keys(store)
        tasks = _tasks(store, keys)
        found = [*_leaks(store, keys, tasks), *_queue(store, keys, tasks)]
        for number in sorted({int(family[1:]) for family, _ in keys.values() if family.startswith("p")}):
            found += audit_partition(_partition(store, number, keys))
        return found
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def _keys(store: Store) -> dict[str, tuple[str, str]]:
    """Return every key of the cluster -> its family ('q0', 'p3', '' for the whole cluster) and the rest of its name."""
    head = store.keys.tick.partition("}:tick")[0]
    form = re.compile(re.escape(head) + r"(?::(q0|p\d+))?\}:(.*)", re.DOTALL)
    names = [name.decode(errors="replace") for name in store.client.scan_iter(match=head + "*", count=CHUNK)]
    return {name: (match[1] or "", match[2]) for name in sorted(names) if (match := form.fullmatch(name))}


def _pipelined(store: Store, command: str, calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """Yield the replies of one command called many times, a chunk a round trip."""
    rows = list(calls)
    for at in range(0, len(rows), CHUNK):
        pipe: Any
        with store.client.pipeline(transaction=False) as pipe:
            for row in rows[at : at + CHUNK]:
                pipe.execute_command(command, *row)
            yield from pipe.execute()


def _tasks(store: Store, keys: Mapping[str, tuple[str, str]]) -> dict[str, Record]:
    ids = [rest[5:] for family, rest in keys.values() if family == "q0" and rest.startswith("task:")]
    rows = _pipelined(store, "HMGET", ((store.keys.task(id), *_FIELDS) for id in ids))
    return {id: _record(row) for id, row in zip(ids, rows, strict=True)}


def _record(row: Sequence[bytes | None]) -> Record:
    pairs = zip(_FIELDS, row, strict=True)
    return {field: value.decode(errors="replace") for field, value in pairs if value is not None}


def _leaks(store: Store, keys: Mapping[str, tuple[str, str]], tasks: Mapping[str, Record]) -> Iterator[str]:
    """Check that only keys of the cluster's structure and of tasks that have not ended never expire."""
    structure = {"": CLUSTER_KINDS, "q0": QUEUE_KINDS}
    dead = {readable(id) for id, _ in store.client.zscan_iter(store.keys.queue("dead"), count=CHUNK)}
    yield from (
        f"task {id} is listed as dead, but is {tasks.get(id, {}).get('state', 'gone')}"
        for id in sorted(dead)
        if tasks.get(id, {}).get("state") != TaskState.DEAD
    )
    ttls = _pipelined(store, "TTL", ((key,) for key in keys))
    for (key, (family, rest)), ttl in zip(keys.items(), ttls, strict=True):
        if family == "q0" and rest.startswith("task:"):
            state = tasks[rest[5:]].get("state", "")
            if rest[5:] in dead:
                if ttl >= 0:
                    yield f"task {rest[5:]} is listed as dead, but its record expires"
            elif state in FINAL and ttl == -1:
                yield f"task {rest[5:]} is {state}, but its record never expires"
            elif state not in FINAL and ttl >= 0:
                yield f"task {rest[5:]} is {state or 'without a state'}, but its record expires"
        elif rest.startswith({"q0": "pending:"}.get(family, "inbox:")):
            continue  # of a kind or a node: _queue or audit_partition looks at it
        elif rest not in structure.get(family, PARTITION_KINDS) and ttl == -1:
            yield f"key {key} is leaked: it is of no known kind and never expires"


def _queue(store: Store, keys: Mapping[str, tuple[str, str]], tasks: Mapping[str, Record]) -> Iterator[str]:
    """Check that the indexes agree with each task's record, and that no field of an attempt outlives it."""
    client: Any = store.client

    def scores(key: str) -> dict[str, float]:
        return {readable(id): score for id, score in client.zscan_iter(key, count=CHUNK)}

    queues = {
        rest[8:]: scores(key) for key, (family, rest) in keys.items() if family == "q0" and rest.startswith("pending:")
    }
    kinds = {id: kind for kind, ids in queues.items() for id in ids}
    orders = {id: order for ids in queues.values() for id, order in ids.items()}
    later = scores(store.keys.queue("later"))
    taken = {readable(i): readable(v) for i, v in client.hscan_iter(store.keys.queue("taken"), count=CHUNK)}
    placed = {readable(i): readable(v) for i, v in client.hscan_iter(store.keys.queue("placed"), count=CHUNK)}
    meta = client.hmget(store.keys.queue("meta"), "submitted", "version")
    submitted, version = (number(readable(value or b"")) for value in meta)
    lines = {readable(k): readable(v) for k, v in client.hscan_iter(store.keys.queue("kinds"), count=CHUNK)}
    yield from audit_kinds(queues, lines, scores(store.keys.queue("changed")), version)
    yield from (
        f"task {id} waits as two kinds, {kind} and {kinds[id]}"
        for kind, ids in queues.items()
        for id in ids
        if kinds[id] != kind
    )
    indexes: tuple[tuple[str, Iterable[str]], ...] = (
        ("pending", orders),
        ("later", later),
        ("taken", taken),
        ("placed", placed),
    )
    for index, ids in indexes:
        yield from (f"task {id} is in {index}, but has no record" for id in ids if id not in tasks)
    for id, task in tasks.items():
        state = task.get("state", "")
        if state not in _STATES:
            yield f"task {id} has no state that there is: {state!r}"
            continue
        home = {"pending": ("pending", "later"), "taken": ("taken",), "placed": ("placed",), "running": ("placed",)}
        lists = [index for index, ids in indexes if id in ids]
        if len(lists) != (state in home) or (lists and lists[0] not in home[state]):
            yield f"task {id} is {state}, but listed in {' and '.join(lists) or 'no index'}"
        if id in orders and f"{orders[id]:.0f}" != task.get("order"):
            yield f"task {id} waits at {orders[id]:.0f}, its order is {task.get('order')}"
        if id in kinds and kinds[id] != (
            kind := kind_text(*(task.get(field, "") for field in ("name", "needs", "strategy")))
        ):
            yield f"task {id} waits as {kinds[id]}, its record says {kind}"
        if id in taken and taken[id] != task.get("scheduler"):
            yield f"task {id} is taken by {taken[id]}, its record says {task.get('scheduler')}"
        there = "p{partition} {node}/{slot} inc={inc} attempt={attempt}"
        if id in placed and placed[id] != there.format_map({field: task.get(field) for field in _FIELDS}):
            yield f"task {id} is placed at {placed[id]!r}, its record says otherwise"
        yield from _attempt(id, state, task, submitted)


def _attempt(id: str, state: str, task: Record, submitted: int) -> Iterator[str]:
    match = _ATTEMPT.fullmatch(task.get("attempt", ""))
    damaged = not match and state == TaskState.FAILED  # which is why it failed
    if not damaged and (not match or not 1 <= int(match[2]) <= submitted):
        yield f"task {id} has an attempt that was never given out: {task.get('attempt')!r} of {submitted} submissions"
    published = bool(task.get("next_publication")) and state not in FINAL  # by others: that outlives its run
    left = [field for field in _LEFT_OVER if field in task and (field == "cancel" or not published)]
    if state != TaskState.RUNNING and left:
        yield f"task {id} is {state}, but keeps {', '.join(left)} of a run"
    if state in (TaskState.PENDING, TaskState.TAKEN) and "node" in task:
        yield f"task {id} is {state}, but has a place"


def _partition(store: Store, number: int, keys: Mapping[str, tuple[str, str]]) -> PartitionState:
    client: Any = store.client

    def texts(kind: str) -> dict[str, str]:
        rows = client.hscan_iter(store.keys.partition(number, kind), count=CHUNK)
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in rows}

    nodes, bad = {}, []
    for name, line in texts("nodes").items():
        try:
            nodes[name] = Node.of(name, line)
        except ValueError as error:
            bad.append(str(error))
    leases = {}
    for seat, line in texts("slots").items():
        name, _, slot = seat.rpartition("/")
        try:
            leases[name, int(slot)] = Lease.of(name, int(slot), line)
        except ValueError as error:
            bad.append(str(error))
    inboxes = {rest[6:] for family, rest in keys.values() if family == f"p{number}" and rest.startswith("inbox:")}
    lost = {readable(name) for name in client.sscan_iter(store.keys.partition(number, "lost"), count=CHUNK)}
    return PartitionState(
        number,
        texts("meta"),
        nodes,
        leases,
        client.get(store.keys.partition(number, "free")) or b"",
        texts("left"),
        texts("alive"),
        texts("notes"),
        lost,
        inboxes,
        bad,
    )

"""Judge what an audit suspects again, each by one atomic read: the audit reads piece by piece,
while others write.

Keys of one hash tag are read in one MULTI. For two hash tags the first is read, then the second,
then the first again: a text that both reads of the first show stood there all the time, for no
place or attempt is written twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import redis

from ..model.ids import readable
from ..model.node import Node
from ..model.record import TaskLine, place_text, read_run
from ..store.reads.tasks import GENERATIONS
from ..store.store import Store
from .kind_audit import audit_kinds
from .task_audit import Extra, QueueState, audit_slots, audit_tasks

RARE: Final = ("cancel", "next", "run", "ended_ms")
SOME: Final = 200
"""Tasks in one MULTI: others wait for the server meanwhile."""
TRIES: Final = 20
"""How often a task that moves from kind to kind meanwhile is read again; each time it is sound."""


def atomic(store: Store, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Run plain commands, as `Store.pipe` does, on keys of one hash tag in one MULTI and return the
    replies.
    """
    pipe: Any
    with redis.Redis(connection_pool=store.pool_of(commands[0][1])).pipeline(
        transaction=True
    ) as pipe:
        for command, *args in commands:
            getattr(pipe, command)(*args)
        return list(pipe.execute())


def named_tasks(facts: Sequence[str], ids: Iterable[str]) -> list[str]:
    """Return the ids of the tasks that sentences are about; an id may be any text."""
    by_word: dict[str, list[str]] = {}
    for id in ids:
        by_word.setdefault(id.split(" ")[0], []).append(id)
    found = {}
    for fact in facts:
        rest = fact.removeprefix("task ")
        for id in by_word.get(rest.split(" ")[0], ()) or by_word.get(
            rest.split(" ")[0].rstrip(":"), ()
        ):
            found[id] = rest.startswith((f"{id} ", f"{id}:"))
    return [id for id, named in found.items() if named]


def look_at_tasks(
    store: Store,
    shard: int,
    ids: Sequence[str],
    queues: Mapping[str, Mapping[str, float]],
    submitted: int,
) -> Iterator[str]:
    """Yield the faults that these tasks of a shard have at one moment.

    queues: kind -> the tasks that waited so.
    """
    waited: dict[str, set[str]] = {id: set() for id in ids}
    for kind, orders in queues.items():
        for id in waited.keys() & orders.keys():
            waited[id].add(kind)
    for at in range(0, len(ids), SOME):
        some: Sequence[str] = ids[at : at + SOME]
        for _ in range(TRIES):
            state, moved = _read(store, shard, some, waited, submitted)
            facts = [*audit_tasks(state)]
            again = named_tasks(facts, some)
            still = {*again} - {*moved}
            yield from (fact for fact in facts if named_tasks([fact], still))
            some = [id for id in again if id in moved]
            if not some:
                break


def _read(
    store: Store, shard: int, ids: Sequence[str], waited: Mapping[str, set[str]], submitted: int
) -> tuple[QueueState, list[str]]:
    """Return the tasks as they are at one moment, and those that may wait as a kind that was not
    looked at.
    """

    def queue(kind: str) -> str:
        return store.keys.queue(kind, shard)

    commands: list[Sequence[Any]] = []
    for id in ids:
        extra = store.keys.prefix("extra:", shard) + id
        commands += [
            ("hget", queue(kind), id) for kind in ("tasks", "taken", "running", *GENERATIONS)
        ]
        commands += [("zscore", queue(kind), id) for kind in ("later", "dead")]
        commands += [
            ("hexists", queue("messages"), id),
            ("hmget", extra, list(RARE)),
            ("exists", extra),
            ("ttl", extra),
        ]
        commands += [("zscore", store.keys.pending(kind, shard), id) for kind in sorted(waited[id])]
    replies = iter(atomic(store, [*commands, ("hget", queue("meta"), "submitted")]))
    names = ("tasks", "taken", "running", *GENERATIONS, "later", "dead")
    held: dict[str, dict[str, Any]] = {name: {} for name in names}
    silent = list[str]()
    extras = dict[str, Extra]()
    queues = dict[str, dict[str, float]]()
    moved = list[str]()
    for id in ids:
        for name, entries in held.items():
            if (value := next(replies)) is not None:
                entries[id] = float(value) if name in ("later", "dead") else readable(value)
        there, rare, exists, ttl = (next(replies) for _ in range(4))
        silent += [] if there or id not in held["tasks"] else [id]
        if exists:
            fields = {
                name: readable(value)
                for name, value in zip(RARE, rare, strict=True)
                if value is not None
            }
            extras[id] = Extra(fields, ttl >= 0)
        for kind in sorted(waited[id]):
            if (order := next(replies)) is not None:
                queues.setdefault(kind, {})[id] = float(order)
        kind = _kind(held["tasks"].get(id, ""))
        if kind and kind not in waited[id]:
            waited[id].add(kind)
            moved.append(id)
    latest = next(replies)
    nodes, leases = _places(store, shard, held["running"])
    count = int(latest) if latest is not None and latest.isdigit() else submitted
    tasks = held["tasks"]
    ended = [held[name] for name in GENERATIONS]
    state = QueueState(
        tasks,
        silent,
        len(tasks) - len(silent),
        held["taken"],
        held["running"],
        queues,
        held["later"],
        held["dead"],
        ended,
        extras,
        nodes,
        leases,
        count,
    )
    return state, moved


def _kind(line: str) -> str:
    try:
        return TaskLine.of(line).kind if line else ""
    except ValueError:
        return ""


def _places(
    store: Store, shard: int, running: Mapping[str, str]
) -> tuple[dict[str, Node], set[str]]:
    """Return the nodes of these runs, and those places that have a lease or whose run was over a
    moment later.
    """
    nodes: dict[str, Node] = {}
    leases: set[str] = set()
    for id, text in running.items():
        place, _ = read_run(text)
        if place is None:
            continue
        partition = store.keys.partition
        record = store.read("hget", partition(place.partition, "nodes"), place.node)
        lease = store.read("hget", partition(place.partition, "slots"), place.seat)
        now = store.read("hget", store.keys.queue("running", shard), id)
        if (
            lease == place_text(text).encode()
            or now is None
            or place_text(readable(now)) != place_text(text)
        ):
            leases.add(place_text(text))
        try:
            nodes[place.node] = Node.of(place.node, readable(record or b""))
        except ValueError:
            continue
    return nodes, leases


def look_at_kinds(store: Store, shard: int, kinds: Iterable[str]) -> Iterator[str]:
    """Yield the faults that these kinds of a shard have at one moment."""
    keys = store.keys
    for kind in kinds:
        line, changed, version, waiting = atomic(
            store,
            [
                ("hget", keys.queue("kinds", shard), kind),
                ("zscore", keys.queue("changed", shard), kind),
                ("hget", keys.queue("meta", shard), "version"),
                ("zrange", keys.pending(kind, shard), 0, -1, False, True),
            ],
        )
        orders = {str(at): float(score) for at, (_, score) in enumerate(waiting)}
        lines = {} if line is None else {kind: readable(line)}
        versions = {} if changed is None else {kind: float(changed)}
        yield from audit_kinds(
            {kind: orders},
            lines,
            versions,
            int(version) if version and version.isdigit() and len(version) < 16 else 0,
        )


def look_at_slots(
    nodes: Mapping[tuple[int, str], Node], read: Callable[[], dict[str, str]], store: Store
) -> Iterator[str]:
    """Yield the nodes that run more than their slots.

    read: what runs in all shards; what is there twice counts.
    """
    before = read()
    now = {}
    for (p, name), node in nodes.items():
        record = store.read("hget", store.keys.partition(p, "nodes"), name)
        now[p, name] = Node.of(name, readable(record)) if record is not None else node
    after = read()
    yield from audit_slots(now, {id: text for id, text in before.items() if after.get(id) == text})


def kind_differs(
    kind: str,
    queues: Mapping[str, Mapping[str, float]],
    lines: Mapping[str, str],
    versions: Mapping[str, float],
    version: int,
) -> bool:
    """Return whether a kind is suspected."""
    one = {kind: queues.get(kind, {})}, {kind: lines[kind]} if kind in lines else {}
    its = {kind: versions[kind]} if kind in versions else {}
    return bool([*audit_kinds(*one, its, version)])


def look_at_versions(store: Store, shard: int) -> Iterator[str]:
    """Yield whether two kinds changed at the same version."""
    changed = store.read("zrange", store.keys.queue("changed", shard), 0, -1, False, True)
    if len({score for _, score in changed}) < len(changed):
        yield "two kinds changed at the same version"


def look_at_messages(store: Store, shard: int, silent: int) -> Iterator[str]:
    """Yield whether a shard has other messages than those of its tasks; silent: its tasks without
    one.
    """
    tasks, messages = atomic(
        store, [("hlen", store.keys.queue(name, shard)) for name in ("tasks", "messages")]
    )
    if messages != tasks - silent:
        yield f"there are {messages} messages, of {tasks - silent} tasks"

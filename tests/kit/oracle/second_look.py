"""The second look at what an audit suspects: one atomic read per suspicion.

The audit reads piece by piece while other processes write, so a suspicion may be a change between
two reads. Keys of one hash tag are read in one MULTI. Keys of two hash tags are read in three
steps: the first tag, the second tag, and the first tag again. A text that both reads of the first
tag show was there all the time, because no place and no attempt is written twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from parsync_redis.inspect.audit import (
    RARE_FIELDS,
    TASKS_PER_MULTI,
    RareFields,
    judge_slots,
    read_atomically,
)
from parsync_redis.model.ids import readable
from parsync_redis.model.node import Node
from parsync_redis.model.record import TaskLine, place_text, read_run
from parsync_redis.store.reads.tasks import GENERATIONS
from parsync_redis.store.store import Store

from .accounts import audit_accounts
from .kinds import audit_kinds
from .tasks import QueueState, audit_tasks

MOST_READS: Final = 20
"""Maximum number of reads of a task that changes its kind between two reads."""


def tasks_named_in(facts: Sequence[str], ids: Iterable[str]) -> list[str]:
    """Return the ids of the tasks that the sentences are about. An id may be any text."""
    by_word: dict[str, list[str]] = {}
    for id in ids:
        by_word.setdefault(id.split(" ")[0], []).append(id)
    is_named = {}
    for fact in facts:
        text = fact.removeprefix("task ")
        first_word = text.split(" ")[0]
        for id in by_word.get(first_word, ()) or by_word.get(first_word.rstrip(":"), ()):
            is_named[id] = text.startswith((f"{id} ", f"{id}:"))
    return [id for id, named in is_named.items() if named]


def recheck_tasks(
    store: Store,
    shard: int,
    ids: Sequence[str],
    queues: Mapping[str, Mapping[str, float]],
    submitted: int,
) -> Iterator[str]:
    """Yield the faults that tasks of a shard have at one moment.

    queues: kind -> the tasks that the audit saw wait as this kind.
    """
    waited: dict[str, set[str]] = {id: set() for id in ids}
    for kind, orders in queues.items():
        for id in waited.keys() & orders.keys():
            waited[id].add(kind)
    for start in range(0, len(ids), TASKS_PER_MULTI):
        chunk: Sequence[str] = ids[start : start + TASKS_PER_MULTI]
        for _ in range(MOST_READS):
            state, moved = _read(store, shard, chunk, waited, submitted)
            faults = [*audit_tasks(state)]
            faulty = tasks_named_in(faults, chunk)
            surely_faulty = {*faulty} - {*moved}
            yield from (fault for fault in faults if tasks_named_in([fault], surely_faulty))
            chunk = [id for id in faulty if id in moved]
            if not chunk:
                break


def _read(
    store: Store, shard: int, ids: Sequence[str], waited: Mapping[str, set[str]], submitted: int
) -> tuple[QueueState, list[str]]:
    """Return the tasks as they are at one moment, and the ids of tasks that may have moved.

    A task may have moved if its line has a kind that is not in `waited`; the kind is then added
    there.
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
            ("hmget", extra, list(RARE_FIELDS)),
            ("exists", extra),
            ("ttl", extra),
        ]
        commands += [("zscore", store.keys.pending(kind, shard), id) for kind in sorted(waited[id])]
    replies = iter(read_atomically(store, [*commands, ("hget", queue("meta"), "submitted")]))
    names = ("tasks", "taken", "running", *GENERATIONS, "later", "dead")
    entries_of: dict[str, dict[str, Any]] = {name: {} for name in names}
    silent = list[str]()
    extras = dict[str, RareFields]()
    queues = dict[str, dict[str, float]]()
    moved = list[str]()
    for id in ids:
        for name, entries in entries_of.items():
            if (value := next(replies)) is not None:
                entries[id] = float(value) if name in ("later", "dead") else readable(value)
        has_message, rare, exists, ttl = (next(replies) for _ in range(4))
        silent += [] if has_message or id not in entries_of["tasks"] else [id]
        if exists:
            fields = {
                name: readable(value)
                for name, value in zip(RARE_FIELDS, rare, strict=True)
                if value is not None
            }
            extras[id] = RareFields(fields, ttl >= 0)
        for kind in sorted(waited[id]):
            if (order := next(replies)) is not None:
                queues.setdefault(kind, {})[id] = float(order)
        kind = _kind(entries_of["tasks"].get(id, ""))
        if kind and kind not in waited[id]:
            waited[id].add(kind)
            moved.append(id)
    submitted_now = next(replies)
    nodes, leases = _places(store, shard, entries_of["running"])
    count = (
        int(submitted_now) if submitted_now is not None and submitted_now.isdigit() else submitted
    )
    tasks = entries_of["tasks"]
    ended = [entries_of[name] for name in GENERATIONS]
    state = QueueState(
        tasks,
        silent,
        len(tasks) - len(silent),
        entries_of["taken"],
        entries_of["running"],
        queues,
        entries_of["later"],
        entries_of["dead"],
        ended,
        extras,
        nodes,
        leases,
        count,
    )
    return state, moved


def _kind(line: str) -> str:
    """Return the kind in a task's line; '' if the line cannot be parsed."""
    try:
        return TaskLine.of(line).kind if line else ""
    except ValueError:
        return ""


def _places(
    store: Store, shard: int, running: Mapping[str, str]
) -> tuple[dict[str, Node], set[str]]:
    """Return the nodes of the runs, and the texts of the places that are sound.

    A place is sound if it has its lease, or if its run was over a moment later.
    """
    nodes: dict[str, Node] = {}
    sound: set[str] = set()
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
            sound.add(place_text(text))
        try:
            nodes[place.node] = Node.of(place.node, readable(record or b""))
        except ValueError:
            continue
    return nodes, sound


def recheck_kinds(store: Store, shard: int, kinds: Iterable[str]) -> Iterator[str]:
    """Yield the faults that kinds of a shard have at one moment."""
    keys = store.keys
    for kind in kinds:
        line, changed, version, waiting = read_atomically(
            store,
            [
                ("hget", keys.queue("kinds", shard), kind),
                ("zscore", keys.queue("changed", shard), kind),
                ("hget", keys.queue("meta", shard), "version"),
                ("zrange", keys.pending(kind, shard), 0, -1, False, True),
            ],
        )
        orders = {str(index): float(score) for index, (_, score) in enumerate(waiting)}
        lines = {} if line is None else {kind: readable(line)}
        versions = {} if changed is None else {kind: float(changed)}
        yield from audit_kinds(
            {kind: orders},
            lines,
            versions,
            int(version) if version and version.isdigit() and len(version) < 16 else 0,
        )


def recheck_slots(
    nodes: Mapping[tuple[int, str], Node], read: Callable[[], dict[str, str]], store: Store
) -> Iterator[str]:
    """Yield the nodes that run more tasks than they have slots.

    read: returns the runs of all shards by task. Only runs count that are the same in two reads.
    """
    before = read()
    nodes_now = {}
    for (partition, name), node in nodes.items():
        record = store.read("hget", store.keys.partition(partition, "nodes"), name)
        nodes_now[partition, name] = Node.of(name, readable(record)) if record is not None else node
    after = read()
    yield from judge_slots(
        nodes_now, {id: text for id, text in before.items() if after.get(id) == text}
    )


def is_suspect_kind(
    kind: str,
    queues: Mapping[str, Mapping[str, float]],
    lines: Mapping[str, str],
    versions: Mapping[str, float],
    version: int,
) -> bool:
    """Return whether the audit suspects a kind."""
    queue_of_kind = {kind: queues.get(kind, {})}
    line_of_kind = {kind: lines[kind]} if kind in lines else {}
    version_of_kind = {kind: versions[kind]} if kind in versions else {}
    return bool([*audit_kinds(queue_of_kind, line_of_kind, version_of_kind, version)])


def recheck_versions(store: Store, shard: int) -> Iterator[str]:
    """Yield a sentence if two kinds changed at the same version."""
    changed = store.read("zrange", store.keys.queue("changed", shard), 0, -1, False, True)
    if len({score for _, score in changed}) < len(changed):
        yield "two kinds changed at the same version"


def recheck_messages(store: Store, shard: int, silent: int) -> Iterator[str]:
    """Yield a sentence if a shard has more or fewer messages than tasks with a message.

    silent: the number of tasks without a message.
    """
    tasks, messages = read_atomically(
        store, [("hlen", store.keys.queue(name, shard)) for name in ("tasks", "messages")]
    )
    if messages != tasks - silent:
        yield f"there are {messages} messages, of {tasks - silent} tasks"


def audit_accounts_at_once(store: Store, shard: int, accounts: Sequence[str]) -> Iterator[str]:
    """Yield the faults of a shard's accounts, read at one moment. accounts: those with holders."""
    queue = partial(store.keys.queue, shard=shard)
    hashes = [("hgetall", queue(name)) for name in ("tasks", "taken", "running", "accounts")]
    prefix = store.keys.prefix("holders:", shard)
    zsets = [("zrange", prefix + account, 0, -1) for account in accounts]
    tasks, taken, running, lines, *holders = read_atomically(store, [*hashes, *zsets])
    texts = [
        {readable(name): readable(value) for name, value in values.items()}
        for values in (tasks, lines)
    ]
    held_ids = {readable(id) for id in (*taken, *running)}
    ids_by_account = {
        account: {readable(id) for id in ids}
        for account, ids in zip(accounts, holders, strict=True)
    }
    yield from audit_accounts(texts[0], held_ids, texts[1], ids_by_account)

"""The audit: check what must be true of a cluster's state after every script.

The audit reads key by key while other processes write. So a fault that it sees is a suspicion. The
audit reports the fault only if an atomic read shows the same fault (second_look.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from parsync_redis.inspect.audit import (
    KEYS_PER_ROUND_TRIP,
    RARE_FIELDS,
    RareFields,
    find_keys,
    judge_slots,
    leaked_keys,
    misplaced_tasks,
    read_atomically,
)
from parsync_redis.model.ids import readable
from parsync_redis.model.node import Lease, Node
from parsync_redis.model.used_share import UsedShare
from parsync_redis.store.reads.tasks import GENERATIONS
from parsync_redis.store.server.server_errors import translate
from parsync_redis.store.store import Store

from .kinds import audit_kinds
from .partitions import PartitionState, audit_partition, number
from .second_look import (
    audit_accounts_at_once,
    is_suspect_kind,
    recheck_kinds,
    recheck_messages,
    recheck_slots,
    recheck_tasks,
    recheck_versions,
    tasks_named_in,
)
from .tasks import QueueState, audit_tasks

KeyTable = Mapping[str, tuple[str, str]]
"""Every key of the cluster -> (family, name). Family: a shard 'q0', a partition 'p3', or ''."""


def audit(store: Store, say: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return a sentence for each fault of the state; [] if all is well.

    say: is called with a text about the progress. Raises ServerUnreachable.
    """
    try:
        store.config()  # tells the number of shards
        found_keys = find_keys(store)
        keys = found_keys.named
        numbers = sorted({int(family[1:]) for family, _ in keys.values() if family.startswith("p")})
        faults = [*leaked_keys(store, found_keys), *misplaced_tasks(store, found_keys)]
        faults += _used_shares(store)
        running = dict[str, str]()
        partitions = list[PartitionState]()
        for number in numbers:
            say(f"partition {number} of {len(numbers)}")
            partitions.append(_partition(store, number, keys, store.pipe))
            if audit_partition(partitions[-1]):
                reread = _partition(
                    store, number, find_keys(store).named, partial(read_atomically, store)
                )
                faults += audit_partition(reread)
        shards = sorted({int(family[1:]) for family, _ in keys.values() if family.startswith("q")})
        for shard in sorted({*shards, *range(store.keys.shards)}):
            say(f"shard {shard} of {max(store.keys.shards, *shards, 1)}")
            faults += _queue(store, shard, keys, partitions, running, say)
        nodes = {
            (partition.number, name): node
            for partition in partitions
            for name, node in partition.nodes.items()
        }
        if [*judge_slots(nodes, running)]:
            faults += recheck_slots(nodes, lambda: _running(store), store)
        return faults
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def _used_shares(store: Store) -> Iterator[str]:
    """Yield the faults of the used shares: their fields are tenants, their values parts of 1."""
    key = store.keys.shared("shares")
    for tenant, text in store.hash(key).items():
        noted = UsedShare.of(text)
        if noted is None:
            yield f"{key} {tenant} is not the used share of a tenant: {text!r}"
        elif noted.used > 1 or noted.share > 1:
            yield f"{key} {tenant} is more than all nodes: {text}"


def _running(store: Store) -> dict[str, str]:
    replies = store.pipe([("hgetall", key) for key in store.keys.queues("running")])
    return {readable(id): readable(text) for reply in replies for id, text in reply.items()}


def _pipelined(store: Store, command: str, calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """Yield the replies to one command with many argument rows, a chunk per round trip."""
    rows = list(calls)
    for start in range(0, len(rows), KEYS_PER_ROUND_TRIP):
        pipe: Any
        with store.client.pipeline(transaction=False) as pipe:
            for row in rows[start : start + KEYS_PER_ROUND_TRIP]:
                pipe.execute_command(command, *row)
            yield from pipe.execute()


def _queue(
    store: Store,
    shard: int,
    keys: KeyTable,
    partitions: Iterable[PartitionState],
    running: dict[str, str],
    say: Callable[[str], object],
) -> Iterator[str]:
    """Yield the faults of the tasks and kinds of a shard.

    running: task -> its run; the function adds the runs of this shard.
    """
    client: Any = store.client

    def queue(name: str) -> str:
        return store.keys.queue(name, shard)

    def scores(key: str) -> dict[str, float]:
        return {
            readable(id): score for id, score in client.zscan_iter(key, count=KEYS_PER_ROUND_TRIP)
        }

    def texts(name: str) -> dict[str, str]:
        return {
            readable(k): readable(v)
            for k, v in client.hscan_iter(queue(name), count=KEYS_PER_ROUND_TRIP)
        }

    names = [name for family, name in keys.values() if family == f"q{shard}"]
    queues = {
        kind: scores(store.keys.pending(kind, shard)) for kind in _names_after(names, "pending:")
    }
    counters = client.hmget(queue("meta"), "submitted", "version")
    submitted, version = (number(readable(counter or b"")) for counter in counters)
    lines = texts("kinds")
    changed = scores(queue("changed"))
    if [*audit_kinds(queues, lines, changed, version)]:
        suspects = [
            kind
            for kind in {**queues, **lines}
            if is_suspect_kind(kind, queues, lines, changed, version)
        ]
        yield from recheck_kinds(store, shard, suspects)
        yield from recheck_versions(store, shard)
    tasks = texts("tasks")
    running_here = texts("running")
    running |= running_here
    have_message = _pipelined(store, "HEXISTS", ((queue("messages"), id) for id in tasks))
    silent = [id for id, has_message in zip(tasks, have_message, strict=True) if not has_message]
    leases = [lease for partition in partitions for lease in partition.leases.values()]
    nodes: dict[str, Node] = {}
    for partition in partitions:
        nodes |= partition.nodes
    state = QueueState(
        tasks,
        silent,
        messages=client.hlen(queue("messages")),
        taken=texts("taken"),
        running=running_here,
        queues=queues,
        later=scores(queue("later")),
        dead=scores(queue("dead")),
        ended=[texts(name) for name in GENERATIONS],
        extras=_rare_fields(store, shard, _names_after(names, "extra:")),
        nodes=nodes,
        leases={lease.place.text for lease in leases},
        submitted=submitted,
    )
    indexes = (
        state.taken,
        running_here,
        *queues.values(),
        state.later,
        state.dead,
        state.extras,
        *state.ended,
    )
    suspects = tasks_named_in([*audit_tasks(state)], {*tasks}.union(*indexes))
    say(f"shard {shard}: {len(tasks)} tasks were read, {len(suspects)} are looked at again")
    faults = [*recheck_tasks(store, shard, suspects, queues, submitted)]
    yield from faults
    without_message = sum(fault.endswith(" has no message") for fault in faults)
    yield from recheck_messages(store, shard, without_message)
    yield from audit_accounts_at_once(store, shard, _names_after(names, "holders:"))


def _names_after(names: Iterable[str], prefix: str) -> list[str]:
    """Return the names that begin with the prefix, without the prefix."""
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _rare_fields(store: Store, shard: int, ids: Sequence[str]) -> dict[str, RareFields]:
    """Return the rare fields of tasks by id."""
    prefix = store.keys.prefix("extra:", shard)
    rows = _pipelined(store, "HMGET", ((prefix + id, *RARE_FIELDS) for id in ids))
    ttls = _pipelined(store, "TTL", ((prefix + id,) for id in ids))
    rare = {}
    for id, row, ttl in zip(ids, rows, ttls, strict=True):
        fields = {
            name: readable(value)
            for name, value in zip(RARE_FIELDS, row, strict=True)
            if value is not None
        }
        rare[id] = RareFields(fields, ttl >= 0)
    return rare


def _partition(
    store: Store,
    number: int,
    keys: KeyTable,
    read: Callable[[Sequence[tuple[Any, ...]]], list[Any]],
) -> PartitionState:
    """Return the records of a partition. read: runs plain commands and returns the replies."""
    names_in_partition = [name for family, name in keys.values() if family == f"p{number}"]
    nodes_with_inbox = sorted(_names_after(names_in_partition, "inbox:"))

    def key(kind: str) -> str:
        return store.keys.partition(number, kind)

    hashes = ("nodes", "slots", "meta", "left", "alive", "notes")
    commands: list[tuple[Any, ...]] = [("hgetall", key(kind)) for kind in hashes]
    commands += [
        ("zrange", key("changed"), 0, -1, False, True),
        ("smembers", key("lost")),
        ("get", key("free")),
    ]
    of_records = len(commands)
    commands += [("exists", store.keys.inbox(number, name)) for name in nodes_with_inbox]
    replies = read(commands)
    *tables, changed, lost, free = replies[:of_records]
    texts = [{_text(k): _text(v) for k, v in table.items()} for table in tables]
    lines, seats, meta, free_amounts, alive, notes = texts
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
    have_inbox = zip(nodes_with_inbox, replies[of_records:], strict=True)
    return PartitionState(
        number,
        meta,
        nodes,
        leases,
        bits=free or b"",
        free_amounts=free_amounts,
        changed={_text(name): float(version) for name, version in changed},
        alive=alive,
        notes=notes,
        lost={readable(name) for name in lost},
        inboxes={name for name, exists in have_inbox if exists},
        bad=bad,
    )


def _text(value: bytes) -> str:
    return value.decode(errors="replace")

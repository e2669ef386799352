"""The audit behind `parsync doctor --audit`.

The scripts that look judge each shard and each partition, as the leader's search for damage does. A
script sees the keys of one hash tag, and knows only ids that an index lists. This module checks
what no script can see: which keys there are, tasks in a wrong shard, rare fields, inboxes of no
node, and whether runs and leases agree.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import redis
from redis.exceptions import RedisError

from ..errors import DamagedState
from ..model.ids import readable
from ..model.limits import MAX_BATCH
from ..model.node import Node
from ..model.record import place_text, read_run
from ..store.reads.tasks import GENERATIONS
from ..store.reads.views import partitions_of
from ..store.repair.repair_all import repair_all
from ..store.server.server_errors import is_damage, translate
from ..store.store import Store
from ..wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS

KEYS_PER_ROUND_TRIP: Final = 500

TASKS_PER_MULTI: Final = 200
"""Maximum number of tasks in one MULTI: other clients wait for the server meanwhile."""

RARE_FIELDS: Final = ("cancel", "next", "run", "ended_ms")


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """The keys of a cluster, as a scan found them.

    named: key -> (family, name); the family is a shard 'q0', a partition 'p3', or ''. kinds:
    shard -> kinds with a queue, as the keys have them. accounts: shard -> accounts with holders.
    extras: shard -> tasks with rare fields.
    inboxes: partition -> its nodes with an inbox.
    """

    named: dict[str, tuple[str, str]] = field(default_factory=dict)
    kinds: dict[int, list[bytes]] = field(default_factory=dict)
    accounts: dict[int, list[bytes]] = field(default_factory=dict)
    extras: dict[int, list[str]] = field(default_factory=dict)
    inboxes: dict[int, list[str]] = field(default_factory=dict)

    def numbers(self, family: str) -> set[int]:
        """Return the numbers of the shards ('q') or partitions ('p') that have keys."""
        return {int(name[1:]) for name, _ in self.named.values() if name.startswith(family)}


def audit(store: Store, say: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return a sentence for each fault of the state; [] if all is well.

    Each fault was there at one moment. say: is called with a text about the progress. Raises
    ServerUnreachable, and AccessDenied for a login that may not run the scripts that look.
    """
    try:
        partitions = partitions_of(store.config())  # tells the number of shards, too
        keys = find_keys(store)
        looked_at = {*range(partitions), *keys.numbers("p")}
        findings = repair_all(
            store,
            dry=True,
            partitions=looked_at,
            kinds=keys.kinds,
            accounts=keys.accounts,
            messages=False,
            say=say,
        )
        faults = [f"{finding.where}: {finding.flaw}" for finding in findings]
        checks: list[Callable[[], Iterable[str]]] = [
            partial(leaked_keys, store, keys),
            partial(_strange_inboxes, store, keys),
            partial(misplaced_tasks, store, keys),
            partial(_rare_fields, store, keys),
            partial(_unleased_runs, store),
            partial(_crowded_nodes, store, looked_at),
        ]
        for check in checks:
            faults += _faults_of(check)
        return list(dict.fromkeys(faults))
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def _faults_of(check: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Yield the faults that a check finds, and the damaged key that ends the check."""
    try:
        yield from check()
    except (DamagedState, RedisError) as error:
        if not isinstance(error, DamagedState) and not is_damage(error):
            raise
        yield f"not everything can be looked at: {error}"


# -- the keys --------------------------------------------------------------------------------------


def find_keys(store: Store) -> FoundKeys:
    """Scan the servers for the keys of the cluster.

    Raises ServerUnreachable, and AccessDenied for a login that may not scan.
    """
    head = store.keys.tick.partition("}:tick")[0]
    form = re.compile(re.escape(head) + r"(?::([qp]\d+))?\}:(.*)", re.DOTALL)
    keys = FoundKeys()
    tables = {"extra:": keys.extras, "inbox:": keys.inboxes}
    for raw_key in _scan(store, head + "*"):
        key = readable(raw_key)
        match = form.fullmatch(key)
        if match is None:
            continue
        family = match[1] or ""
        keys.named[key] = (family, match[2])
        for prefix, names in (("pending:", keys.kinds), ("holders:", keys.accounts)):
            if family and match[2].startswith(prefix):
                name = raw_key.partition(f"}}:{prefix}".encode())[2]
                names.setdefault(int(family[1:]), []).append(name)
        for prefix, table in tables.items():
            if family and match[2].startswith(prefix):
                table.setdefault(int(family[1:]), []).append(match[2].removeprefix(prefix))
    return keys


def _scan(store: Store, pattern: str) -> Iterator[bytes]:
    """Yield the names of the keys that match a pattern. Raises what find_keys raises."""
    client: Any = store.client
    try:
        yield from client.scan_iter(match=pattern, count=KEYS_PER_ROUND_TRIP)
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def leaked_keys(store: Store, keys: FoundKeys) -> Iterator[str]:
    """Yield the keys without expiry that are no part of the cluster's structure.

    Keys of tasks, kinds and nodes are checked elsewhere.
    """
    structure = {"": CLUSTER_KINDS, "q": QUEUE_KINDS, "p": PARTITION_KINDS}
    owned_prefixes = {"": (), "q": ("extra:", "holders:", "pending:"), "p": ("inbox:",)}
    strange = [
        key
        for key, (family, name) in keys.named.items()
        if name not in structure[family[:1]] and not name.startswith(owned_prefixes[family[:1]])
    ]
    for key, ttl in zip(strange, store.pipe([("ttl", key) for key in strange]), strict=True):
        if ttl == -1:
            yield f"key {key} is leaked: it is of no known kind and never expires"


def _strange_inboxes(store: Store, keys: FoundKeys) -> Iterator[str]:
    """Yield the inboxes of nodes that are not registered."""
    for number, names in sorted(keys.inboxes.items()):
        replies = read_atomically(
            store,
            [
                ("hmget", store.keys.partition(number, "nodes"), names),
                *(("exists", store.keys.inbox(number, name)) for name in names),
            ],
        )
        for name, record, exists in zip(names, replies[0], replies[1:], strict=True):
            if exists and record is None:
                yield f"p{number}: there is an inbox of {name}, which is no node"


# -- the tasks -------------------------------------------------------------------------------------


def misplaced_tasks(store: Store, keys: FoundKeys) -> Iterator[str]:
    """Yield the tasks that are in a shard other than their own."""
    shards = {*keys.numbers("q"), *range(store.keys.shards)}
    if shards == {0}:
        return
    for shard in sorted(shards):
        prefix = store.keys.prefix(shard=shard)
        client: Any = store.client
        lines = client.hscan_iter(prefix + "tasks", count=KEYS_PER_ROUND_TRIP)
        ids = [readable(id) for id, _ in lines]
        misplaced = [id for id in ids if store.keys.shard_of(id) != shard]
        for start in range(0, len(misplaced), MAX_BATCH):
            chunk = misplaced[start : start + MAX_BATCH]
            commands: list[tuple[Any, ...]] = [
                ("hmget", prefix + "taken", chunk),
                ("hmget", prefix + "running", chunk),
                ("zmscore", prefix + "dead", chunk),
            ]
            for id, *entries in zip(chunk, *store.pipe(commands), strict=True):
                yield _misplaced(store, shard, id, any(entry is not None for entry in entries))


def _misplaced(store: Store, shard: int, id: str, busy: bool) -> str:
    """Say that a task is in a wrong shard, and how to repair that.

    busy: the task is taken, running or dead in the wrong shard.
    """
    keys = store.keys
    right_shard = f"of {keys.shards} shards its is q{keys.shard_of(id)}"
    fault = f"task {id} is in shard q{shard}, where nobody looks for it: {right_shard}"
    if busy:
        return (
            f"{fault}; it is taken, running or dead there: do not submit it again while it may run"
        )
    if shard < keys.shards:
        clean_up = (
            f"redis-cli HDEL '{keys.queue('tasks', shard)}' {id}, and the same of "
            f"'{keys.queue('messages', shard)}'"
        )
    else:
        clean_up = f"delete the keys of q{shard}, which no process uses"
    return f"{fault}; submit it again (the same id is safe), then {clean_up}"


@dataclass(frozen=True, slots=True)
class RareFields:
    """The rare fields of a task that the audit reads, and whether the fields expire."""

    fields: Mapping[str, str]
    expires: bool


def judge_rare_fields(
    id: str, rare: RareFields, has_ended: bool, marked: str, is_running: bool, is_dead: bool
) -> Iterator[str]:
    """Check that the line of a task with rare fields has the mark '+'.

    No rare field of a run may outlive the run. marked: the text that begins with the mark, of the
    task's line or of its record as an ended task.
    """
    if not marked.startswith("+"):
        yield f"task {id} has rare fields of which its line does not tell"
    if rare.expires != has_ended:
        yield f"task {id} has {'not ' if rare.expires else ''}ended, but its rare fields " + (
            "expire" if rare.expires else "never expire"
        )
    fields_of_run = [] if is_running else ["cancel"]
    if not is_running and (has_ended or not _is_published_elsewhere(rare.fields)):
        fields_of_run.append("next")
    fields_of_run += [] if is_dead else ["run", "ended_ms"]
    if outlived := [name for name in fields_of_run if name in rare.fields]:
        yield f"task {id} keeps {', '.join(outlived)} of a run that is over"


def _is_published_elsewhere(fields: Mapping[str, str]) -> bool:
    """Return whether the successor was published by another program than the run.

    Such a successor outlives the run.
    """
    options = "".join(fields.get("next", "").split(" ")[2:3])
    return any(word.startswith("pub=") for word in options.split(","))


def _rare_fields(store: Store, keys: FoundKeys) -> Iterator[str]:
    """Yield the faults of rare fields."""
    for shard, ids in sorted(keys.extras.items()):
        for start in range(0, len(ids), TASKS_PER_MULTI):
            yield from _rare_fields_of(store, shard, ids[start : start + TASKS_PER_MULTI])


def _rare_fields_of(store: Store, shard: int, ids: Sequence[str]) -> Iterator[str]:
    """Yield the faults that rare fields of tasks have at one moment."""

    def queue(kind: str) -> str:
        return store.keys.queue(kind, shard)

    prefix = store.keys.prefix("extra:", shard)
    commands: list[Sequence[Any]] = [
        ("hmget", queue(kind), ids) for kind in ("tasks", "running", *GENERATIONS)
    ]
    commands.append(("zmscore", queue("dead"), ids))
    indexes = len(commands)
    for id in ids:
        commands += [("hmget", prefix + id, list(RARE_FIELDS)), ("ttl", prefix + id)]
    replies = read_atomically(store, commands)
    lines, runs, *ends, dead = replies[:indexes]
    for row, id in enumerate(ids):
        values, ttl = replies[indexes + 2 * row : indexes + 2 * row + 2]
        if ttl == -2:  # deleted since the scan
            continue
        fields = {
            name: readable(value)
            for name, value in zip(RARE_FIELDS, values, strict=True)
            if value is not None
        }
        end = next((readable(texts[row]) for texts in ends if texts[row] is not None), "")
        marked = readable(lines[row] or b"") or end.partition("\n")[2] or "+"
        yield from judge_rare_fields(
            id,
            RareFields(fields, ttl >= 0),
            lines[row] is None,
            marked,
            runs[row] is not None,
            dead[row] is not None,
        )


# -- runs and leases -------------------------------------------------------------------------------


def _runs(store: Store) -> dict[str, str]:
    """Return the entries of `running` of all shards: task -> its run."""
    client: Any = store.client
    return {
        readable(id): readable(text)
        for key in store.keys.queues("running")
        for id, text in client.hscan_iter(key, count=KEYS_PER_ROUND_TRIP)
    }


def _unleased_runs(store: Store) -> Iterator[str]:
    """Yield the runs at places without their lease.

    A lease is there before its run and until after it. So the run is read before the lease and
    after the lease. No place is written twice, so a run that both reads show was there meanwhile.
    """
    places = [place for text in _runs(store).values() if (place := read_run(text)[0])]
    for start in range(0, len(places), MAX_BATCH):
        chunk = places[start : start + MAX_BATCH]
        partition = store.keys.partition
        leases = store.pipe([("hmget", partition(p.partition, "slots"), [p.seat]) for p in chunk])
        suspects = [
            place
            for place, (lease,) in zip(chunk, leases, strict=True)
            if lease != place.text.encode()
        ]
        commands = [
            command
            for place in suspects
            for command in (
                ("hmget", partition(place.partition, "nodes"), [place.node]),
                ("hmget", store.keys.in_shard_of("running", place.task), [place.task]),
            )
        ]
        replies = iter(store.pipe(commands))
        for place, (record,), (text,) in zip(suspects, replies, replies, strict=True):
            run = readable(text or b"")
            if record is not None and place_text(run) == place.text:
                yield f"task {place.task} has no lease at its place: {run!r:.200}"


def _crowded_nodes(store: Store, partitions: Iterable[int]) -> Iterator[str]:
    """Yield the nodes that run more tasks than they have slots."""

    def nodes() -> dict[tuple[int, str], Node]:
        return {(p, name): node for p in partitions for name, node in store.nodes(p).items()}

    before = _runs(store)
    if [*judge_slots(nodes(), before)]:
        nodes_now = nodes()
        after = _runs(store)
        in_both_reads = {id: text for id, text in before.items() if after.get(id) == text}
        yield from judge_slots(nodes_now, in_both_reads)


def judge_slots(nodes: Mapping[tuple[int, str], Node], running: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each node that runs more tasks than it has slots.

    nodes: (partition, name) -> node. running: task -> its run, in all shards. Runs of an earlier
    incarnation do not count: the node may have had more slots. Slots behind those that the node
    offers do not count either: its pool shrank while a task ran there. But a task of one slot on a
    node with waiting seats always counts: it may have begun at a waiting seat.
    """
    used: Counter[tuple[int, str]] = Counter()
    for id, text in running.items():
        place, started_ms = read_run(text)
        if place is None or started_ms is None or place.task != id:
            continue
        node = nodes.get((place.partition, place.node))
        if node is not None and place.inc == node.inc:
            offered = sum(slot < node.offer.slots for slot in place.slots)
            may_be_at_seat = node.has_waiting_seats and len(place.slots) == 1
            used[place.partition, place.node] += 1 if may_be_at_seat else offered
    for (partition, name), slots in used.items():
        slot_count = nodes[partition, name].offer.slots
        if slots > slot_count:
            yield f"node {name} has {slot_count} slots, but {slots} run tasks"


def read_atomically(store: Store, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Run plain commands on keys of one hash tag in one MULTI, and return the replies.

    The commands have the form of `Store.pipe`.
    """
    pipe: Any
    with redis.Redis(connection_pool=store.pool_of(commands[0][1])).pipeline(
        transaction=True
    ) as pipe:
        for command, *args in commands:
            getattr(pipe, command)(*args)
        return list(pipe.execute())

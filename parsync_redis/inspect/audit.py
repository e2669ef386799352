"""The audit: check what must be true of a cluster's state after every script.

It reads key by key, in chunks, with plain commands. So its facts are of one moment only if nothing writes meanwhile; on
a busy cluster a fact counts if two audits in a row name it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from ..model.ids import readable
from ..model.node import Lease, Node
from ..store.server_errors import translate
from ..store.store import Store
from ..store.tasks import GENERATIONS
from ..wire.keys import CLUSTER_KINDS, PARTITION_KINDS, QUEUE_KINDS
from .kind_audit import audit_kinds
from .partition_audit import PartitionState, audit_partition, number
from .task_audit import Extra, QueueState, audit_tasks

CHUNK: Final = 500
_RARE: Final = ("cancel", "next", "run", "ended_ms")

Found = Mapping[str, tuple[str, str]]
"""Every key of the cluster -> its family ('q0', 'p3', '' for the whole cluster) and the rest of its name."""


def audit(store: Store) -> list[str]:
    """Return a sentence for each fault of the state; [] if all is well. Raises ServerUnreachable."""
    try:
        keys = _keys(store)
        numbers = sorted({int(family[1:]) for family, _ in keys.values() if family.startswith("p")})
        partitions = [_partition(store, number, keys) for number in numbers]
        found = [*_leaks(store, keys), *_queue(store, keys, partitions)]
        for partition in partitions:
            found += audit_partition(partition)
        return found
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None


def _keys(store: Store) -> Found:
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


def _leaks(store: Store, keys: Found) -> Iterator[str]:
    """Check that only keys of the cluster's structure never expire; others look at those of tasks, kinds and nodes."""
    structure, others = {"": CLUSTER_KINDS, "q0": QUEUE_KINDS}, {"q0": ("extra:", "pending:")}
    ttls = _pipelined(store, "TTL", ((key,) for key in keys))
    for (key, (family, rest)), ttl in zip(keys.items(), ttls, strict=True):
        known = rest.startswith(others.get(family, ("inbox:",))) or rest in structure.get(family, PARTITION_KINDS)
        if not known and ttl == -1:
            yield f"key {key} is leaked: it is of no known kind and never expires"


def _queue(store: Store, keys: Found, partitions: Iterable[PartitionState]) -> Iterator[str]:
    """Check the tasks and the kinds."""
    client: Any = store.client

    def scores(key: str) -> dict[str, float]:
        return {readable(id): score for id, score in client.zscan_iter(key, count=CHUNK)}

    def texts(name: str) -> dict[str, str]:
        return {readable(k): readable(v) for k, v in client.hscan_iter(store.keys.queue(name), count=CHUNK)}

    mine = [rest for family, rest in keys.values() if family == "q0"]
    queues = {kind: scores(store.keys.pending(kind)) for kind in _rest(mine, "pending:")}
    submitted, version = (
        number(readable(v or b"")) for v in client.hmget(store.keys.queue("meta"), "submitted", "version")
    )
    yield from audit_kinds(queues, texts("kinds"), scores(store.keys.queue("changed")), version)
    tasks = texts("tasks")
    have = _pipelined(store, "HEXISTS", ((store.keys.queue("messages"), id) for id in tasks))
    yield from audit_tasks(
        QueueState(
            tasks,
            [id for id, there in zip(tasks, have, strict=True) if not there],
            client.hlen(store.keys.queue("messages")),
            texts("taken"),
            texts("running"),
            queues,
            scores(store.keys.queue("later")),
            scores(store.keys.queue("dead")),
            [texts(name) for name in GENERATIONS],
            _extras(store, _rest(mine, "extra:")),
            {name for state in partitions for name in state.nodes},
            {lease.place.text for state in partitions for lease in state.leases.values()},
            submitted,
        )
    )


def _rest(names: Iterable[str], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _extras(store: Store, ids: Sequence[str]) -> dict[str, Extra]:
    rows = _pipelined(store, "HMGET", ((store.keys.extra(id), *_RARE) for id in ids))
    ttls = _pipelined(store, "TTL", ((store.keys.extra(id),) for id in ids))
    found = {}
    for id, row, ttl in zip(ids, rows, ttls, strict=True):
        fields = {name: readable(value) for name, value in zip(_RARE, row, strict=True) if value is not None}
        found[id] = Extra(fields, ttl >= 0)
    return found


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

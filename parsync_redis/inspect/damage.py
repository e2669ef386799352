"""Find damage by a few reads, for `parsync doctor`: keys of another type, bad numbers, and counts
that differ.
"""

from collections.abc import Iterator
from typing import Any, Final

from ..model.ids import readable
from ..model.kind import KindLine
from ..store.store import Store
from ..wire.keys import CLUSTER_KINDS, NUMBERS, PARTITION_KINDS, QUEUE_KINDS
from .server_checks import Check

TIMES: Final = 5
"""So often in a row a difference is seen before it counts."""


def check_damage(store: Store, partitions: int) -> Check:
    """Return whether damage shows; what this login may not read is left out."""
    found = [*_types(store, partitions), *_counts(store)]
    if found:
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        return Check(
            "damage",
            "fail",
            "; ".join(found[:5]) + more,
            "a leader repairs it within two leases; or parsync doctor repair",
        )
    return Check("damage", "ok", "types, numbers and counts of the keys are as they must be")


def _types(store: Store, partitions: int) -> Iterator[str]:
    keys = store.keys
    metas = [*keys.queues("meta"), *(keys.partition(p, "meta") for p in range(partitions))]
    named = [key for kind in QUEUE_KINDS for key in keys.queues(kind)]
    named += [keys.partition(p, kind) for p in range(partitions) for kind in PARTITION_KINDS]
    named += [keys.shared(kind) for kind in CLUSTER_KINDS]
    for key, kind in zip(named, store.pipe_each([("type", key) for key in named]), strict=True):
        if not isinstance(kind, Exception) and (wrong := keys.wrong_type(key, readable(kind))):
            yield wrong
    fields = NUMBERS["meta"]
    for key, values in zip(
        metas, store.pipe_each([("hmget", key, fields) for key in metas]), strict=True
    ):
        for name, value in zip(fields, values if isinstance(values, list) else (), strict=False):
            if value is not None and not (value.isdigit() and len(value) < 16):
                yield f"{key} has at {name} {readable(value)!r:.50}, which is no number"


def _counts(store: Store) -> Iterator[str]:
    """Compare how many tasks a shard has with how many its indexes list.

    The reads are not of one moment, so a difference counts only if it is seen again and again.
    """
    for shard in range(store.keys.shards):
        for _ in range(TIMES):
            if not (wrong := _difference(store, shard)):
                break
        else:
            yield wrong


def _difference(store: Store, shard: int) -> str:
    reads = (
        ("hlen", "tasks"),
        ("hlen", "taken"),
        ("hlen", "running"),
        ("zcard", "later"),
        ("zcard", "dead"),
    )
    commands: list[tuple[Any, ...]] = [
        (command, store.keys.queue(kind, shard)) for command, kind in reads
    ]
    replies = store.pipe_each([*commands, ("hgetall", store.keys.queue("kinds", shard))])
    if any(isinstance(reply, Exception) for reply in replies):
        return ""
    tasks, *others, lines = replies
    listed = sum(others) + sum(_waiting(readable(line)) for line in lines.values())
    return (
        f"shard q{shard} has {tasks} tasks, and its indexes list {listed}"
        if tasks != listed
        else ""
    )


def _waiting(line: str) -> int:
    try:
        return KindLine.of(line).count
    except ValueError:
        return 0

"""Damage that a few reads show, for `parsync doctor`.

Damage is a key of a wrong type, a field that is no number, or a count that differs.
"""

from collections.abc import Iterator
from typing import Any, Final

from ..model.ids import readable
from ..model.kind import KindLine
from ..store.store import Store
from ..wire.keys import CLUSTER_KINDS, NUMBERS, PARTITION_KINDS, QUEUE_KINDS
from .server_checks import Check

READS_TO_CONFIRM: Final = 5
"""A difference counts if so many reads in a row show a difference."""


def check_damage(store: Store, partitions: int) -> Check:
    """Return whether the keys show damage. Keys that this login may not read are left out."""
    faults = [*_types(store, partitions), *_counts(store)]
    if faults:
        further_faults = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        return Check(
            "damage",
            "fail",
            "; ".join(faults[:5]) + further_faults,
            "a leader repairs it within two leases; or parsync doctor repair",
        )
    return Check("damage", "ok", "types, numbers and counts of the keys are as they must be")


def _types(store: Store, partitions: int) -> Iterator[str]:
    """Yield a sentence for each key of a wrong type and each field that is no number."""
    keys = store.keys
    metas = [*keys.queues("meta"), *(keys.partition(p, "meta") for p in range(partitions))]
    named = [key for kind in QUEUE_KINDS for key in keys.queues(kind)]
    named += [keys.partition(p, kind) for p in range(partitions) for kind in PARTITION_KINDS]
    named += [keys.shared(kind) for kind in CLUSTER_KINDS]
    for key, kind in zip(named, store.pipe_each([("type", key) for key in named]), strict=True):
        if not isinstance(kind, Exception) and (fault := keys.wrong_type(key, readable(kind))):
            yield fault
    fields = NUMBERS["meta"]
    for key, values in zip(
        metas, store.pipe_each([("hmget", key, fields) for key in metas]), strict=True
    ):
        for name, value in zip(fields, values if isinstance(values, list) else (), strict=False):
            if value is not None and not (value.isdigit() and len(value) < 16):
                yield f"{key} has at {name} {readable(value)!r:.50}, which is no number"


def _counts(store: Store) -> Iterator[str]:
    """Yield each shard whose number of tasks differs from what its indexes list.

    Tasks and indexes are read one after the other. So a single difference may be a change between
    two reads.
    """
    for shard in range(store.keys.shards):
        for _ in range(READS_TO_CONFIRM):
            if not (difference := _difference(store, shard)):
                break
        else:
            yield difference


def _difference(store: Store, shard: int) -> str:
    """Compare how many tasks a shard has with its indexes; "" if equal or not readable."""
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
    tasks, *counts, lines = replies
    listed = sum(counts) + sum(_waiting(readable(line)) for line in lines.values())
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

"""Repair keys of another type, partitions with damaged values, and tasks with wrong indexes.

The scripts repair; the values that they remove are put into quarantine. Every function raises what
`Runner.run` raises.
"""

import re
from collections.abc import Sequence
from typing import Final

from ...model.ids import readable
from ...wire.keys import CLUSTER_KINDS, QUEUE_KINDS, Keys
from ..runner import Runner
from ..scripts.calls.repair import Damage, How
from .quarantine import quarantine

COMES_BACK: Final[Sequence[str]] = (
    "kinds",
    "changed",
    "later",
    "feasible",
    "choices",
    "choices_1",
    "shapes",
    "names",
    "apps",
    "accounts",
    "policy",
    "outbox",
    "schedulers",
    "leader",
    "dealt",
    "expires",
    "dead",
    "ended",
    "ended_1",
    "ended_2",
    "quarantine",
    "losses",
    "times",
    "bookings",
    "streaks",
    "shares",
    "events",
)
"""Keys that may be deleted if they are damaged.

Their content comes back with answers, registrations and renewals, or the leader makes it anew from
other keys (repair_all.py). Records of ended tasks, and keys that only people read, are lost.
"""

_WRONG_TYPE: Final = re.compile("PSRECORD (.+) is a [a-z]+, not a (?:zset|hash)")


def repair_partition(runner: Runner, number: int, how: How = "open") -> int:
    """Remove unreadable values from a partition, and put them into quarantine; return their number.

    how: see `RepairCalls.repair_partition`; only the leader, who puts back lost leases first, may
    "open".
    """
    damaged = runner.run(runner.commands.repair_partition(number, how))
    keep(runner, damaged)
    return len(damaged)


def keep(runner: Runner, damaged: Sequence[Damage]) -> None:
    """Put the values that a script has repaired into quarantine."""
    for key, field, data in damaged:
        why = "no script writes this value; it was repaired" if field else _words_of(data)
        quarantine(runner, f"{key} {field}".rstrip(), why, data)


def repair_keys(runner: Runner, keys: Sequence[str]) -> bool:
    """Repair the corrupt keys of one call. Returns True if a key changed.

    A partition is made anew from its readable values. A key of another type is deleted if its
    content comes back by itself, or if it belongs to one kind, one task or one inbox only.
    """
    number = runner.keys.number_of(keys[0])
    if number is not None and repair_partition(runner, number, "shut"):
        return True
    inbox = runner.keys.inbox(number or 0, "")
    kinds: dict[str, str] = {key: "inbox" for key in keys if key.startswith(inbox)}
    shard = runner.keys.shard_in(keys[0]) or 0
    kinds |= {runner.keys.queue(name, shard): name for name in COMES_BACK if name in QUEUE_KINDS}
    kinds |= {runner.keys.shared(name): name for name in COMES_BACK if name in CLUSTER_KINDS}
    kinds |= {runner.keys.partition(number, "events"): "events"} if number is not None else {}
    kinds |= {key: "stats" for key in keys if key.startswith(runner.keys.stats(""))}
    for name in ("extra", "pending"):
        prefix = runner.keys.prefix(f"{name}:", shard)
        kinds |= {key: name for key in keys if key.startswith(prefix) and key != prefix}
    discardable = [key for key in keys if key in kinds]
    discarded = runner.run_all([runner.commands.discard(key, kinds[key]) for key in discardable])
    deleted = [key for key, is_gone in zip(discardable, discarded, strict=True) if is_gone]
    for key in deleted:
        quarantine(
            runner, key, "it was of another type or had unreadable numbers, and was deleted", b""
        )
    return bool(deleted)


def find_named_key(keys: Keys, message: str) -> list[str]:
    """Return the key that an error reply names, if it belongs to a kind or a task.

    message: the error reply. Returns a list of at most one key. A call has only the prefix of such
    keys.
    """
    match = _WRONG_TYPE.search(message)
    if match is None:
        return []
    key = match[1]
    shard = keys.shard_in(key)
    if shard is None:
        return []
    prefixes = (keys.prefix("pending:", shard), keys.prefix("extra:", shard))
    return [key] if key.startswith(prefixes) else []


def repair_task(
    runner: Runner,
    task: str | bytes,
    kind: str | bytes = "",
    shard: int | None = None,
    run: str = "",
) -> str:
    """Repair a task whose hashes and indexes contradict each other; return the script's word.

    No script causes such a contradiction. kind: the kind of which the task was seen to wait, which
    may differ from its own. shard: where the task was seen, if that is not the shard of its id.
    run: what `running` should have for the task, by a lease.
    """
    word = runner.run(runner.commands.repair_task(task, "its record is damaged", kind, shard, run))
    if word != "sound":
        id = task if isinstance(task, str) else readable(task)
        key = runner.keys.queue("tasks", runner.keys.shard_of(id) if shard is None else shard)
        why = f"its indexes said something else: it is {word} now"
        quarantine(runner, f"{key} {id}", why, b"")
    return word


def _words_of(data: bytes) -> str:
    """Return the words of an error reply, without its code."""
    return data.decode(errors="backslashreplace").removeprefix("PSRECORD ")

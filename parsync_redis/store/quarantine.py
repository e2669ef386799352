"""The quarantine: what was damaged or foreign where a process read the state, kept for people to look at.

Each entry is a member of one sorted set, scored by when it was last met: 'WHO WHERE SIZE WHY', a line break, and the
first bytes. Whoever meets damage goes on without it: it is put here, and what can be repaired is repaired by a script.
"""

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..wire.keys import CLUSTER_KINDS, QUEUE_KINDS
from .server_errors import translate
from .store import Store

log = logging.getLogger("parsync.quarantine")

MOST: Final = 1000
"""Entries that are kept; the oldest leave."""

MOST_BYTES: Final = 2048
"""Bytes that are kept of one thing; its whole size is said."""

COMES_BACK: Final[Sequence[str]] = (
    "feasible",
    "shapes",
    "names",
    "apps",
    "outbox",
    "schedulers",
    "leader",
    "dealt",
    "expires",
    "dead",
)
"""Keys that may be deleted if they are damaged: their content comes back by itself, from answers, registrations and
renewals, or is but a list of what records say: a task past its expiry ends when it is taken, and one that is dead stays
so, and can be revived by its id.
"""

_REMEMBERED: Final = 10_000
_met: dict[tuple[str, str, str], None] = {}
"""What this process has met: each is logged and put away once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something damaged: when it was last met (ms, server time), by which process, in which key, its size and bytes."""

    met_ms: int
    who: str
    where: str
    size: int
    why: str
    data: bytes

    @classmethod
    def of(cls, member: bytes, met_ms: float) -> "Entry":
        """Reads a member of the set, also one that this module has not written."""
        head, _, data = member.partition(b"\n")
        words = head.decode(errors="backslashreplace").split(" ", 3)
        if len(words) != 4 or not words[2].isdecimal() or len(words[2]) > 15:
            return cls(int(met_ms), "-", "-", len(member), "not an entry of this list", member[:MOST_BYTES])
        return cls(int(met_ms), words[0], words[1], int(words[2]), words[3], data)


def quarantine(store: Store, where: str, why: str, data: bytes) -> None:
    """Puts something away, once a process; says so in the log. Never raises: damage must not stop who has met it."""
    where, why = _line(where).replace(" ", "\\x20"), _line(why)
    thing = (store.keys.cluster, where, f"{why}\n{data[:MOST_BYTES]!r}")
    if thing in _met:
        return
    log.warning("%s: %s; see `parsync quarantine`", where, why)
    entry = f"{_own_name()} {where} {len(data)} {why}\n".encode(errors="backslashreplace") + data[:MOST_BYTES]
    try:
        store.run(store.commands.quarantine(entry, MOST))
    except (ParsyncError, RedisError, OSError) as error:
        log.warning("what was damaged in %s could not be put away: %s", where, error)
        return
    if len(_met) >= _REMEMBERED:
        _met.clear()
    _met[thing] = None


def repair_partition(store: Store, number: int) -> int:
    """Takes out of a partition what cannot be read and puts it into quarantine; how many things.

    Raises what `Store.run` raises.
    """
    told = store.run(store.commands.repair_partition(number))
    for key, field, data in told:
        why = "it cannot be, and is repaired" if field else _said(data)
        quarantine(store, f"{key} {field}".rstrip(), why, data)
    return len(told)


def repair(store: Store, keys: Sequence[str]) -> bool:
    """Whether what these keys, of one script, have of damage was repaired. Raises what `Store.run` raises.

    A partition is made anew from what of it can be read. A key of another type is deleted if its content comes back by
    itself, or is of one task or inbox only.
    """
    number = store.keys.number_of(keys[0])
    if number is not None and repair_partition(store, number):
        return True
    inbox = store.keys.inbox(number or 0, "")
    known: dict[str, str] = {key: "inbox" for key in keys if key.startswith(inbox)}
    known |= {store.keys.queue(kind): kind for kind in COMES_BACK if kind in QUEUE_KINDS}
    known |= {store.keys.shared(kind): kind for kind in COMES_BACK if kind in CLUSTER_KINDS}
    known |= {key: "stats" for key in keys if key.startswith(store.keys.stats(""))}
    known |= {key: "task" for key in keys if key.startswith(store.keys.task("")) and key != store.keys.task("")}
    mine = [key for key in keys if key in known]
    discarded = store.run_all([store.commands.discard(key, known[key]) for key in mine])
    gone = [key for key, is_gone in zip(mine, discarded, strict=True) if is_gone]
    for key in gone:
        quarantine(store, key, "it was of another type, or had numbers that are none, and is deleted", b"")
    return bool(gone)


def entries(store: Store) -> list[Entry]:
    """What is in quarantine, the latest first. Raises ServerUnreachable."""
    client: Any = store.client
    try:
        rows = client.zrevrange(store.keys.shared("quarantine"), 0, -1, withscores=True)
    except (RedisError, OSError) as error:
        raise translate(store.address, error) from None
    return [Entry.of(member, score) for member, score in rows]


def clear(store: Store) -> None:
    """Forgets all of it. Raises what `Store.run` raises."""
    store.run(store.commands.quarantine(b"", MOST))


def _said(data: bytes) -> str:
    """The words of an error reply, without its code."""
    return data.decode(errors="backslashreplace").removeprefix("PSRECORD ")


def _line(text: str) -> str:
    """Text on one line, at most 500 characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[:500]


def _own_name() -> str:
    """Who this process is, as far as a list of damage needs to know."""
    return f"{_line(socket.gethostname())[:64].replace(' ', '-') or 'host'}:{os.getpid()}"

"""The quarantine: damaged or foreign values that processes found in the state, kept for people to
look at.

Each entry is a member of one sorted set, scored by when it was last found: 'WHO WHERE SIZE WHY', a
line break, and the first bytes. A process that finds damage puts it here and goes on without it;
repair.py repairs what can be repaired.
"""

import logging
import os
import socket
from dataclasses import dataclass
from typing import Final

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...model.text import DAMAGE
from ..runner import Runner

log = logging.getLogger("parsync.quarantine")

MOST: Final = 1000
"""Entries that are kept; the oldest leave."""

MOST_BYTES: Final = 2048
"""Bytes that are kept of one value; the entry says its whole size."""

_REMEMBERED: Final = 10_000
_met: dict[tuple[str, str, str], None] = {}
"""Damage that this process has found: each is logged and put away once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A damaged value: when it was last found (ms, server time), by which process, in which key,
    its size and bytes.
    """

    met_ms: int
    who: str
    where: str
    size: int
    why: str
    data: bytes

    @classmethod
    def of(cls, member: bytes, met_ms: float) -> "Entry":
        """Read a member of the set, also one that this module has not written."""
        head, _, data = member.partition(b"\n")
        found = DAMAGE.read(head.decode(errors="backslashreplace"))
        if found is None:
            return cls(
                int(met_ms), "-", "-", len(member), "not an entry of this list", member[:MOST_BYTES]
            )
        return cls(
            int(met_ms), found["who"], found["where"], int(found["size"]), found["why"], data
        )


def quarantine(runner: Runner, where: str, why: str, data: bytes) -> None:
    """Put a value away and log it, once a process.

    Never raises: damage must not stop the process that found it.
    """
    where = _line(where).replace(" ", "\\x20")
    why = _line(why)
    thing = (runner.keys.cluster, where, f"{why}\n{data[:MOST_BYTES]!r}")
    if thing in _met:
        return
    log.warning("%s: %s; see `parsync doctor quarantine`", where, why)
    head = DAMAGE.write(who=_own_name(), where=where, size=len(data), why=why)
    entry = f"{head}\n".encode(errors="backslashreplace") + data[:MOST_BYTES]
    try:
        runner.run(runner.commands.quarantine(entry, MOST))
    except (ParsyncError, RedisError, OSError) as error:
        log.warning("what was damaged in %s could not be put away: %s", where, error)
        return
    if len(_met) >= _REMEMBERED:
        _met.clear()
    _met[thing] = None


def entries(runner: Runner) -> list[Entry]:
    """Return what is in quarantine, the latest first. Raises ServerUnreachable."""
    rows = runner.pipe([("zrevrange", runner.keys.shared("quarantine"), 0, -1, True)])[0]
    return [Entry.of(member, score) for member, score in rows]


def clear(runner: Runner) -> None:
    """Delete all entries. Raises what `Runner.run` raises."""
    runner.run(runner.commands.quarantine(b"", MOST))


def _line(text: str) -> str:
    """Return text on one line, at most 500 characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[
        :500
    ]


def _own_name() -> str:
    """Return this process's name for the list: HOST:PID."""
    return f"{_line(socket.gethostname())[:64].replace(' ', '-') or 'host'}:{os.getpid()}"

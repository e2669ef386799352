"""The quarantine: damaged or foreign values that processes found, kept for people to look at.

An entry is a member of one sorted set, scored by the time at which the value was last found. The
entry is 'WHO WHERE SIZE WHY', a line break, and the first bytes of the value. A process that finds
damage puts the value here and goes on without it; repair.py repairs what can be repaired.
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

MAX_ENTRIES: Final = 1000
"""Maximum number of entries; the oldest are dropped."""

MAX_VALUE_BYTES: Final = 2048
"""Maximum number of bytes of one value that are kept; the entry says the value's whole size."""

_MAX_REMEMBERED: Final = 10_000
_remembered: dict[tuple[str, str, str], None] = {}
"""Damage that this process has found: each is logged and put into quarantine once."""


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A damaged value in quarantine.

    met_ms: when the value was last found, in server time. who: the process, HOST:PID. where: the
    key and the field. size: bytes of the whole value. data: its first bytes.
    """

    met_ms: int
    who: str
    where: str
    size: int
    why: str
    data: bytes

    @classmethod
    def of(cls, member: bytes, met_ms: float) -> "QuarantineEntry":
        """Read a member of the set, also a member that this module has not written."""
        head, _, data = member.partition(b"\n")
        fields = DAMAGE.read(head.decode(errors="backslashreplace"))
        if fields is None:
            return cls(
                int(met_ms),
                "-",
                "-",
                len(member),
                "not an entry of this list",
                member[:MAX_VALUE_BYTES],
            )
        return cls(
            int(met_ms), fields["who"], fields["where"], int(fields["size"]), fields["why"], data
        )


def quarantine(runner: Runner, where: str, why: str, data: bytes) -> None:
    """Put a value into quarantine and log it, once a process.

    Never raises, because damage must not stop the process that found it.
    """
    where = _line(where).replace(" ", "\\x20")
    why = _line(why)
    fingerprint = (runner.keys.cluster, where, f"{why}\n{data[:MAX_VALUE_BYTES]!r}")
    if fingerprint in _remembered:
        return
    log.warning("%s: %s; see `parsync doctor quarantine`", where, why)
    head = DAMAGE.write(who=_own_name(), where=where, size=len(data), why=why)
    entry = f"{head}\n".encode(errors="backslashreplace") + data[:MAX_VALUE_BYTES]
    try:
        runner.run(runner.commands.quarantine(entry, MAX_ENTRIES))
    except (ParsyncError, RedisError, OSError) as error:
        log.warning("what was damaged in %s could not be put away: %s", where, error)
        return
    if len(_remembered) >= _MAX_REMEMBERED:
        _remembered.clear()
    _remembered[fingerprint] = None


def entries(runner: Runner) -> list[QuarantineEntry]:
    """Return the entries of the quarantine, the latest first. Raises ServerUnreachable."""
    rows = runner.pipe([("zrevrange", runner.keys.shared("quarantine"), 0, -1, True)])[0]
    return [QuarantineEntry.of(member, score) for member, score in rows]


def clear(runner: Runner) -> None:
    """Delete all entries. Raises what `Runner.run` raises."""
    runner.run(runner.commands.quarantine(b"", MAX_ENTRIES))


def _line(text: str) -> str:
    """Return text on one line, at most 500 characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[
        :500
    ]


def _own_name() -> str:
    """Return this process's name for the entries: HOST:PID."""
    return f"{_line(socket.gethostname())[:64].replace(' ', '-') or 'host'}:{os.getpid()}"

"""Meters of the server's work: instructions (callgrind), or microseconds (the server's count)."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from parsync_redis.errors import ServerUnfit
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer

MeteredWork = Callable[[], None]

_MARK: Final = "echoCommand"
"""The server's function for ECHO: at each call callgrind writes its count and starts anew."""

_QUIET_S: Final = 3.0
"""The seconds for which idle servers are measured, to know the cost of doing nothing."""


class Meter(Protocol):
    """Measures the server's work for some calls."""

    unit: str

    def measure(self, work: MeteredWork) -> float:
        """Do the work; return what the server spent on it."""


def find_valgrind() -> str | None:
    """Return the path of valgrind; None if it is not installed."""
    return shutil.which("valgrind")


def callgrind_words(valgrind: str, folder: Path) -> list[str]:
    """Return the words before a server's command that make callgrind write counts into `folder`."""
    return [
        valgrind,
        "--tool=callgrind",
        "--trace-children=yes",  # a server's program may be a script that starts it
        f"--dump-before={_MARK}",
        f"--callgrind-out-file={folder / 'count'}",
        f"--log-file={folder / 'valgrind.log'}",
    ]


class Instructions:
    """Counts the instructions of servers under callgrind, without those of marks and idle time.

    servers: {folder of the counts: server}. The servers of a cluster talk to each other all the
    time.
    """

    unit = "instructions"

    def __init__(self, servers: Mapping[Path, EmbeddedServer]) -> None:
        self._clients: dict[Path, Any] = {
            folder: connect(s.url, timeout_s=60) for folder, s in servers.items()
        }
        self._empty = self._a_second = 0.0
        self._mark()
        self._empty = min(self.measure(lambda: None) for _ in range(5))
        began_s = time.monotonic()
        quiet = self.measure(lambda: time.sleep(_QUIET_S))
        self._a_second = max(0.0, quiet / (time.monotonic() - began_s))

    def measure(self, work: MeteredWork) -> float:
        """Do the work; return the instructions that the servers ran for it."""
        self._mark()
        began_s = time.monotonic()
        work()
        return self._mark() - self._empty - self._a_second * (time.monotonic() - began_s)

    def _mark(self) -> float:
        """Return the instructions since the last mark."""
        return sum(self._mark_of(folder, client) for folder, client in self._clients.items())

    def _mark_of(self, folder: Path, client: Any) -> float:
        client.echo("mark")
        counts = sorted(folder.glob("count.*"), key=lambda path: int(path.suffix[1:]))
        if not counts:
            raise ServerUnfit(
                f"callgrind does not find the function {_MARK} in this server: measure --by "
                "commandstats"
            )
        total = _total(counts[-1])
        for path in counts:
            path.unlink()
        return total


def _total(path: Path) -> float:
    """Return the total of a file of callgrind."""
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        if line.startswith("totals:"):
            return float(line.split()[1])
    raise ServerUnfit(f"callgrind wrote no total in {path.name}")


class Microseconds:
    """Reads the run times of scripts from INFO commandstats, without reading and replying."""

    unit = "microseconds"

    def __init__(self, servers: Sequence[EmbeddedServer]) -> None:
        self._clients: list[Any] = [connect(server.url) for server in servers]

    def measure(self, work: MeteredWork) -> float:
        """Do the work; return the microseconds of the scripts that it ran."""
        before = self._used()
        work()
        return self._used() - before

    def _used(self) -> float:
        stats = [client.info("commandstats").get("cmdstat_evalsha", {}) for client in self._clients]
        return sum(float(row.get("usec", 0)) for row in stats)

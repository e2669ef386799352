"""Meters of the server's work: instructions, counted by callgrind, or microseconds, as the server counts them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from ...errors import ServerUnfit
from ...store.connection import connect
from ...store.embedded import EmbeddedServer

Work = Callable[[], None]

_MARK: Final = "echoCommand"
"""The server's function for ECHO: when the server enters it, callgrind writes the count so far and begins anew."""


class Meter(Protocol):
    """Measures the server's work for some calls."""

    unit: str

    def measure(self, work: Work) -> float:
        """Do the work; return what the server spent on it."""


def find_valgrind() -> str | None:
    """Return the path of valgrind; None if it is not installed."""
    return shutil.which("valgrind")


def callgrind_words(valgrind: str, folder: Path) -> list[str]:
    """Return the words before a server's command that count its instructions in files of the folder."""
    return [
        valgrind,
        "--tool=callgrind",
        "--trace-children=yes",  # a server's program may be a script that starts it
        f"--dump-before={_MARK}",
        f"--callgrind-out-file={folder / 'count'}",
        f"--log-file={folder / 'valgrind.log'}",
    ]


class Instructions:
    """Counts the instructions of a server that runs under callgrind, without those of the marks."""

    unit = "instructions"

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self._folder = folder
        self._client: Any = connect(server.url, timeout_s=60)
        self._empty = 0.0
        self._mark()
        self._empty = min(self.measure(lambda: None) for _ in range(5))

    def measure(self, work: Work) -> float:
        """Do the work; return the instructions that the server ran for it."""
        self._mark()
        work()
        return self._mark() - self._empty

    def _mark(self) -> float:
        """Return the instructions since the last mark."""
        self._client.echo("mark")
        counts = sorted(self._folder.glob("count.*"), key=lambda path: int(path.suffix[1:]))
        if not counts:
            raise ServerUnfit(f"callgrind does not find the function {_MARK} in this server: measure --by commandstats")
        found = _total(counts[-1])
        for path in counts:
            path.unlink()
        return found


def _total(path: Path) -> float:
    """Return the total of a file of callgrind."""
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        if line.startswith("totals:"):
            return float(line.split()[1])
    raise ServerUnfit(f"callgrind wrote no total in {path.name}")


class Microseconds:
    """Reads how long scripts ran, by the server's own count (INFO commandstats): without reading and replying."""

    unit = "microseconds"

    def __init__(self, server: EmbeddedServer) -> None:
        self._client: Any = connect(server.url)

    def measure(self, work: Work) -> float:
        """Do the work; return the microseconds of the scripts that it ran."""
        before = self._used()
        work()
        return self._used() - before

    def _used(self) -> float:
        return float(self._client.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0))

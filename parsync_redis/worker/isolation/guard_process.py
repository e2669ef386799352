"""The guard as its worker sees it: a child process, with a pipe in each direction."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ..children import no_fork, start_child
from ..node.lease import Order
from .guarding import LEAVE, Guarded

PACKAGES: Final = ("redis", "hiredis", "parsync_redis")
"""The packages that the guard imports, besides Python's own modules."""
GUARD_START_S: Final = 60.0
"""Seconds after which a guard that is not ready is killed, and another guard is started."""
GUARD_END_S: Final = 10.0
"""Seconds after which a guard that has not ended is killed: its log may take no more lines."""
GUARD_WAIT_S: Final = GUARD_START_S + GUARD_END_S
"""The longest time for which a worker waits for the end of a guard and the start of the next."""
DEAF: Final = "its guard has stopped reading"
"""Why a guard with a full pipe was killed: it has not read hundreds of orders."""


class GuardProcess:
    """A guard that was started.

    tie: the path of the pipe to which runs tie themselves.
    words: the guard's reason for its end, '' if it gave none.
    """

    def __init__(self, guarded: Guarded) -> None:
        """Start a guard, and wait until it is ready. Raises OSError."""
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
        self._process = start_child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._read = b""
        self._closed = False
        self._lock = threading.RLock()
        self.words = ""
        try:
            self._send(json.dumps({"path": _paths(), **asdict(guarded)}).encode() + b"\n")
            self.tie = f"/proc/{self._process.pid}/fd/{self._until_ready()}"
            os.set_blocking(self._input.fileno(), False)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """The id of the guard's process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """True if the guard has ended, or has said that it ends."""
        return bool(self.words) or self._closed or self._process.poll() is not None

    def send(self, order: Order) -> None:
        """Give a sign of life, and say which lease to renew.

        Raises nothing: `ended` says whether the guard has ended.
        """
        self._send(order.to_line())

    def leave(self, patience_s: float) -> None:
        """Have the guard renew no more, and wait until it has heard that."""
        self._send(LEAVE + b"\n")
        until_s = time.monotonic() + patience_s
        while not self.ended and not any(
            message["word"] == "left" for message in self.read_messages()
        ):
            if not self.has_news(until_s - time.monotonic()):
                return

    def has_news(self, patience_s: float = 0.0) -> bool:
        """Return whether there is a message to read, or the guard has ended."""
        with self._lock:
            if self._closed:
                return True
            output = self._output.fileno()
        poll = select.poll()  # a worker may have more than the 1,024 descriptors that select takes
        poll.register(output, select.POLLIN)
        return bool(poll.poll(max(0.0, patience_s) * 1000))

    # Any: JSON objects
    def read_messages(self) -> list[dict[str, Any]]:
        """Return the guard's messages since the last call."""
        with self._lock:
            while not self._closed and self.has_news():
                words = os.read(self._output.fileno(), 65536)
                self._closed = not words
                self._read += words
            *lines, self._read = self._read.split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if message["word"] == "ends":
                self.words = message["why"]
        return messages

    def end(self) -> None:
        """End the guard and the runs that are tied to it; wait for the end.

        A guard that takes longer than GUARD_END_S is killed.
        """
        with no_fork():  # or a process that is forked now would keep the guard's input open
            self._input.close()
        try:
            self._process.wait(GUARD_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._lock:
            self._closed = True
            self._output.close()

    def _send(self, line: bytes) -> None:
        """Write a line to the guard; kill a guard whose pipe is full.

        So this thread never waits for the guard.
        """
        with suppress(BrokenPipeError):  # the guard has ended
            if self._input.write(line) != len(line):
                self.words = DEAF
                self._process.kill()

    def _until_ready(self) -> int:
        until_s = time.monotonic() + GUARD_START_S
        while not self._closed and self.has_news(until_s - time.monotonic()):
            for message in self.read_messages():
                if message["word"] == "ready":
                    return int(message["ties"])
        how = (
            f"exit code {self._process.wait()}"
            if self._closed
            else f"it was not ready after {GUARD_START_S:g} s"
        )
        raise OSError(f"the guard of the node's runs did not start: {how}")


def _paths() -> list[str]:
    """Return the folders of the packages that the guard imports."""
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    return list(
        dict.fromkeys(
            str(Path(spec.origin).resolve().parents[1]) for spec in specs if spec and spec.origin
        )
    )


def log_file() -> str:
    """Return the file that this process logs to, '' if it logs to no file."""
    logger: logging.Logger | None = logging.getLogger("parsync.agent")
    while logger is not None:
        files = [
            handler.baseFilename
            for handler in logger.handlers
            if isinstance(handler, logging.FileHandler)
        ]
        if files:
            return files[0]
        logger = logger.parent if logger.propagate else None
    return ""

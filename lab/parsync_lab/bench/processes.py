"""The processes of a bench: forked, so that twenty start at once.

Each ends when asked, or with its parent.

They need a system that can fork. Only the bench handles Ctrl-C; it then ends them in order.
"""

import contextlib
import gc
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from parsync_lab import Stopped
from parsync_redis.errors import ServerUnreachable

_FORK: Final = multiprocessing.get_context("fork")
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
Tell = Callable[[Any], None]
Job = Callable[[threading.Event, Tell], Any]
"""The work of a process: it watches the event, may tell something at any time, and its result is
told last.
"""


class _Failed(str):
    """The last message of a process that ends by an error."""


@dataclass(slots=True)
class Member:
    """A process; `ended` is what it returned."""

    role: str
    process: BaseProcess
    line: Any
    heard: "Queue[Any]"
    ended: list[Any] = field(default_factory=list)

    def stop(self) -> None:
        """Ask the process to end."""
        with contextlib.suppress(OSError):
            self.line.send(None)


class Processes:
    """Starts processes in several roles and stops them; a context manager that leaves nothing
    running.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.stop_asked = stop
        self.members: list[Member] = []

    def start(self, role: str, job: Job) -> Member:
        """Fork a process. Call it before this process has threads that hold locks."""
        heard = _FORK.Queue()
        theirs, ours = _FORK.Pipe(duplex=False)
        process = _FORK.Process(
            target=_run, args=(job, theirs, heard, os.getpid()), name=f"bench {role}", daemon=True
        )
        process.start()
        self.members.append(Member(role, process, ours, heard))
        return self.members[-1]

    def pause(self, seconds: float) -> None:
        """Sleep; raise Stopped if the bench is to end, ServerUnreachable if a process
        has failed.
        """
        if self.stop_asked.wait(seconds):
            raise Stopped
        for one in self.members:
            if not one.process.is_alive() and not one.ended and one.process.exitcode:
                self.hear(one, 1.0)
                raise ServerUnreachable(
                    f"a process of the bench ({one.role}) ended with {one.process.exitcode}"
                )

    def hear(self, one: Member, timeout_s: float) -> Any:
        """Return the next message of a process; raise Stopped, or ServerUnreachable if it fails or
        stays silent.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.stop_asked.is_set():
                raise Stopped
            try:
                told = one.heard.get(timeout=0.1)
            except queue.Empty:
                if not one.process.is_alive() and one.heard.empty():
                    break
                continue
            if isinstance(told, _Failed):
                raise ServerUnreachable(f"a process of the bench ({one.role}) failed: {told}")
            return told
        raise ServerUnreachable(
            f"a process of the bench ({one.role}) said nothing for {timeout_s:g} s"
        )

    def finish(self, role: str, timeout_s: float = 60.0) -> list[Any]:
        """Ask all processes of a role to end; return their results in the order of their start."""
        mine = [one for one in self.members if one.role == role]
        for one in mine:
            one.stop()
        for one in mine:
            one.ended.append(self.hear(one, timeout_s))
            one.process.join(10)
        return [one.ended[-1] for one in mine]

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds, user and system, of each role so far."""
        found: dict[str, float] = {}
        for one in self.members:
            found[one.role] = found.get(one.role, 0.0) + cpu_of(one.process.pid or 0)
        return found

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self.members:
            one.stop()
        deadline = time.monotonic() + (5.0 if kind is None else 1.0)
        for one in self.members:
            one.process.join(max(0.0, deadline - time.monotonic()))
            if one.process.is_alive():
                one.process.kill()
                one.process.join()
            one.heard.close()


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process from /proc; 0 without one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _run(job: Job, line: Any, heard: "Queue[Any]", parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # the garbage collector need not scan what the fork inherited
    ended = threading.Event()

    def watch() -> None:
        while not line.poll(1.0) and os.getppid() == parent:
            pass
        ended.set()
        if os.getppid() != parent:
            time.sleep(5)
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        heard.put(job(ended, heard.put))
    except Exception as error:
        heard.put(_Failed(f"{type(error).__name__}: {error}"))
        raise

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
ProcessJob = Callable[[threading.Event, Tell], Any]
"""The work of a process: it watches the event, may send messages, and sends its result last."""


class _Failed(str):
    """The last message of a process that ends by an error."""


@dataclass(slots=True)
class Member:
    """A process of the bench.

    ended: its result, once it has ended.
    """

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
    """Starts and stops processes in several roles.

    As a context manager it leaves no process running.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.stop_asked = stop
        self.members: list[Member] = []

    def start(self, role: str, job: ProcessJob) -> Member:
        """Fork a process. Call it before this process has threads that hold locks."""
        heard = _FORK.Queue()
        child_end, parent_end = _FORK.Pipe(duplex=False)
        process = _FORK.Process(
            target=_run,
            args=(job, child_end, heard, os.getpid()),
            name=f"bench {role}",
            daemon=True,
        )
        process.start()
        self.members.append(Member(role, process, parent_end, heard))
        return self.members[-1]

    def pause(self, seconds: float) -> None:
        """Sleep; raise Stopped if the bench has to end, ServerUnreachable if a process failed."""
        if self.stop_asked.wait(seconds):
            raise Stopped
        for member in self.members:
            if not member.process.is_alive() and not member.ended and member.process.exitcode:
                self.hear(member, 1.0)
                raise ServerUnreachable(
                    f"a process of the bench ({member.role}) ended with {member.process.exitcode}"
                )

    def hear(self, member: Member, timeout_s: float) -> Any:
        """Return the next message of a process.

        Raises Stopped, or ServerUnreachable if the process fails or stays silent.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.stop_asked.is_set():
                raise Stopped
            try:
                message = member.heard.get(timeout=0.1)
            except queue.Empty:
                if not member.process.is_alive() and member.heard.empty():
                    break
                continue
            if isinstance(message, _Failed):
                raise ServerUnreachable(f"a process of the bench ({member.role}) failed: {message}")
            return message
        raise ServerUnreachable(
            f"a process of the bench ({member.role}) said nothing for {timeout_s:g} s"
        )

    def finish(self, role: str, timeout_s: float = 60.0) -> list[Any]:
        """Ask all processes of a role to end; return their results in the order of their start."""
        members = [member for member in self.members if member.role == role]
        for member in members:
            member.stop()
        for member in members:
            member.ended.append(self.hear(member, timeout_s))
            member.process.join(10)
        return [member.ended[-1] for member in members]

    def cpu_s(self) -> dict[str, float]:
        """Return {role: CPU seconds so far, user and system}."""
        seconds: dict[str, float] = {}
        for member in self.members:
            seconds[member.role] = seconds.get(member.role, 0.0) + cpu_of(member.process.pid or 0)
        return seconds

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.stop()
        deadline = time.monotonic() + (5.0 if kind is None else 1.0)
        for member in self.members:
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.heard.close()


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process from /proc; 0 without one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _run(job: ProcessJob, line: Any, heard: "Queue[Any]", parent: int) -> None:
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

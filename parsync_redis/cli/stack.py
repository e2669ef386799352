"""A stack of processes on this machine: a server, schedulers and Celery workers.

`parsync dev`, the demo, the benches and the tests start and stop such stacks. Each process has a
session of its own. Addresses are passed in the environment, not on the command line, so that no
password shows in a list of processes.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ..store.server.embedded import EmbeddedServer, PortTaken

Sink = Callable[[str, str], None]
"""Receives the name of a process and a printed line, from a thread for each process."""

STOP_GRACE_S: Final = 10.0
"""Seconds between SIGTERM and SIGKILL when a stack stops."""

_MAX_LINES: Final = 200
"""Number of last lines of a process that are kept."""


class Process:
    """A program in a session of its own.

    Its lines go to a sink and to a file; `lines` has the last 200.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        sink: Sink | None,
        log: Path | None = None,
    ) -> None:
        self.name = name
        self._sink = sink
        self._file = log.open("a", encoding="utf-8", buffering=1) if log else None
        self.lines: deque[str] = deque(maxlen=_MAX_LINES)
        self.popen = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._pump = threading.Thread(target=self._read, name=f"lines of {name}", daemon=True)
        self._pump.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._say(line.rstrip("\n"))

    def _say(self, line: str) -> None:
        self.lines.append(line)
        if self._sink is not None:
            self._sink(self.name, line)
        if self._file is not None:
            self._file.write(line + "\n")

    def settle(self) -> None:
        """Wait until the last lines of an ended process are read, for at most a second.

        The pipe may stay open: a program that the process has started may hold it.
        """
        self._pump.join(timeout=1)

    @property
    def alive(self) -> bool:
        """Return True while the process runs."""
        return self.popen.poll() is None

    def send(self, signal_number: int) -> None:
        """Send a signal to the program; SIGKILL goes to its whole session."""
        try:
            if signal_number == signal.SIGKILL:
                os.killpg(self.popen.pid, signal_number)
            elif self.alive:
                os.kill(self.popen.pid, signal_number)
        except ProcessLookupError:
            pass

    def end(self, deadline: float) -> int:
        """Wait for the end, or kill at `deadline` (monotonic seconds); return the exit code."""
        try:
            self.popen.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._say("(does not stop: killed)")
        self.send(signal.SIGKILL)
        self.popen.wait()
        self._pump.join(timeout=5)
        if self._file is not None and not self._pump.is_alive():
            self._file.close()
        return self.popen.returncode


class LocalStack:
    """Starts and stops the processes of a cluster; a context manager that leaves nothing running.

    url: a server that runs already; without it call `server`.
    logs: a folder for the log file of each process.
    env: variables for all processes. The names of processes are 'scheduler-1', 'scheduler-2', ...,
        and for a worker the name of its node.
    """

    def __init__(
        self,
        cluster: str = "parsync",
        url: str | None = None,
        sink: Sink | None = None,
        logs: Path | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        grace_s: float = STOP_GRACE_S,
    ) -> None:
        self.cluster = cluster
        self.url = url
        self.logs = logs
        self.cwd = cwd
        self.grace_s = grace_s
        self.embedded: EmbeddedServer | None = None
        self.processes: dict[str, Process] = {}
        self._sink = sink
        self.env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PARSYNC_CLUSTER": cluster,
            **(env or {}),
        }
        if url:
            self.env["PARSYNC_URL"] = url
        if logs:
            logs.mkdir(parents=True, exist_ok=True)

    def server(self, program: str | None = None, aof: bool = False, port: int | None = None) -> str:
        """Start a server and return its URL; workers use it as broker and result backend too.

        port: if another process uses this port, the server takes a free port.
        """
        try:
            self.embedded = EmbeddedServer(program, port, aof=aof)
        except PortTaken:
            self.embedded = EmbeddedServer(program, aof=aof)
        self.url = self.embedded.url
        self.env |= dict.fromkeys(
            ("PARSYNC_URL", "CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"), self.url
        )
        return self.url

    def scheduler(self, n: int = 1, **flags: object) -> list[str]:
        """Start n schedulers with these flags (gap_s=0.2 is --gap-s 0.2); return their names."""
        words = [
            word
            for flag, value in flags.items()
            for word in (f"--{flag.replace('_', '-')}", str(value))
        ]
        started = []
        for _ in range(n):
            number = 1 + sum(1 for name in self.processes if name.startswith("scheduler-"))
            name = f"scheduler-{number}"
            self.start(
                name,
                [sys.executable, "-m", "parsync_redis.cli", "scheduler", "--name", name, *words],
            )
            started.append(name)
        return started

    def worker(
        self,
        app: str,
        node: str,
        slots: int | None = None,
        score: float | None = None,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, str | int] | None = None,
        pool: str = "prefork",
        concurrency: int | None = None,
        extra: Sequence[str] = (),
    ) -> str:
        """Start a Celery worker of `app` ('proj.celery:app') as a node; return the node's name."""
        words = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            app,
            "worker",
            "--parsync-node",
            node,
            "-P",
            pool,
        ]
        if slots is not None:
            words += ["--parsync-slots", str(slots)]
        if score is not None:
            words += ["--parsync-score", str(score)]
        for flag, pairs in (("--parsync-label", labels), ("--parsync-resource", resources)):
            words += [
                word for name, value in (pairs or {}).items() for word in (flag, f"{name}={value}")
            ]
        if concurrency or slots:
            words += ["-c", str(concurrency or slots)]
        words += [
            "--without-mingle",
            "--without-gossip",
            "--without-heartbeat",
            "-n",
            f"{node}@%h",
            *extra,
        ]
        self.start(node, words)
        return node

    def start(self, name: str, command: Sequence[str]) -> Process:
        """Start a program as a part of the stack; the name of an ended process may be reused."""
        if name in self.processes and self.processes[name].alive:
            raise ValueError(f"{name} runs already")
        log = self.logs / f"{name}.log" if self.logs else None
        self.processes[name] = Process(name, command, self.env, self.cwd, self._sink, log)
        return self.processes[name]

    def alive(self) -> list[str]:
        """Return the names of the running processes."""
        return [name for name, process in self.processes.items() if process.alive]

    def kill(self, name: str) -> None:
        """Kill a process and all that it has started (SIGKILL)."""
        self.processes[name].send(signal.SIGKILL)
        self.processes[name].end(time.monotonic() + 5)

    def terminate(self, name: str, grace_s: float | None = None) -> int:
        """Send SIGTERM to a process, kill it after the grace period; return its exit code."""
        self.processes[name].send(signal.SIGTERM)
        return self.processes[name].end(
            time.monotonic() + (self.grace_s if grace_s is None else grace_s)
        )

    def stop(self) -> None:
        """Stop all processes: workers, then schedulers, then the server.

        Workers come first, so that they can give back the tasks that they hold.
        """
        schedulers = {name for name in self.processes if name.startswith("scheduler-")}
        for names in (self.processes.keys() - schedulers, schedulers):
            for name in names:
                self.processes[name].send(signal.SIGTERM)
            deadline = time.monotonic() + self.grace_s
            for name in names:
                self.processes[name].end(deadline)
        if self.embedded:
            self.embedded.stop()
            self.embedded = None

    def __enter__(self) -> "LocalStack":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        except KeyboardInterrupt:  # a second Ctrl-C: kill at once, but leave nothing running
            self.grace_s = 0.0
            self.stop()
            raise

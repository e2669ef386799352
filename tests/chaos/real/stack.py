"""The stack of the chaos: a server that loses nothing, schedulers and workers, each behind a line
of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis

from parsync_redis.cli.stack import Process
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store
from tests.kit import REPO

from .proxy import Line, Proxy
from .recorder import FOLDER

CLUSTER: Final = "chaos"
LEASE_S: Final = 2.0
PARTITIONS: Final = 2
GAP_S: Final = 0.2
APP: Final = "tests.chaos.real.app:app"


class DurableServer(EmbeddedServer):
    """A server that has written to disk what it acknowledges: append-only file, fsync always."""

    def _start(self) -> subprocess.Popen[bytes]:
        process = super()._start()
        with redis.Redis(port=self.port) as client:
            client.config_set("appendfsync", "always")
        return process


@dataclass(frozen=True, slots=True)
class Spec:
    """A worker: its pool, slots, resources and labels."""

    node: str
    pool: str
    slots: int
    more: tuple[str, ...] = ()


WORKERS: Final = (
    Spec("n1", "prefork", 3),
    Spec("n2", "prefork", 2, ("--parsync-resource", "mem=4GiB", "--parsync-label", "zone=a")),
    Spec("n3", "prefork", 2, ("--parsync-score", "4", "--parsync-label", "zone=b")),
    Spec("n4", "threads", 2, ("--parsync-resource", "mem=2GiB")),
)


@dataclass(slots=True)
class Member:
    """A process of the stack that is started again under its name; `busy` while a fault
    is upon it.
    """

    name: str
    command: list[str]
    line: Line | None
    process: Process | None = None
    busy: bool = False

    @property
    def alive(self) -> bool:
        """Return whether it runs."""
        return self.process is not None and self.process.alive


@dataclass(frozen=True, slots=True)
class Death:
    """A process that ended though nobody had asked it to."""

    at_s: float
    name: str
    code: int
    last: str


@dataclass(slots=True)
class Stack:
    """All processes. `folder` gets what they print and what they write down."""

    folder: Path
    seed: int = 1
    schedulers: int = 3
    workers: tuple[Spec, ...] = WORKERS
    retention_s: int = 86_400
    record: bool = True
    cluster: str = CLUSTER
    partitions: int = PARTITIONS
    lease_s: float = LEASE_S
    server: EmbeddedServer = field(init=False)
    proxy: Proxy = field(init=False)
    members: dict[str, Member] = field(init=False, default_factory=dict)
    former: list[Process] = field(init=False, default_factory=list)
    deaths: list[Death] = field(init=False, default_factory=list)

    def start(self) -> None:
        """Start all, and wait until every scheduler is a member and every node is up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.serve()
        for i in range(1, self.schedulers + 1):
            name = f"scheduler-{i}"
            options = {"partitions": self.partitions, "gap-s": GAP_S, "lease-s": self.lease_s}
            options["retention-s"] = self.retention_s
            words = [word for flag, value in options.items() for word in (f"--{flag}", str(value))]
            self._add(
                name, [sys.executable, "-m", "tests.chaos.real.scheduler", "--name", name, *words]
            )
        for spec in self.workers:
            words = [
                sys.executable,
                "-m",
                "celery",
                "-A",
                APP,
                "worker",
                "-P",
                spec.pool,
                "-c",
                str(spec.slots),
            ]
            words += [
                "--parsync-node",
                spec.node,
                "--parsync-slots",
                str(spec.slots),
                *spec.more,
                "-l",
                "info",
            ]
            words += [
                "--without-mingle",
                "--without-gossip",
                "--without-heartbeat",
                "-n",
                f"{spec.node}@%h",
            ]
            self._add(spec.node, words)
        self.await_up()

    def serve(self) -> None:
        """Start the server, and the proxy to it."""
        self.server = DurableServer(aof=True)
        self.proxy = Proxy("127.0.0.1", self.server.port)

    def line(self, seed: int) -> Line | None:
        """Return a new line to the server."""
        return self.proxy.line(seed)

    def addresses(self, line: Line | None) -> dict[str, str]:
        """Return the environment that tells a process where its servers are."""
        return {"PARSYNC_URL": self.url_by(line)}

    def _add(self, name: str, command: list[str]) -> None:
        self.members[name] = Member(name, command, self.line(self.seed + len(self.members)))
        self.launch(name)

    def launch(self, name: str) -> None:
        """Start a member; forget the process that had its name before."""
        member = self.members[name]
        if member.process is not None:
            self.former.append(member.process)
        env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(REPO),
            **self.addresses(member.line),
            "PARSYNC_CLUSTER": self.cluster,
            "PARSYNC_RETENTION_S": str(self.retention_s),
            **({FOLDER: str(self.folder)} if self.record else {}),
        }
        member.process = Process(name, member.command, env, REPO, self._sink)

    def _sink(self, name: str, line: str) -> None:
        with (self.folder / f"{name}.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def await_up(self, patience_s: float = 300.0) -> None:
        """Wait until all schedulers are members and all nodes are up; TimeoutError names who is
        not.
        """
        store = self.store()
        deadline = time.monotonic() + patience_s
        try:
            while missing := self._missing(store):
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"not up after {patience_s:g} s: {missing}; see {self.folder}"
                    )
                self.supervise()
                time.sleep(0.1)
        finally:
            store.client.close()

    def _missing(self, store: Store) -> list[str]:
        up = set(store.hash(store.keys.shared("schedulers")))
        for p in range(self.partitions):
            up |= {name for name, node in store.nodes(p).items() if node.state == "up"}
        return sorted(self.members.keys() - up)

    def store(self) -> Store:
        """Return a store on the server itself, past all lines."""
        return Store.from_url(self.server.url, self.cluster)

    def client_of(self, key: str) -> redis.Redis:
        """Return a client of the server that has a key, past all lines."""
        return connect(self.server.url, timeout_s=2.0)

    def url_by(self, line: Line | None) -> str:
        """Return the server's address through a line."""
        assert line is not None
        return f"redis://127.0.0.1:{line.port}/0"

    def supervise(self) -> None:
        """Restart members that have ended by themselves, as a service manager does."""
        for member in self.members.values():
            if member.process is not None and not member.alive and not member.busy:
                last = " | ".join(list(member.process.lines)[-3:])
                self.deaths.append(
                    Death(time.monotonic(), member.name, member.process.popen.returncode, last)
                )
                self.launch(member.name)

    def signal(self, process: Process, how: int) -> None:
        """Send a signal to every process of a session, whatever group it is in."""
        for pid in session(process.popen.pid):
            send(pid, how)

    def stop(self) -> None:
        """Kill everything."""
        processes = [
            member.process for member in self.members.values() if member.process is not None
        ]
        for process in [*self.former, *processes]:
            self.signal(process, signal.SIGKILL)
            process.end(time.monotonic() + 5)
        self.end_servers()

    def end_servers(self) -> None:
        """End the proxy and the server."""
        self.proxy.close()
        self.server.stop()


def session(leader: int) -> Iterator[int]:
    """Return the processes of a session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has just ended
            if int(fields[3]) == leader:
                yield int(entry.name)


def children(parent: int) -> list[int]:
    """Return the children of a process."""
    try:
        return [
            int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        ]
    except OSError:
        return []


def send(pid: int, how: int) -> None:
    """Send a signal to a process that may have ended."""
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return

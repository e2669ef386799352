"""The rig of the system tests: a real server, real schedulers and real Celery workers, each in
its own process.

A test module has one stack for all its tests; a test starts and stops what it needs more. After
each test the state must pass the audit. Nothing sleeps to give something time: tests wait for
facts.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.node import Lease, NodeState
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.views import NodeView
from parsync_redis.store.server.connection import connect
from parsync_redis.store.store import Store
from tests.kit import REPO
from tests.kit.oracle.audit import audit
from tests.kit.servers import PRIMARIES
from tests.kit.waiting import pause

T = TypeVar("T")
APP = "tests.kit.apps.marks:app"
CLUSTER = "system"
# another Celery may be first there
_PATH = os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH"))))
LEASE_S = 5.0
LONG_LEASE_S = 30.0
"""Lease for tests in which nobody is lost: a busy machine may stop a worker for several seconds."""
PATIENCE_S = 180.0
"""Limit of a wait. A busy machine takes long to start a Celery worker, which costs more than 3 s of CPU."""


class Rig:
    """A stack, and what tests ask of it.

    celery_url: the Redis server of Celery, by default the app's broker.
    """

    def __init__(
        self,
        url: str,
        tasks: ModuleType,
        logs: Path,
        env: Mapping[str, str],
        celery_url: str | None = None,
    ) -> None:
        self.url = url
        self.broker = celery_url or tasks.BROKER
        self.tasks = tasks
        self.logs = logs
        self.store = Store.from_url(url, CLUSTER)
        self.state: Any = self.store.client
        # what is not parsync's: Celery's keys, marks and gates
        self.redis: Any = connect(self.broker)
        self.state.flushall()
        self.redis.flushall()
        self.client = ParsyncClient.from_url(url, CLUSTER)
        env = {
            "CELERY_BROKER_URL": self.broker,
            "CELERY_RESULT_BACKEND": self.broker,
            "PYTHONPATH": _PATH,
            **env,
        }
        self.stack = LocalStack(CLUSTER, url, logs=logs, cwd=REPO, env=env, grace_s=15.0)

    # -- processes ---------------------------------------------------------------------------------

    def schedulers(self, n: int = 1, lease_s: float = LEASE_S, **flags: object) -> list[str]:
        """Start schedulers, and wait until they are members."""
        names = self.stack.scheduler(n, lease_s=lease_s, partitions=2, **flags)
        key = self.store.keys.shared("schedulers")
        self.until(
            lambda: all(self.state.hexists(key, name) for name in names), f"{names} are members"
        )
        return names

    def worker(self, node: str, *extra: str, up: bool = True, **options: Any) -> str:
        """Start a worker that is a node, and wait until it is up."""
        options.setdefault("slots", 2)
        self.stack.worker(APP, node, extra=("-l", "info", "-E", *extra), **options)
        if up:
            self.until_up(node)
        return node

    def until_up(self, *names: str) -> None:
        """Wait until these nodes are up, and until `submit` knows what they offer."""
        shapes = self.store.keys.queue("shapes")
        self.until(lambda: all(self.node(name).state == "up" for name in names), f"{names} are up")
        self.until(
            lambda: all(self.state.hexists(shapes, name) for name in names),
            f"{names} are known to `submit`",
        )

    def node(self, name: str) -> NodeView:
        """Return a node as Redis has it; its state is '' if there is none."""
        nodes = [node for node in self.client.nodes() if node.name == name]
        return (
            nodes[0]
            if nodes
            else NodeView(name, -1, cast("NodeState", ""), False, 0, 0.0, 0, 0, 0, {}, {}, {})
        )

    def state_servers(self) -> list[Any]:
        """Return a client of each server of the state; none if the state is on Celery's server."""
        return (
            [server.client for server in self.store.servers().values() if server]
            if PRIMARIES
            else []
        )

    def lines(self, process: str) -> str:
        """Return the output of a process."""
        path = self.logs / f"{process}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def pid(self, process: str) -> int:
        """Return the process id of a program of the stack."""
        return self.stack.processes[process].popen.pid

    def signal_all(self, process: str, how: int) -> None:
        """Send a signal to a worker and what it has started in its group: its pool processes and
        its guard.
        """
        os.killpg(self.pid(process), how)

    @contextmanager
    def paused(self, process: str) -> Iterator[None]:
        """Stop a program of the stack with SIGSTOP for the length of the block."""
        self.stack.processes[process].send(signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid(process)}/stat")
        self.until(
            lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{process} stands still"
        )
        try:
            yield
        finally:
            self.stack.processes[process].send(signal.SIGCONT)

    # -- facts -------------------------------------------------------------------------------------

    def until(self, fact: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
        """Wait for a fact and return it; say what was not seen, and what the processes last
        printed.

        `pytest -rP` shows how long each fact took.
        """
        began_s = time.monotonic()
        asked_s = began_s
        while not (found := fact()):
            now_s = time.monotonic()
            if now_s > began_s + patience_s:
                self._ask_where()
                tails = "\n".join(
                    f"-- {name}\n{self.lines(name)[-6000:]}" for name in self.stack.processes
                )
                pytest.fail(f"not seen within {patience_s:g} s: {what}\n{tails}")
            pause(now_s - began_s, now_s - asked_s)
            asked_s = time.monotonic()
        print(f"after {time.monotonic() - began_s:.2f} s: {what}")
        return found

    def _ask_where(self) -> None:
        """Have each worker log where its threads stand, as Celery does at SIGUSR1."""
        for name in self.stack.alive():
            if not name.startswith("scheduler"):
                self.stack.processes[name].send(signal.SIGUSR1)
        time.sleep(1)

    def status(self, id: Any) -> TaskStatus:
        """Return the status of a task, or of an AsyncResult's task."""
        return self.client.status(str(id))

    def until_state(self, id: Any, *states: str) -> TaskStatus:
        """Wait until a task is in one of these states."""
        try:
            self.until(
                lambda: self.status(id).state in states, f"task {id} is {' or '.join(states)}"
            )
        except pytest.fail.Exception as error:
            pytest.fail(f"{error}\n-- it is {self.status(id)}\n-- nodes: {self.client.nodes()}")
        return self.status(id)

    def leases(self) -> list[Lease]:
        """Return every lease of the cluster."""
        return [
            lease for p in (0, 1) for lease in self.store.leases(p, self.store.nodes(p).values())
        ]

    def until_idle(self) -> None:
        """Wait until no slot is held."""
        self.until(lambda: not self.leases(), "no slot is held")

    def marks(self, event: str = "", key: str = "") -> list[list[str]]:
        """Return the marks that tasks have left, [event, key, pid, time], in their order."""
        marks = [mark.decode().split() for mark in self.redis.lrange(self.tasks.MARKS, 0, -1)]
        return [mark for mark in marks if event in ("", mark[0]) and key in ("", mark[1])]

    def counts(self, event: str) -> Counter[str]:
        """Return, by key, how many marks of this event there are."""
        return Counter(mark[1] for mark in self.marks(event))

    def open(self, gate: str = "go") -> None:
        """Let the tasks pass that wait at a gate."""
        self.redis.set(f"test:gate:{gate}", "open", ex=300)

    def until_clean(self) -> None:
        """Wait until the audit finds nothing. On a busy cluster the audit may once report a contradiction that never existed."""
        deadline = time.monotonic() + PATIENCE_S
        while found := audit(self.store):
            assert time.monotonic() < deadline, "the state cannot be:\n" + "\n".join(found)
            time.sleep(0.1)

    def close(self) -> None:
        """Stop everything."""
        self.stack.stop()
        self.client.close()
        self.store.client.close()
        self.redis.close()

"""The rig of the acceptance tests: a real server, real schedulers and real Celery workers, each in its own process.

A test module has one stack for all its tests; a test starts and stops what it needs more. After each test the state
must pass the audit. Nothing sleeps to give something time: tests wait for facts.
"""

import importlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.cli.stack import LocalStack
from parsync_redis.inspect.audit import audit
from parsync_redis.model.node import Lease
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.views import NodeView
from parsync_redis.store.embedded import EmbeddedServer
from parsync_redis.store.store import Store
from tests.conftest import server_programs

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
APP = "tests.acceptance.app:app"
CLUSTER = "acceptance"
_PATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # another Celery may be first there
LEASE_S = 2.0
PATIENCE_S = 25.0


class Rig:
    """A stack, and what tests ask of it."""

    def __init__(self, url: str, tasks: ModuleType, logs: Path, env: Mapping[str, str]) -> None:
        self.url, self.tasks, self.logs = url, tasks, logs
        self.store = Store.from_url(url, CLUSTER)
        self.redis: Any = self.store.client
        self.redis.flushall()
        self.client = ParsyncClient.from_url(url, CLUSTER)
        env = {"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": url, "PYTHONPATH": _PATH, **env}
        self.stack = LocalStack(CLUSTER, url, logs=logs, cwd=ROOT, env=env, grace_s=15.0)

    # -- processes ---------------------------------------------------------------------------------------------------

    def schedulers(self, n: int = 1) -> list[str]:
        """Starts schedulers, and waits until they are members."""
        names = self.stack.scheduler(n, lease_s=LEASE_S, partitions=2, gap_s=0.1)
        key = self.store.keys.shared("schedulers")
        self.until(lambda: all(self.redis.hexists(key, name) for name in names), f"{names} are members")
        return names

    def worker(self, node: str, *extra: str, up: bool = True, **options: Any) -> str:
        """Starts a worker that is a node, and waits until it is up."""
        options.setdefault("slots", 2)
        self.stack.worker(APP, node, extra=("-l", "info", "-E", *extra), **options)
        if up:
            self.until_up(node)
        return node

    def until_up(self, *names: str) -> None:
        """Waits until these nodes are up, and known to submit."""
        shapes = self.store.keys.queue("shapes")
        self.until(lambda: all(self.node(name).state == "up" for name in names), f"{names} are up")
        self.until(lambda: all(self.redis.hexists(shapes, name) for name in names), f"{names} are known to submit")

    def node(self, name: str) -> NodeView:
        """A node as Redis has it; its state is '' if there is none."""
        found = [node for node in self.client.nodes() if node.name == name]
        return found[0] if found else NodeView(name, -1, "", False, 0, 0.0, 0, 0, 0, {}, {}, {})

    def lines(self, process: str) -> str:
        """Return the output of a process."""
        path = self.logs / f"{process}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def pid(self, process: str) -> int:
        """The process id of a program of the stack."""
        return self.stack.processes[process].popen.pid

    # -- facts -------------------------------------------------------------------------------------------------------

    def until(self, fact: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
        """Waits for a fact and returns it; says what was not seen, and what the processes last printed.

        `pytest -rP` shows how long each fact took.
        """
        began_s = time.monotonic()
        deadline = began_s + patience_s
        while not (found := fact()):
            if time.monotonic() > deadline:
                tails = "\n".join(f"-- {name}\n{self.lines(name)[-1500:]}" for name in self.stack.processes)
                pytest.fail(f"not seen within {patience_s:g} s: {what}\n{tails}")
            time.sleep(0.02)
        print(f"after {time.monotonic() - began_s:.2f} s: {what}")
        return found

    def status(self, id: Any) -> TaskStatus:
        """Return the status of a task, or of an AsyncResult's task."""
        return self.client.status(str(id))

    def until_state(self, id: Any, *states: str) -> TaskStatus:
        """Waits until a task is in one of these states."""
        self.until(lambda: self.status(id).state in states, f"task {id} is {' or '.join(states)}")
        return self.status(id)

    def leases(self) -> list[Lease]:
        """Every lease of the cluster."""
        return [lease for p in (0, 1) for lease in self.store.leases(p, self.store.nodes(p).values())]

    def until_idle(self) -> None:
        """Waits until no slot is held."""
        self.until(lambda: not self.leases(), "no slot is held")

    def marks(self, event: str = "", key: str = "") -> list[list[str]]:
        """The marks that tasks have left, [event, key, pid, time], in their order."""
        found = [mark.decode().split() for mark in self.redis.lrange(self.tasks.MARKS, 0, -1)]
        return [mark for mark in found if event in ("", mark[0]) and key in ("", mark[1])]

    def counts(self, event: str) -> Counter[str]:
        """How often each key has a mark of this event."""
        return Counter(mark[1] for mark in self.marks(event))

    def open(self, gate: str = "go") -> None:
        """Lets the tasks pass that wait at a gate."""
        self.redis.set(f"test:gate:{gate}", "open", ex=300)

    def until_clean(self) -> None:
        """Waits until the audit finds nothing: on a busy cluster it may name a fact of no single moment, once."""
        deadline = time.monotonic() + 4 * LEASE_S
        while found := audit(self.store):
            assert time.monotonic() < deadline, "the state cannot be:\n" + "\n".join(found)
            time.sleep(0.1)

    def close(self) -> None:
        """Stops everything."""
        self.stack.stop()
        self.client.close()
        self.store.client.close()


@pytest.fixture(scope="session")
def tasks() -> Iterator[ModuleType]:
    """The module of the app, on a server of its own."""
    program = next(iter(server_programs().values()))
    with EmbeddedServer(program) as server, pytest.MonkeyPatch.context() as patch:
        for name in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "PARSYNC_URL"):
            patch.setenv(name, server.url)
        patch.setenv("PARSYNC_CLUSTER", CLUSTER)
        module = importlib.import_module("tests.acceptance.app")
        assert module.app.parsync.client.store.address in server.url, "its settings are read now, and no more"
        patch.undo()
        yield module


@pytest.fixture(scope="module")
def new_rig(tasks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Rig]]:
    """Makes the module's rig; everything it has started is stopped after the module."""
    made: list[Rig] = []

    def make(**env: str) -> Rig:
        made.append(Rig(tasks.BROKER, tasks, tmp_path_factory.mktemp("logs"), env))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the state must be one that can be."""
    rig = request.getfixturevalue("rig") if "rig" in request.fixturenames else None
    if rig is not None:
        rig.redis.delete(rig.tasks.MARKS)
        rig.redis.delete(*(rig.redis.keys("test:gate:*") or ["test:gate:none"]))
    yield
    if rig is not None:
        rig.until_clean()

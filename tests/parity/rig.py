"""Two stacks on one server: a plain Celery worker, and schedulers with a worker that is a node; and
who runs cases.
"""

import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import celery

from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store
from tests.kit import REPO
from tests.kit.rig import LONG_LEASE_S
from tests.kit.servers import server_programs

from .app import PARSYNC, PLAIN, build
from .case import Case, Context, Said, comparable, connect

KINDS = (PLAIN, PARSYNC)
AT_ONCE = 6
"""Cases of one stack that run at the same time."""
PROCESSES = 10
"""Processes of each worker: more than the cases that run at once, because some tasks wait for a while."""
# another Celery may be first there
_PATH = os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH"))))
CELERY = tuple(int(part) for part in celery.__version__.split(".")[:2])


class Parity:
    """Runs cases on both stacks of one pool, and keeps what each answered."""

    def __init__(self, pool: str, logs: Path) -> None:
        self.pool = pool
        self._server = EmbeddedServer(list(server_programs().values())[-1])
        base = (
            self._server.url.rpartition("/")[0]
            if self._server.url.count("/") > 2
            else self._server.url
        )
        self.urls = {PARSYNC: f"{base}/0", PLAIN: f"{base}/1"}
        self.stacks: dict[str, LocalStack] = {}
        self.said: dict[str, Said] = {}
        self._readers: list[Thread] = []
        self.apps = {kind: build(kind, self.urls[kind]) for kind in KINDS}
        for kind in KINDS:
            env = {
                "PARITY_KIND": kind,
                "PARSYNC_CLUSTER": "parsync",
                "PARITY_URL": self.urls[kind],
                "PYTHONPATH": _PATH,
                "C_FORCE_ROOT": "1",
            }
            self.stacks[kind] = LocalStack(
                "parsync", self.urls[kind], logs=logs / kind, cwd=REPO, env=env
            )

    def start(self) -> None:
        """Start everything, and wait until the workers answer and the readers of events hear."""
        words = ("-l", "info", "-E", "-c", str(PROCESSES), "--without-mingle", "--without-gossip")
        self.stacks[PARSYNC].scheduler(1, partitions=1, lease_s=LONG_LEASE_S)
        for kind in KINDS:
            node = ("--parsync-node", "n1") if kind == PARSYNC else ()
            program = (
                sys.executable,
                "-m",
                "celery",
                "-A",
                "tests.parity.app:app",
                "worker",
                "-P",
                self.pool,
            )
            self.stacks[kind].start("worker", [*program, "-n", f"{kind}@%h", *words, *node])
        deadline = time.monotonic() + 180
        store = Store.from_url(self.urls[PARSYNC], "parsync")
        up = dict.fromkeys(KINDS, False)
        while not all(up.values()):
            assert time.monotonic() < deadline, f"not up: {up}; see {self.stacks[PLAIN].logs}"
            time.sleep(0.1)
            # a node is up before its worker has reached the broker, and sends no events till then
            for kind in KINDS:
                up[kind] = bool(self.apps[kind].control.ping(timeout=2.0))
            up[PARSYNC] = (
                up[PARSYNC]
                and bool(store.client.hlen(store.keys.queue("shapes")))
                and any(node.state == "up" for node in store.nodes(0).values())
            )
        store.client.close()
        for kind in KINDS:
            self.said[kind] = Said(self.apps[kind])
            self._readers.append(Thread(target=self.said[kind].run, daemon=True))
            self._readers[-1].start()
        for kind in KINDS:
            self._until_heard(kind, deadline)

    def _until_heard(self, kind: str, deadline: float) -> None:
        """Send an event of its own until the reader hears it: what is sent before it has
        subscribed is lost.
        """
        probe = uuid4().hex
        with self.apps[kind].events.default_dispatcher() as events:
            while not self.said[kind].of(probe):
                assert time.monotonic() < deadline, f"the reader of {kind} hears no events"
                events.send("parity-probe", uuid=probe)
                time.sleep(0.05)

    def held(self) -> list[str]:
        """Return the tasks that still hold slots when a lease has passed since all cases ended;
        none, unless a slot leaks.
        """
        store = Store.from_url(self.urls[PARSYNC], "parsync")
        deadline = time.monotonic() + 180
        while True:
            leases = store.leases(0, store.nodes(0).values())
            if not leases or time.monotonic() > deadline:
                store.client.close()
                return [lease.place.task for lease in leases]
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop everything."""
        for said in self.said.values():
            said.stop()
        for reader in self._readers:
            reader.join(timeout=5)
        gc.collect()  # results say goodbye to the server while it is there
        for stack in self.stacks.values():
            stack.stop()
        for app in self.apps.values():
            app.close()
        self._server.stop()

    def run(self, cases: Iterable[Case]) -> dict[str, dict[str, "Future[Any]"]]:
        """Run cases on both stacks, many at a time and then those that must be alone; their
        answers by id and kind.
        """
        cases = list(cases)
        answers: dict[str, dict[str, Future[Any]]] = {case.id: {} for case in cases}
        pools = {
            kind: ThreadPoolExecutor(AT_ONCE, initializer=self.apps[kind].set_current)
            for kind in KINDS
        }
        for case in cases:
            if not case.alone:
                for kind in KINDS:
                    answers[case.id][kind] = pools[kind].submit(self._answer, case, kind)
        for pool in pools.values():
            pool.shutdown()
        with (
            ThreadPoolExecutor(1, initializer=self.apps[PLAIN].set_current) as plain,
            ThreadPoolExecutor(1, initializer=self.apps[PARSYNC].set_current) as parsync,
        ):
            by_kind = {PLAIN: plain, PARSYNC: parsync}
            for case in cases:
                # one stack after the other: what Celery keeps for a whole process is kept for both
                if case.alone:
                    for kind in KINDS:
                        answers[case.id][kind] = by_kind[kind].submit(self._answer, case, kind)
                        answers[case.id][kind].exception()
        return answers

    def _answer(self, case: Case, kind: str) -> Any:
        worker = f"{kind}@{os.uname().nodename}"
        context = Context(
            self.apps[kind], kind, self.pool, connect(self.urls[kind]), worker, self.said[kind]
        )
        began = time.monotonic()
        try:
            answer = case.run(context)
        except Exception as error:
            answer = {"the case raised": error}
        finally:
            context.open()
            context.redis.close()
        return comparable(answer, worker), time.monotonic() - began


@contextmanager
def running(pool: str, logs: Path) -> Iterator[Parity]:
    """Yield a rig that runs; leave nothing behind."""
    rig = Parity(pool, logs)
    try:
        rig.start()
        yield rig
    finally:
        rig.stop()

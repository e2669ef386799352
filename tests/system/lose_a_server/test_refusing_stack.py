"""F17, F20, F22: a server that answers and refuses ends no process, costs no start, and loses no
result.

One stack lives through all refusals: two schedulers, mixed workers of each pool, and `parsync
serve`. The server is the state, the broker and the result backend at once.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parsync_redis.errors import ParsyncError
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.refusals import REFUSALS, refusing_server
from tests.kit.rig import CLUSTER, Rig
from tests.kit.servers import server_programs
from tests.kit.serving import Serving

pytestmark = pytest.mark.serial
APP = "tests.kit.apps.refusing:app"
POOLS = ("prefork", "threads", "solo")
LEASE_S = 120.0
GET_S = 180
NO_WRITES = ("MISCONF", "NOREPLICAS", "READONLY", "OOM")
"""Refusals of writes alone: the server can be read."""


class Site(Rig):
    """The stack, and the folder of its gates."""

    gates: Path
    serving: Serving

    def pids(self) -> dict[str, int]:
        """Return the programs that are alive."""
        return {name: self.stack.processes[name].popen.pid for name in self.stack.alive()}

    def noticed(self, process: str) -> int:
        """Return how often a process has logged that the server refuses, or is lost."""
        words = ("asks again until", "Connection to broker lost", "Cannot connect to")
        return sum(self.lines(process).count(word) for word in words)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    program = list(server_programs().values())[-1]
    with refusing_server(program, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def site(refusing: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    gates = tmp_path_factory.mktemp("gates")
    env = {
        "TEST_REFUSING_URL": refusing.url,
        "TEST_REFUSING_FOLDER": str(gates),
        "PARSYNC_CLUSTER": CLUSTER,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        # the module reads its addresses when it is imported
        sys.modules.pop("tests.kit.apps.refusing", None)
        tasks = importlib.import_module("tests.kit.apps.refusing")
        site = Site(
            refusing.url, tasks, tmp_path_factory.mktemp("logs"), env, celery_url=refusing.url
        )
        site.gates = gates
        site.schedulers(2, lease_s=LEASE_S)
        for pool in POOLS:
            extra = ("-l", "info", "-Q", f"celery,{pool}")
            site.stack.worker(APP, pool, slots=1, pool=pool, labels={"node": pool}, extra=extra)
        site.stack.start(
            "serve", [sys.executable, "-m", "parsync_redis.cli", "serve", "--port", "0"]
        )
        site.serving = Serving(site.stack.processes["serve"])
        site.until_up(*POOLS)
        yield site
        site.close()
        # Celery would wait for a server that is gone, see test_rabbitmq.py
        tasks.app.backend.result_consumer._pubsub = None


@pytest.mark.parametrize("word", REFUSALS)
def test_a_refusal_ends_no_process_costs_no_start_and_loses_no_result(
    site: Site, refusing: EmbeddedServer, word: str
) -> None:
    tasks = site.tasks
    pids = site.pids()
    gates = {pool: f"{word}-{pool}" for pool in POOLS}
    results = {
        pool: tasks.gated.apply_async((gate,), parsync={"require": {"node": pool}})
        for pool, gate in gates.items()
    }
    site.until(
        lambda: all((site.gates / f"{gate}.begun").exists() for gate in gates.values()),
        "one runs in each pool",
    )
    # F19: most goes on
    observers = () if word == "OOM" else ("prefork", "threads", "scheduler-1", "scheduler-2")
    noticed = {name: site.noticed(name) for name in observers}
    site.client.requests.retry_for_s = 0.2
    with REFUSALS[word](refusing):
        site.until(
            lambda: all(site.noticed(name) > count for name, count in noticed.items()),
            "each has noticed",
        )
        with pytest.raises(ParsyncError):
            site.client.submit("tests.kit.apps.refusing.add", [1, 1])
        if word in NO_WRITES:
            site.serving.until_json(
                "/readyz",
                lambda found: found["reasons"][:1] and found["reasons"][0]["name"] == "writes",
            )
        if word == "NOREPLICAS":
            said = "gets no tasks: the server at"
            site.until(
                lambda: all(said in site.lines(pool) for pool in POOLS),
                "each node says what keeps tasks from it",
            )
        for gate in gates.values():
            (site.gates / f"{gate}.open").touch()
        site.until(
            lambda: all((site.gates / f"{gate}.over").exists() for gate in gates.values()),
            "all are over",
        )
    for pool, result in results.items():
        assert result.get(timeout=GET_S) == gates[pool]
        status = site.until_state(result.id, "succeeded")
        assert (status.starts, status.history) == (1, ()), f"{pool}: {status}"
    more = [
        tasks.add.apply_async((n, n), parsync={"require": {"node": pool}})
        for n, pool in enumerate(POOLS)
    ]
    assert [result.get(timeout=GET_S) for result in more] == [0, 2, 4]
    assert [tasks.plain.apply_async((1,), queue=pool).get(timeout=GET_S) for pool in POOLS] == [
        2,
        2,
        2,
    ]
    assert site.pids() == pids, "every process lives"
    site.until(lambda: site.serving.get("/healthz")[0] == 200, "its pages are well again")

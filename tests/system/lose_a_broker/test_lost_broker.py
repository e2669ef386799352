"""F45 and the shutdowns: what Celery does to requests because of their messages costs a placed task
no start.

The broker is a Redis of its own, which is killed twice while tasks run. The app acknowledges late,
and has Celery cancel what runs when the broker's connection is lost, as Celery 6 does by default.
So a plain task is cancelled, and its message is the broker's to deliver again: parsync changes
nothing of that.
"""

import importlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery.result import AsyncResult

from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.rig import CLUSTER, LONG_LEASE_S, Rig
from tests.kit.servers import server_programs

pytestmark = pytest.mark.serial
APP = "tests.kit.apps.refusing:app"
POOLS = ("prefork", "threads", "solo")
GET_S = 180
LOST = "Connection to broker lost"
CANCELLED = " cannot be acknowledged after a connection loss"


class Site(Rig):
    """The stack, and the folder of its gates."""

    gates: Path

    def held(self, pool: str, gate: str) -> AsyncResult:
        """Submit a task that runs on that node until its gate is opened, and wait
        until it runs.
        """
        result: AsyncResult = self.tasks.gated.apply_async(
            (gate,), parsync={"require": {"node": pool}}
        )
        self.until((self.gates / f"{gate}.begun").exists, f"{gate} runs")
        return result

    def until_said(self, pool: str, words: str, times: int) -> None:
        """Wait until a worker has said so, so many times."""
        self.until(
            lambda: self.lines(pool).count(words) >= times, f"{pool} says {words!r}, {times} times"
        )

    def pass_gate(self, gate: str) -> None:
        """Open a gate."""
        (self.gates / f"{gate}.open").touch()


@pytest.fixture(scope="module")
def servers_apart() -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """Yield the state and results, and the broker."""
    program = next(iter(server_programs().values()))
    with EmbeddedServer(program) as state, EmbeddedServer(program) as broker:
        yield state, broker


@pytest.fixture(scope="module")
def site(
    servers_apart: tuple[EmbeddedServer, EmbeddedServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    state, broker = servers_apart
    gates = tmp_path_factory.mktemp("gates")
    env = {
        "TEST_REFUSING_URL": state.url,
        "TEST_REFUSING_BROKER": broker.url,
        "TEST_REFUSING_FOLDER": str(gates),
        "PARSYNC_CLUSTER": CLUSTER,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        # the module reads its addresses when it is imported
        sys.modules.pop("tests.kit.apps.refusing", None)
        tasks = importlib.import_module("tests.kit.apps.refusing")
        env = {**env, "CELERY_BROKER_URL": broker.url}
        site = Site(state.url, tasks, tmp_path_factory.mktemp("logs"), env, celery_url=state.url)
        site.gates = gates
        site.schedulers(1, lease_s=LONG_LEASE_S)
        for pool in POOLS:
            extra = ("-l", "info", "-Q", f"celery,{pool}")
            site.stack.worker(APP, pool, slots=1, pool=pool, labels={"node": pool}, extra=extra)
        site.until_up(*POOLS)
        yield site
        site.close()
        # Celery would wait for a server that is gone, see test_rabbitmq.py
        tasks.app.backend.result_consumer._pubsub = None


def test_outages_of_the_broker_cost_no_start(
    site: Site, servers_apart: tuple[EmbeddedServer, EmbeddedServer]
) -> None:
    broker = servers_apart[1]
    assert [
        site.tasks.plain.apply_async((1,), queue=pool).get(timeout=GET_S) for pool in POOLS
    ] == [2, 2, 2]
    results = {pool: site.held(pool, f"outage-{pool}") for pool in POOLS}
    for number in (1, 2):
        broker.restart(kill=True)
        for pool in ("prefork", "threads"):  # the event loop of a solo worker runs the task
            site.until_said(pool, LOST, number)
            site.until_said(pool, "Connected to redis", number + 1)
    for pool, result in results.items():
        site.pass_gate(f"outage-{pool}")
        assert result.get(timeout=GET_S) == f"outage-{pool}"
        status = site.until_state(result.id, "succeeded")
        assert (status.starts, status.history) == (1, ()), f"{pool}: {status}"
    assert [
        site.tasks.plain.apply_async((1,), queue=pool).get(timeout=GET_S) for pool in POOLS
    ] == [2, 2, 2]
    assert "Terminating it instead" not in site.lines("prefork") + site.lines("threads")


def test_an_outage_of_the_broker_cancels_a_plain_task_as_in_celery_and_the_node_lives(
    site: Site, servers_apart: tuple[EmbeddedServer, EmbeddedServer]
) -> None:
    begun = site.gates / "plain.begun"
    result = site.tasks.plain_gated.apply_async(("plain",), queue="prefork")
    site.until(begun.exists, "it runs")
    servers_apart[1].restart(kill=True)
    site.until(lambda: f"[{result.id}]{CANCELLED}" in site.lines("prefork"), "Celery cancels it")
    site.until(lambda: result.state == "RETRY", "Celery stores that it is to run again")
    site.pass_gate("plain")
    assert site.tasks.plain.apply_async((1,), queue="prefork").get(timeout=GET_S) == 2


def test_a_soft_shutdown_lets_a_run_end_and_takes_no_more(site: Site) -> None:
    """Celery's event loop sleeps meanwhile, until the time is over."""
    running = site.held("prefork", "soft")
    worker = site.stack.processes["prefork"]
    worker.send(signal.SIGQUIT)
    site.until(lambda: "Initiating Soft Shutdown" in site.lines("prefork"), "it shuts down softly")
    site.until(lambda: site.node("prefork").state == "leaving", "its node leaves at once")
    site.pass_gate("soft")
    assert running.get(timeout=GET_S) == "soft"
    worker.end(time.monotonic() + GET_S)
    status = site.until_state(running.id, "succeeded")
    assert (status.starts, status.history) == (1, ()), f"{status}"

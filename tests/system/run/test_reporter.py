"""The report of an outcome, and the end of a worker: no slot is free before its task's outcome is
known or its run has ended, whatever the server forgets.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool

from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.needs import Resources
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.worker.celery.port import CeleryWorker
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.runs import Run, Runs
from tests.kit.driver import Driver


@pytest.mark.one_server(0)
def test_a_server_that_lost_the_script_of_the_outcome_only_frees_no_slot(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Driver(store)
    runs = Runs()
    drive.node()
    drive.submit("a")
    run = Run(drive.held("a", drive.take()["a"]), outcome="succeeded")
    assert drive.start(run.place) == "ok"
    assert runs.enter(run)
    reporter = Reporter(store, runs)
    store.client.script_flush()
    store.client.script_load(
        next(script.text for script in ALL_SCRIPTS if script.verb == "release")
    )

    def gone(*_: object) -> None:
        raise ServerUnreachable("it went away before the scripts were there again")

    with monkeypatch.context() as patch:
        patch.setattr(store, "load_scripts", gone)
        assert isinstance(reporter._report(store, [run]), ServerUnreachable)
    assert drive.state("a") == "running"
    assert drive.hash("slots"), "the slot of a running task was freed"
    assert reporter._report(store, [run]) is None
    assert drive.state("a") == "succeeded"
    assert not drive.hash("slots")
    assert len(runs) == 0


@pytest.mark.one_server(0)
@pytest.mark.parametrize("superseded", [False, True], ids=["cold", "superseded"])
@pytest.mark.parametrize(
    "pool", [ThreadPool, PreforkPool, SoloPool], ids=["threads", "prefork", "solo"]
)
def test_a_worker_that_ends_gives_back_no_task_whose_thread_goes_on(
    store: Store, pool: type, superseded: bool
) -> None:
    """The run dies with the node's lease; after that the leader gives the task back."""
    drive = Driver(store)
    settings = Settings.load(url=f"redis://{store.address}/0", cluster=store.keys.cluster)
    worker: Any = SimpleNamespace(app=None, pool_cls=pool)
    agent = Agent(
        settings,
        store.with_own_connections(),
        NodeSpec("n1", Resources.of(2), 1.0),
        CeleryWorker(worker),
    )
    node = agent.node
    node.partition = 0
    node.inc = drive.node("n1", 2)
    drive.submit("goes-on")
    run = Run(drive.held("goes-on", drive.take()["goes-on"], slots=(0,), inc=node.inc))
    assert drive.start(run.place) == "ok"
    assert node.runs.enter(run)
    run.request = SimpleNamespace(id="goes-on", time_start=1.0)
    assert node.runs.begin(run, 1.0)
    drive.submit("placed")
    drive.held("placed", drive.take()["placed"], slots=(1,), inc=node.inc)
    if superseded:
        drive.node("n1", 2)
    agent.depart()
    assert drive.state("placed") == "pending"
    goes_on = pool is ThreadPool
    assert drive.state("goes-on") == ("running" if goes_on else "pending")
    assert len(drive.hash("slots")) == (1 if goes_on else 0)
    assert ("n1" in drive.hash("nodes")) == (goes_on or superseded)
    assert drive.hash("alive").get("n1", "down").endswith("down") != (goes_on or superseded)

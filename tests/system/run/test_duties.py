"""The threads of an agent live on after any error; if a thread ends nevertheless, its worker ends."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery

from parsync_redis import Parsync
from parsync_redis.model.needs import Resources
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.runs import Run
from tests.kit.driver import Driver
from tests.kit.waiting import happened, until
from tests.system.run.test_inbox import NoWorker

pytestmark = pytest.mark.one_server(0)


class Worker(NoWorker):
    """Notes how it is told to stop."""

    def __init__(self) -> None:
        self.stops: list[bool] = []

    def stop(self, cold: bool) -> None:
        self.stops.append(cold)


class Counted:
    """Counts the calls of a function."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self._plain = plain
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self._plain(*args)


class Once(Counted):
    """Fails in its first call."""

    def __call__(self, *args: Any) -> Any:
        if self.calls == 0:
            self.calls += 1
            raise ValueError("nobody expects this")
        return super().__call__(*args)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def agent(store: Store, worker: Worker) -> Iterator[Agent]:
    """Yield an agent whose node is registered and looks ahead; its event loop turns."""
    app = Celery("duties", set_as_current=False)
    settings = Settings.load(url=f"redis://{store.address}/0", cluster=store.keys.cluster)
    Parsync(app, settings.url, settings.cluster)
    spec = NodeSpec("n1", Resources.of(1), 1.0, room=1)
    agent = Agent(settings, store.with_own_connections(), spec, worker)
    agent.node.pause_s = 0.01
    agent.loop.turned()
    yield agent
    agent.stop()


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (lambda agent: agent.node.isolation, "has_news"),
        (lambda agent: agent._renewal, "is_stuck"),
        (lambda agent: agent.seat_keeper, "keep"),
    ],
    ids=["renewer", "tend", "seats"],
)
def test_a_thread_goes_on_after_an_error_that_nobody_expects(
    agent: Agent,
    worker: Worker,
    part: Callable[[Agent], Any],
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = Once(getattr(part(agent), name))
    vars(part(agent))[name] = once
    agent.start()
    until(lambda: once.calls > 1, "the thread goes on")
    assert "unexpected" in next(line for line in caplog.records if line.exc_info).message
    assert worker.stops == []


def test_a_guard_that_starts_slowly_does_not_end_the_worker_however_short_the_limit(
    agent: Agent, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """A busy machine needs more than four seconds for a start: a run of CI showed that."""
    go_on = threading.Event()
    settings = agent.settings.model_copy(update={"lease_s": 0.05, "standstill_s": 0.1})
    join_cluster(agent.store, settings, create=True)
    agent.settings = settings
    looks = Counted(agent._renewal.is_stuck)
    vars(agent._renewal)["is_stuck"] = looks
    vars(agent.node.isolation)["begin"] = lambda: happened(go_on, "the guard is ready")
    agent.start()
    try:
        until(lambda: "stands still; it waits in" in caplog.text, "the log names the thread")
        seen = looks.calls
        until(lambda: looks.calls > seen + 10, "looks at a limit that is over")
        assert worker.stops == []
    finally:
        go_on.set()


def test_the_reporter_goes_on_if_it_cannot_read_which_process_lives_in_a_slot(
    agent: Agent, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drive = Driver(store)
    drive.node()
    drive.submit("a")
    run = Run(drive.held("a", drive.take()["a"]))
    assert drive.start(run.place) == "ok"
    assert agent.node.runs.enter(run)
    isolation = agent.node.isolation
    monkeypatch.setattr("parsync_redis.worker.node.reporter.KILLED_PROCESS_S", 0.0)
    living = Once(isolation.living)
    vars(isolation).update(living=living, free=lambda slots: living.calls > 0)
    agent.start()
    agent.reporter.ended(run, "succeeded")
    until(lambda: not drive.hash("slots"), "the slot is free")
    assert "slots could not be looked at: unexpected" in caplog.messages


@pytest.mark.parametrize(
    "name", ["parsync-report", "parsync-renew", "parsync-tend", "parsync-seats"]
)
def test_a_worker_ends_if_a_thread_of_its_agent_ends(
    agent: Agent, worker: Worker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    again = agent.store.with_own_connections

    def fail() -> Store:
        if threading.current_thread().name == name:
            raise ValueError("nobody expects this")
        return again()

    vars(agent.store).update(with_own_connections=fail)
    agent.start()
    until(lambda: worker.stops == [True], "it is told to stop")
    assert f"the thread {name} has ended by an error: its worker ends" in caplog.messages

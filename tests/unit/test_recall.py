"""A recall: a run is ended in favour of another node, softly first, and its start does not count."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import state

from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import ClusterConfig
from parsync_redis.store.store import Store
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.isolation.tie import NotBegun
from parsync_redis.worker.node.loop_watch import LoopWatch
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.node_state import AgentState
from parsync_redis.worker.node.renewer import RECALL_GRACE_S, Renewer
from parsync_redis.worker.node.reporter import Reporter, outcomes
from parsync_redis.worker.node.runs import Run, Runs
from tests.system.run.test_inbox import NoWorker
from tests.unit.test_request import placed_request, run_of


class Worker(NoWorker):
    """The port of a worker that notes which runs it was asked to end."""

    def __init__(self) -> None:
        self.signals: list[tuple[str, str]] = []

    def kill(self, request: Any, signal: str = "SIGKILL") -> None:
        self.signals.append((request.id, signal))


def renewer_and_runs(*ids: str) -> tuple[Renewer, Worker, list[Run]]:
    """Return a renewer whose node runs these tasks; the request of `waits` is not made yet."""
    settings = Settings.load(url="redis://127.0.0.1:1/0", cluster="recalls")
    node = AgentState(NodeSpec("n1", Resources.of(len(ids)), 1.0), Isolation())
    worker = Worker()
    runs = [Run(Place(id, "1@1", 0, "n1", (slot,), 1, 0)) for slot, id in enumerate(ids)]
    for run in runs:
        assert node.runs.enter(run)
        if run.place.task != "waits":
            run.request = SimpleNamespace(id=run.place.task, time_start=1.0)
    return Renewer(settings, node, worker, LoopWatch()), worker, runs


def test_a_recalled_run_is_asked_to_end_once_and_killed_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewer, worker, runs = renewer_and_runs("a", "b", "waits")
    renewer.recall(runs, "n1 shrank")
    renewer.recall(runs, "n1 leaves")
    renewer.kill_recalled()
    assert worker.signals == [("a", "SIGTERM"), ("b", "SIGTERM")]
    assert [run.why for run in runs] == ["n1 shrank"] * 3
    assert runs[2].unwanted == "recalled"
    renewer._node.runs.end(runs[0], "recalled")
    later_s = time.monotonic() + RECALL_GRACE_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    renewer.kill_recalled()
    renewer.kill_recalled()
    assert worker.signals[2:] == [("b", "SIGKILL")], "a has ended"


def test_a_run_that_is_handed_over_while_it_is_recalled_is_ended_by_the_next_call() -> None:
    renewer, worker, (run,) = renewer_and_runs("waits")
    renewer.recall([run], "its node leaves")
    assert run.unwanted == "recalled"
    run.request = SimpleNamespace(id="waits", time_start=1.0)
    renewer.recall([run], "its node leaves")
    renewer.recall([run], "its node leaves")
    assert (worker.signals, run.ending) == ([("waits", "SIGTERM")], "recalled")


def test_a_notice_that_cannot_be_told_is_tried_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewer, _, _ = renewer_and_runs("a")
    node = renewer._node
    node.inc = 1
    node.pause_s = 60.0
    waits: list[float] = []

    def wait(pause_s: float) -> None:
        waits.append(pause_s)
        node.stop()

    monkeypatch.setattr(node, "wait", wait)
    store = Store.from_url("redis://127.0.0.1:1/0", "recalls")
    node.take_notice("30")
    renewer._wait(60.0)
    assert waits == [], "a new notice is told at once"
    with pytest.raises(ServerUnreachable):
        renewer.renew(store, ClusterConfig(partitions=1, gap_s=1.0, lease_s=10.0))
    renewer._wait(60.0)
    assert len(waits) == 1


def test_only_runs_in_shut_slots_change_what_the_node_offers() -> None:
    runs = Runs()

    def run_in(id: str, *slots: int) -> Run:
        return Run(Place(id, "1@1", 0, "n1", slots, 1, 0))

    long_run = run_in("long", 5)
    assert runs.enter(long_run)
    assert runs.behind(4, True) == {long_run.key}
    for slot in (0, 1, 2):
        assert runs.enter(run_in(f"t{slot}", slot))
        assert runs.behind(4, True) == {long_run.key}
    full_run = run_in("full", 3)
    assert runs.enter(full_run)
    assert runs.behind(4, True) == runs.keys(), "all slots are shut"
    runs.drop([full_run])
    assert runs.behind(4, True) == {long_run.key}
    assert runs.behind(6, True) == frozenset()


def test_a_run_behind_the_slots_counts_by_its_slots_or_as_one_task() -> None:
    runs = Runs()
    wide_run = Run(Place("wide", "1@1", 0, "n1", (4, 5), 1, 0))
    third_run = Run(Place("third", "1@1", 0, "n1", (2,), 1, 0))
    assert runs.enter(wide_run)
    assert runs.enter(third_run)
    assert runs.behind(4, True) == {wide_run.key, third_run.key}
    assert runs.behind(4, False) == {wide_run.key}


def test_a_cancelled_run_is_not_recalled_and_a_lapsed_lease_kills_a_recalled_one() -> None:
    renewer, worker, (cancelled, recalled) = renewer_and_runs("a", "b")
    cancelled.ending = "SIGTERM"
    renewer.recall([cancelled, recalled], "n1 shrank")
    assert worker.signals == [("b", "SIGTERM")]
    renewer.end_runs([cancelled, recalled])
    renewer.end_runs([cancelled, recalled])
    assert worker.signals[1:] == [("b", "SIGKILL")]


def test_the_process_of_a_recalled_run_is_lost_and_its_task_goes_back_with_the_reason() -> None:
    renewer, _, (run,) = renewer_and_runs("a")
    store = Store.from_url("redis://127.0.0.1:1/0", "recalls")
    renewer.recall([run], "n1 shrank")
    Reporter(store, renewer._node.runs).ended(run, "lost")
    (call,) = outcomes(store.commands, [run])
    assert run.outcome == "recalled"
    assert {"n1 shrank", "recalled"} <= set(map(str, call.args))


class Threads:
    """A pool that cannot end a run, as Celery's pool of threads."""

    def terminate_job(self, pid: int, signal: int) -> None:
        raise NotImplementedError


class Processes:
    """A pool that notes the signals for its processes."""

    def __init__(self) -> None:
        self.signals: list[tuple[int, int]] = []

    def terminate_job(self, pid: int, signal: int) -> None:
        self.signals.append((pid, signal))


@pytest.fixture(autouse=True)
def no_active_requests() -> Iterator[None]:
    """Empty what Celery keeps of the runs of this process, for the tests that come after."""
    yield
    state.active_requests.clear()


def test_a_process_gets_the_soft_signal_and_then_the_hard_one() -> None:
    request = placed_request()
    pool = Processes()
    request.on_accepted(11, time.monotonic())
    request.drop(pool, "SIGTERM")
    request.drop(pool)
    assert pool.signals == [(11, 15), (11, 9)]


def test_a_process_that_begins_a_recalled_run_is_killed() -> None:
    request = placed_request()
    pool = Processes()
    request.drop(pool, "SIGTERM")
    assert pool.signals == []
    request.on_accepted(11, time.monotonic())
    assert pool.signals == [(11, 9)]


def test_a_thread_does_not_begin_a_recalled_run_and_goes_on_with_one_that_it_runs() -> None:
    request = placed_request()
    run = run_of(request)
    run.ending = "recalled"
    request.drop(Threads(), "SIGTERM")
    with pytest.raises(NotBegun):
        request.on_accepted(11, time.monotonic())
    assert run.outcome == "recalled"
    running = placed_request()
    running.on_accepted(11, time.monotonic())
    with pytest.raises(NotImplementedError):
        running.drop(Threads(), "SIGTERM")
    assert run_of(running).outcome == ""

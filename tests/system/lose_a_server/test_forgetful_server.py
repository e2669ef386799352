"""A server that has lost its last writes, as after a failover: the worker tells again what it alone
knows.
"""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from parsync_redis.wire.doorbell import read_doorbell
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.node_state import AgentState
from parsync_redis.worker.node.reconciler import Reconciler
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.run_starter import Starter
from parsync_redis.worker.node.runs import KEPT_PASSES, Run
from tests.kit.driver import Driver
from tests.kit.waiting import joined, until

pytestmark = pytest.mark.one_server(0)


class Ends:
    """The port of a worker that notes which runs it was told to end."""

    def __init__(self) -> None:
        self.ended: list[tuple[object, str]] = []

    def terminate(self, request: object, signal: str) -> None:
        self.ended.append((request, signal))


class Node:
    """A node of two slots, whose pool is the test.

    `forget` brings the server back to an earlier state.
    """

    def __init__(self, store: Store, room: int) -> None:
        self.drive = Driver(store)
        self.store = store
        self.port = Ends()
        spec = NodeSpec("n1", Resources.of(2), 1.0, room=room)
        store.run(store.commands.register_node(0, "n1", 0, 1.0, spec.offer.text, spec.room))
        self.state = AgentState(spec, Isolation())
        self.state.partition = 0
        self.state.inc = 1
        self.reporter = Reporter(store, self.state.runs)
        self.starter = Starter(store, self.state, self.reporter)
        self.reconciler = Reconciler(self.state, cast(Any, self.port))
        self.reporter.start()

    def held(self, task: str = "a") -> Place:
        """Place a task that is taken."""
        return self.drive.held(task, self.drive.taken(task))

    def start(self, *bells: Place) -> list[Run]:
        runs = [run for run, _ in self.starter.answer(bells)]
        for run in runs:
            run.request = cast(Any, object())
        return runs

    def copy(self) -> dict[bytes, Any]:
        client: Any = self.store.client
        return {key: client.dump(key) for key in client.scan_iter(count=1000)}

    def forget(self, copy: dict[bytes, Any]) -> None:
        client: Any = self.store.client
        for key in client.scan_iter(count=1000):
            client.delete(key)
        for key, value in copy.items():
            client.restore(key, 0, value)

    def end(self, run: Run, outcome: str) -> None:
        """Report how a run ended, until its slots are free."""
        self.reporter.ended(run, outcome)
        until(lambda: len(self.state.runs) == 0, "its slots are free")

    def rung(self) -> list[Place]:
        """Return the doorbells that two passes of the reconciler ring."""
        for _ in range(2):
            self.reconciler.reconcile(self.store)
        return [read_doorbell(bell) for bell in self.drive.inbox()]


@pytest.fixture(params=[0, 4], ids=["no look-ahead", "look-ahead"])
def node(store: Store, request: pytest.FixtureRequest) -> Iterator[Node]:
    node_rig = Node(store, request.param)
    yield node_rig
    node_rig.reporter.close()
    joined(node_rig.reporter)


@pytest.mark.parametrize("lost", ["outcome", "start"])
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
def test_a_run_whose_outcome_the_server_has_lost_is_not_run_again(
    node: Node, outcome: str, lost: str
) -> None:
    bell = node.held()
    before_start = node.copy()
    (run,) = node.start(bell)
    before_end = node.copy()
    node.end(run, outcome)
    node.forget(before_end if lost == "outcome" else before_start)
    assert node.rung() == [bell]
    assert node.start(bell) == [], "it has run"
    until(lambda: node.drive.state("a") == outcome, "its outcome is told again")
    until(lambda: not node.drive.hash("slots"), "and its slot is free")


def test_a_release_that_the_server_has_lost_is_done_again(node: Node) -> None:
    bell = node.held()
    (run,) = node.start(bell)
    assert node.drive.finish(bell) == "ok"
    copy = node.copy()
    node.end(run, "succeeded")
    node.forget(copy)
    assert node.start(*node.rung()) == []
    until(lambda: not node.drive.hash("slots"), "its slot is free")
    assert node.drive.state("a") == "succeeded"


def test_a_run_that_was_lost_goes_back_once_more_and_counts_one_start(node: Node) -> None:
    bell = node.held()
    (run,) = node.start(bell)
    copy = node.copy()
    node.end(run, "lost")
    node.forget(copy)
    assert node.start(*node.rung()) == []
    until(lambda: node.drive.state("a") == "pending", "it goes back")
    assert node.drive.status("a").starts == 1


def test_a_run_that_ends_after_the_server_has_lost_its_start_has_its_outcome(node: Node) -> None:
    bell = node.held()
    copy = node.copy()
    (run,) = node.start(bell)
    node.forget(copy)
    node.end(run, "succeeded")
    assert node.drive.state("a") == "succeeded"


def test_a_run_whose_start_the_server_has_lost_is_started_again_while_it_goes_on(
    node: Node,
) -> None:
    bell = node.held()
    copy = node.copy()
    node.start(bell)
    node.forget(copy)
    assert node.drive.state("a") == "taken"
    node.reconciler.reconcile(node.store)
    assert node.drive.state("a") == "running"


def test_the_outcome_of_a_replaced_attempt_is_dropped(node: Node) -> None:
    bell = node.held()
    (run,) = node.start(bell)
    assert node.drive.requeue(bell) == "pending"
    node.end(run, "succeeded")
    assert node.drive.state("a") == "pending"


def test_an_outcome_is_kept_for_two_leases_in_which_the_server_answers(node: Node) -> None:
    (run,) = node.start(node.held())
    node.end(run, "succeeded")
    for _ in range(KEPT_PASSES - 1):
        node.reconciler.reconcile(node.store)
    runs = node.state.runs
    again = Run(run.place)
    assert runs.enter(again)
    assert again.before is not None
    assert again.before.request is None, "the message of the task is not kept"
    runs.drop([again])
    node.reconciler.reconcile(node.store)
    assert not runs._told


def test_a_cancel_ends_a_run_while_its_worker_shuts_down(node: Node) -> None:
    (run,) = node.start(node.held())
    node.state.leave()
    node.state.said_leaving = True
    assert node.drive.cancel("a") == ("asked", "")
    node.reconciler.reconcile(node.store)
    assert node.port.ended == [(run.request, "SIGTERM")]

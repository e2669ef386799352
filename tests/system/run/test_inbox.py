"""The inbox of a node: it hears what rings, many at a time, and goes on hearing whatever happens to
its connection.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from kombu.asynchronous import Hub

from parsync_redis import Parsync, ParsyncClient
from parsync_redis.model.needs import Resources
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.wire.doorbell import read_doorbell
from parsync_redis.worker.celery import inbox as inbox_module
from parsync_redis.worker.celery.delivery import Delivery
from parsync_redis.worker.celery.inbox import Inbox
from parsync_redis.worker.celery.request import watch
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.runs import Run
from tests.kit.driver import Driver
from tests.kit.waiting import child_ended

SLOTS = 100


class Deliveries(Delivery):
    """Notes what would be handed to Celery; after `leave_after` tasks the worker begins to shut
    down.
    """

    leave_after = SLOTS + 1
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, consumer: Any, agent: Agent) -> None:
        super().__init__(consumer, agent)
        self.heard: list[str] = []

    def deliver(self, run: Run, message: bytes) -> None:
        self.heard.append(run.place.task)
        self.meanwhile()
        self._agent.node.leaving = len(self.heard) >= self.leave_after


class NoWorker:
    """The port of a worker that has no Celery: its inbox is told by the test, and its runs have no
    process.
    """

    owed_results = ()
    processes: int | None = None
    ends_runs = True
    queues: set[str] | None = None

    def busy(self) -> bool:
        return False

    def listen(self) -> None: ...

    def stop(self, cold: bool) -> None: ...

    def terminate(self, request: Any, signal: str) -> None: ...

    def kill(self, request: Any, signal: str = "SIGKILL") -> None: ...

    def tell_results(self, store: Store) -> None: ...

    def put_back_results(self, store: Store) -> None: ...


class Node:
    """A node whose worker is an event loop and an inbox."""

    def __init__(self, store: Store) -> None:
        self.drive = Driver(store)
        self.store = store
        self.client: Any = store.client
        self.app = app = Celery("heard", set_as_current=False)
        settings = Settings.load(url=f"redis://{store.address}/0", cluster=store.keys.cluster)
        Parsync(app, settings.url, settings.cluster)
        self.agent = Agent(
            settings,
            store.with_own_connections(),
            NodeSpec("n1", Resources.of(SLOTS), 1.0),
            NoWorker(),
        )
        self.drive.node("n1", SLOTS)
        self.agent.node.partition = 0
        self.agent.node.inc = 1
        consumer = SimpleNamespace(
            controller=SimpleNamespace(parsync_agent=self.agent),
            connection_errors=(),
            event_dispatcher=None,
            hub=Hub(),
            pool=SimpleNamespace(),
            task_buckets={},
        )
        self.consumer = consumer
        self.inbox = Inbox(consumer)
        self.inbox.start_queue.delivery = self.deliveries = Deliveries(consumer, self.agent)
        self.heard = self.deliveries.heard

    def place(self, *tasks: str) -> None:
        """Place tasks and ring their doorbells."""
        for task in tasks:
            self.drive.submit(task)
        for task, attempt in self.drive.take(limit=SLOTS).items():
            self.drive.held(task, attempt, slots=(int(task[1:]),))

    def until(self, fact: Callable[[], Any], what: str, patience_s: float = 10.0) -> None:
        """Run the event loop until a fact holds."""
        deadline = time.monotonic() + patience_s
        # so that the loop looks at facts now and then
        self.consumer.hub.call_repeatedly(0.02, lambda: None)
        while not fact():
            assert time.monotonic() < deadline, f"not seen: {what}"
            self.consumer.hub.run_once()

    def waiting(self) -> list[Any]:
        """Return the connections that wait in the server for a doorbell."""
        return [c for c in self.client.client_list() if c["cmd"] == "blmpop" and "b" in c["flags"]]

    def starts(self) -> int:
        """Return the number of calls of `start` that the server has run."""
        return int(self.client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


@pytest.fixture
def node(store: Store) -> Iterator[Node]:
    node_rig = Node(store)
    yield node_rig
    node_rig.inbox.stop(node_rig.consumer)
    node_rig.consumer.hub.close()


def test_doorbells_before_and_after_the_inbox_listens_are_heard_once(node: Node) -> None:
    node.place("t0", "t1")
    node.inbox.start(node.consumer)
    node.until(lambda: len(node.heard) == 2, "what rang before")
    node.until(node.waiting, "it waits in the server")
    node.place("t2")
    node.until(lambda: len(node.heard) == 3, "what rang after")
    assert node.heard == ["t0", "t1", "t2"]
    assert {node.drive.state(task) for task in node.heard} == {"running"}


def test_many_doorbells_are_answered_in_few_calls(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a machine that stands still makes no pool slow
    monkeypatch.setattr(inbox_module, "HAND_OVER_S", 60.0)
    node.place(*(f"t{i}" for i in range(SLOTS)))
    before = node.starts()
    node.inbox.start(node.consumer)
    node.until(lambda: len(node.heard) == SLOTS, "all of them")
    assert node.starts() - before <= 8, "1, 2, 4, 8, 16, 32, 37"


def test_a_pool_that_is_slow_to_take_gets_one_at_a_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "HAND_OVER_S", 0.0)
    node.place(*(f"t{i}" for i in range(8)))
    before = node.starts()
    node.inbox.start(node.consumer)
    node.until(lambda: len(node.heard) == 8, "all of them")
    assert node.starts() - before == 8


@pytest.mark.parametrize("times", [1, 3])
def test_a_cut_connection_is_made_anew(node: Node, times: int) -> None:
    node.inbox.start(node.consumer)
    for _ in range(times):
        node.until(node.waiting, "it waits in the server")
        node.client.client_kill_filter(_id=node.waiting()[0]["id"])
    node.place("t0")
    node.until(lambda: node.heard, "the doorbell")


def test_a_server_that_went_silent_is_asked_over_another_connection(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "BLMPOP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(inbox_module, "LATE_ANSWER_S", 0.1)
    node.inbox.start(node.consumer)
    assert node.inbox._connection
    # as if the answer had been lost: none will come any more
    node.inbox._connection.read_response()
    silent = node.inbox._connection
    node.until(lambda: node.inbox._connection not in (silent, None), "another connection")
    node.place("t0")
    node.until(lambda: node.heard, "the doorbell")


def test_an_inbox_of_another_type_is_deleted_and_an_entry_without_a_doorbell_is_put_away(
    node: Node,
) -> None:
    key = node.store.keys.inbox(0, "n1")
    node.client.set(key, "x")
    node.inbox.start(node.consumer)
    node.until(lambda: not node.client.exists(key), "it is deleted")
    node.client.lpush(key, "no doorbell")
    node.place("t0")
    node.until(lambda: node.heard, "the doorbell")
    kept = node.client.zrange(node.store.keys.shared("quarantine"), 0, -1)
    assert len(kept) == 2
    assert any(b"not a doorbell: b'no doorbell'" in entry for entry in kept)


def test_an_unstarted_task_goes_back_when_the_worker_shuts_down(node: Node) -> None:
    node.place("t0", "t1", "t2", "t3")
    node.inbox._at_a_time = 4
    node.deliveries.leave_after = 2
    node.inbox.start(node.consumer)
    node.until(lambda: len(node.heard) == 2, "two of four")
    ended = [run for run in node.agent.node.runs._runs.values() if run.outcome]
    assert sorted((run.place.task, run.outcome) for run in ended) == [
        ("t2", "again"),
        ("t3", "again"),
    ]


def test_the_inbox_listens_once_despite_repeated_registrations_and_never_after_its_stop(
    node: Node,
) -> None:
    node.inbox.start(node.consumer)
    node.inbox.registered()
    node.until(node.waiting, "it waits in the server")
    node.inbox.registered()
    node.place("t0")
    node.until(lambda: node.heard, "the doorbell")
    assert len(node.waiting()) <= 1
    node.inbox.stop(node.consumer)
    node.inbox.registered()
    for _ in range(3):
        node.consumer.hub.run_once()
    node.until(lambda: not node.waiting(), "nobody waits")
    assert node.inbox._connection is None


def test_a_dead_connection_that_a_child_has_inherited_disturbs_nobody(node: Node) -> None:
    """epoll goes on reporting a closed file while a child has it open, under a number that another file soon gets."""
    node.inbox.start(node.consumer)
    node.until(node.waiting, "it waits in the server")
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    try:
        node.client.client_kill_filter(_id=node.waiting()[0]["id"])
        node.until(node.waiting, "it waits in the server again")
        turns = 0
        for _ in range(5):
            began_s = time.monotonic()
            node.consumer.hub.run_once()
            turns += time.monotonic() - began_s < 1e-3
        assert turns < 5, "the loop turns without an end"
        node.place("t0")
        node.until(lambda: node.heard, "the doorbell")
    finally:
        os.kill(child, signal.SIGKILL)
        child_ended(child)


def test_a_refused_task_leaves_its_slots_to_the_tasks_behind_it(node: Node) -> None:
    node.place("t0")
    place = node.drive.lease()
    node.drive.requeue(place)
    node.drive.release(place)
    node.drive.submit("t1")
    node.drive.held("t1", node.drive.take()["t1"])
    node.inbox._at_a_time = 2
    node.inbox.start(node.consumer)
    node.until(lambda: node.heard, "the second doorbell for one slot")
    assert node.heard == ["t1"]


@pytest.mark.parametrize("unwanted", ["cancelled", "recalled"])
def test_a_task_that_waits_for_its_hand_over_may_be_cancelled_or_recalled(
    node: Node, unwanted: str
) -> None:
    node.place("t0", "t1")
    node.inbox._at_a_time = 2
    if unwanted == "cancelled":
        node.deliveries.meanwhile = lambda: (
            node.drive.run(node.store.commands.cancel(["t1"])),
            node.agent.reconciler.end_cancelled(node.store),
        )
    else:
        node.deliveries.meanwhile = lambda: node.agent.renewer.recall(
            node.agent.node.runs.open(), "n1 shrank"
        )
    node.inbox.start(node.consumer)
    node.until(
        lambda: [run for run in node.agent.node.runs._runs.values() if run.outcome],
        "one that ended",
    )
    assert node.heard == ["t0"]
    ended = [
        (run.place.task, run.outcome) for run in node.agent.node.runs._runs.values() if run.outcome
    ]
    assert ended == [("t1", unwanted)]


@pytest.mark.one_server(-1)
def test_a_task_whose_app_declares_more_goes_back_when_the_server_does_not_take_that_now(
    store: Store,
) -> None:
    node = Node(store)
    app = node.app
    consumer = node.consumer

    @app.task(name="inbox.declares", parsync={"slots": 2}, shared=False)
    def declares() -> None: ...

    watch(declares)
    consumer.app = app
    consumer.strategies = {declares.name: lambda *_: None}
    consumer.disable_rate_limits = True
    ended: list[tuple[str, str, int | None, bool]] = []
    node.agent.reporter.ended = (  # type: ignore[method-assign]
        lambda run, outcome, only_unbegun=False: ended.append(
            (run.place.task, outcome, run.delay_ms, run.unbegun)
        )
    )
    delivery = Delivery(consumer, node.agent)
    with ParsyncClient(node.agent.settings) as client:
        ids = [client.submit(declares.name) for _ in range(2)]
    away, well = ids
    attempts = node.drive.take(limit=2)
    try:
        node.drive.held(away, attempts[away], slots=(0,))
        node.drive.held(well, attempts[well], slots=(1,))
        bells = [
            read_doorbell(data) for data in node.client.lrange(store.keys.inbox(0, "n1"), 0, -1)
        ]
        runs = {run.place.task: (run, message) for run, message in node.agent.starter.answer(bells)}
        node.client.execute_command("REPLICAOF", "127.0.0.1", "1")
        delivery.deliver(*runs[away])
        node.client.execute_command("REPLICAOF", "NO", "ONE")
        delivery.deliver(*runs[well])
    finally:
        node.client.execute_command("REPLICAOF", "NO", "ONE")
        consumer.hub.close()
    assert ended == [(away, "recalled", 1000, True), (well, "again", None, False)]
    assert not node.client.exists(store.keys.shared("quarantine")), "its message is sound"
    assert " slots=2" in node.drive.record(well).extra["next"]
    assert "next" not in node.drive.record(away).extra

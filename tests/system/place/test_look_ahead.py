"""A node that looks ahead: a task waits at the worker behind a short task, and a slot still runs one task at a time."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.concurrency.solo import TaskPool as SoloPool
from kombu.asynchronous import Hub

from parsync_redis import Parsync
from parsync_redis.errors import ServerReadOnly, ServerUnreachable
from parsync_redis.model.needs import Resources
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.worker.celery.delivery import Delivery
from parsync_redis.worker.celery.inbox import Inbox
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.look_ahead import FIRST_SHORT_RUNS, RECENT_RUNS, LookAhead, room_of
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.runs import Run
from tests.kit.driver import Driver
from tests.kit.waiting import joined
from tests.system.run.test_inbox import NoWorker

ROOM = 3


class Solo(Delivery):
    """Runs each task while it is handed over; `meanwhile` happens inside it."""

    def __init__(self, consumer: Any, agent: Agent) -> None:
        super().__init__(consumer, agent)
        self.ran: list[str] = []
        self.slots: list[set[int]] = []
        self.meanwhile: Mapping[str, Callable[[], object]] = {}

    def deliver(self, run: Run, message: bytes) -> None:
        self.ran.append(run.place.task)
        self.slots.append(set(run.slots))
        self.meanwhile.get(run.place.task, lambda: None)()
        self._agent.reporter.ended(run, "succeeded")


class Node:
    """A node of one slot and three waiting seats, whose worker is an event loop and an inbox."""

    def __init__(self, store: Store) -> None:
        self.drive = Driver(store)
        self.store = store
        app = Celery("ahead", set_as_current=False)
        settings = Settings.load(url=f"redis://{store.address}/0", cluster=store.keys.cluster)
        Parsync(app, settings.url, settings.cluster)
        spec = NodeSpec("n1", Resources.of(1), 1.0, room=ROOM)
        self.agent = Agent(settings, store.with_own_connections(), spec, NoWorker())
        store.run(store.commands.register_node(0, "n1", 0, 1.0, "slots=1", ROOM))
        store.run(store.commands.set_node(0, "n1", "ahead", 1, str(ROOM)))
        node = self.agent.node
        node.partition = 0
        node.inc = 1
        node.seats_of = 1
        node.seats_open = ROOM
        self.consumer: Any = SimpleNamespace(
            controller=SimpleNamespace(parsync_agent=self.agent),
            connection_errors=(),
            hub=Hub(),
            pool=SoloPool.__new__(SoloPool),
        )
        self.inbox = Inbox(self.consumer)
        self.inbox.start_queue.delivery = self.solo = Solo(self.consumer, self.agent)
        self.keeper = self.agent.seat_keeper

    def place(self, task: str, seat: int, priority: int = 0) -> None:
        """Place a task at a seat, and ring its doorbell."""
        self.drive.submit(task, {"priority": priority})
        self.drive.held(task, self.drive.take()[task], slots=(seat,))

    def until(self, fact: Callable[[], Any], what: str) -> None:
        """Run the event loop until a fact holds."""
        deadline = time.monotonic() + 180
        self.consumer.hub.call_repeatedly(0.01, lambda: None)
        while not fact():
            assert time.monotonic() < deadline, f"not seen: {what}"
            self.consumer.hub.run_once()

    def until_rung(self, count: int) -> None:
        """Wait until so many tasks wait at the worker."""
        deadline = time.monotonic() + 180
        starter = self.agent.starter
        while len(self.agent.node.runs.waiting()) < count:
            assert time.monotonic() < deadline, "the doorbells did not come"
            assert starter.start_next(self.store, self.inbox._rung_meanwhile()) == [], (
                "the slot is not idle"
            )

    def keep(self) -> None:
        """Look after the waiting seats, as the thread does that is there for it."""
        thread = threading.Thread(
            target=lambda: self.keeper.keep(self.store.with_own_connections())
        )
        thread.start()
        joined(thread)

    def running(self) -> list[str]:
        """Return the tasks that run, as the server has it."""
        return [
            id
            for id, text in self.store.hash(self.store.keys.queue("running")).items()
            if " started=" in text
        ]


@pytest.fixture
def node(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(
        "parsync_redis.worker.celery.start_queue.TURN_S", 60.0
    )  # where the machine stands still, it is soon over
    node_rig = Node(store)
    node_rig.inbox.start(node_rig.consumer)
    node_rig.agent.reporter.start()
    yield node_rig
    node_rig.agent.reporter.close()
    joined(node_rig.agent.reporter)
    node_rig.inbox.stop(node_rig.consumer)
    node_rig.consumer.hub.close()


@pytest.mark.one_server(0)
def test_waiting_tasks_run_singly_in_the_order_of_the_queue(node: Node) -> None:
    seen: list[list[str]] = []

    def others() -> None:
        node.place("b", 1)
        node.place("c", 2)
        node.place("d", 3, priority=7)
        node.until_rung(3)

    look = lambda: seen.append(node.running())  # noqa: E731
    node.solo.meanwhile = {"a": others, "b": look, "c": look, "d": look}
    node.place("a", 0)
    node.until(lambda: len(node.solo.ran) == 4, "all four ran")
    assert node.solo.ran == ["a", "d", "b", "c"]
    assert seen == [["d"], ["b"], ["c"]], "one slot runs one task"
    assert node.solo.slots == [{0}] * 4, "what waits runs in the slot"
    node.until(lambda: node.drive.bits() == "11110000", "all seats are free again")
    assert {node.drive.state(task) for task in "abcd"} == {"succeeded"}
    assert len(node.agent.node.runs) == 0


@pytest.mark.one_server(0)
def test_the_lease_of_a_slot_stands_while_the_slot_runs_what_waited(node: Node) -> None:
    bits: list[str] = []

    def other() -> None:
        node.place("b", 2)
        node.until_rung(1)

    def look() -> None:
        time.sleep(0.3)  # the reporter looks again at what is occupied
        bits.append(node.drive.bits())

    node.solo.meanwhile = {"a": other, "b": look}
    node.place("a", 0)
    node.until(lambda: len(node.solo.ran) == 2, "both ran")
    assert bits == ["01010000"], "no task that needs the slot may be claimed there"
    node.until(lambda: node.drive.bits() == "11110000", "all seats are free again")


@pytest.mark.one_server(0)
def test_a_task_that_has_not_begun_in_time_is_handed_back_and_the_seats_are_shut(
    node: Node,
) -> None:
    def long_run() -> None:
        node.place("b", 1)
        node.until_rung(1)
        assert [run.place.task for run in node.agent.node.runs.waiting()] == ["b"]
        node.keep()
        assert node.drive.state("b") == "taken", "it has not waited long"
        time.sleep(0.15)
        node.keep()
        deadline = time.monotonic() + 180
        while node.drive.state("b") != "pending" and time.monotonic() < deadline:
            time.sleep(0.01)

    node.solo.meanwhile = {"a": long_run}
    node.place("a", 0)
    node.until(lambda: node.solo.ran == ["a"], "the long task ran")
    assert node.drive.state("b") == "pending"
    assert node.drive.status("b").starts == 0
    assert node.agent.node.seats_open == 0
    node.until(lambda: node.drive.bits() == "10000000", "its waiting seats are free, and shut")


@pytest.mark.one_server(0)
@pytest.mark.parametrize("why", ["drained", "leaving"])
def test_a_drain_and_a_shutdown_hand_back_waiting_tasks_at_once(node: Node, why: str) -> None:
    def drain() -> None:
        node.place("b", 1)
        node.until_rung(1)
        setattr(node.agent.node, why, True)
        node.keep()

    node.solo.meanwhile = {"a": drain}
    node.place("a", 0)
    node.until(lambda: node.solo.ran == ["a"], "the task ran")
    node.until(lambda: node.drive.state("b") == "pending", "what waited is placed elsewhere")
    assert node.solo.ran == ["a"]


@pytest.mark.one_server(0)
def test_a_task_that_is_cancelled_while_it_waits_does_not_run(node: Node) -> None:
    def cancel() -> None:
        node.place("b", 1)
        node.place("c", 2)
        node.until_rung(2)
        node.drive.cancel("b")

    node.solo.meanwhile = {"a": cancel}
    node.place("a", 0)
    node.until(lambda: node.solo.ran == ["a", "c"], "the others ran")
    node.until(lambda: node.drive.bits() == "11110000", "all seats are free again")
    assert node.drive.state("b") == "cancelled"


def test_a_node_opens_its_seats_for_short_tasks_and_shuts_them_for_long_ones() -> None:
    ahead = LookAhead(2, 6)
    for _ in range(FIRST_SHORT_RUNS):
        assert ahead.wanted == 0
        ahead.ran("short", 0.001)
    assert ahead.wanted == 6
    ahead.ran("middle", 0.020)
    assert ahead.wanted == 4, "two tasks of 20 ms may wait at each slot"
    ahead.ran("long", 0.2)
    assert ahead.wanted == 0
    for _ in range(RECENT_RUNS - 1):
        ahead.ran("short", 0.001)
    assert ahead.wanted == 0, "it comes and goes seldom"
    ahead.ran("short", 0.001)
    assert ahead.wanted == 6
    ahead.late()
    assert ahead.wanted == 0


def test_a_name_with_many_long_runs_counts_as_long_after_recent_short_runs() -> None:
    ahead = LookAhead(1, 3)
    for _ in range(20):
        ahead.ran("mixed", 0.2)
        ahead.ran("mixed", 0.001)
    for _ in range(RECENT_RUNS):
        ahead.ran("mixed", 0.001)
    assert ahead.wanted == 0


def test_only_a_small_pool_that_runs_its_slots_has_waiting_seats() -> None:
    assert [room_of(1, 1), room_of(4, 4), room_of(16, 1), room_of(100, 100)] == [3, 12, 0, 0]


@pytest.mark.one_server(0)
def test_results_are_reported_though_run_times_cannot_be_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    agent = node.agent

    def fail(store: Store) -> None:
        agent.node.stop()
        raise ServerUnreachable("the primary that has the times is away")

    monkeypatch.setattr(agent, "_learn", fail)
    monkeypatch.setattr(agent._port, "tell_results", lambda store: told.append("told"))
    agent._tend()
    assert told == ["told"]


@pytest.mark.one_server(0)
def test_a_refusal_by_parsyncs_server_is_no_error_of_the_event_loop(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery would take such an error for an error of its broker."""
    real = node.agent.starter.answer
    asked: list[str] = []

    def answer(bells: Any) -> Any:
        asked.append("asked")
        if len(asked) == 1:
            raise ServerReadOnly("parsync's own server")
        return real(bells)

    monkeypatch.setattr(node.agent.starter, "answer", answer)
    node.agent.nudge()
    node.until(lambda: len(asked) > 1, "it starts what waits when the server serves again")

    def read(connection: Any) -> Any:
        raise ServerReadOnly("parsync's own server")

    monkeypatch.setattr(node.inbox, "_read", read)
    ready: Any = SimpleNamespace(can_read=lambda timeout: True, disconnect=lambda: None)
    connection = node.inbox._connection
    node.inbox._connection = ready
    assert connection is not None
    connection.disconnect()
    assert node.inbox._rung_meanwhile() == []

"""A worker starts the tasks that wait and reports the runs that ended, whatever fails meanwhile."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.ids import id_in_shard
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from parsync_redis.store.scripts.calls import Call
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.node.look_ahead import FIRST_SHORT_RUNS
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.node_state import AgentState
from parsync_redis.worker.node.reconciler import Reconciler
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.run_starter import Starter
from parsync_redis.worker.node.runs import Run
from parsync_redis.worker.node.seat_keeper import SeatKeeper
from tests.kit.driver import Driver
from tests.kit.waiting import joined, until

pytestmark = pytest.mark.one_server(0)


class Node:
    """A node of two slots that looks ahead. The test is the pool of the node: it keeps the runs that were started."""

    def __init__(self, store: Store) -> None:
        self.drive = Driver(store)
        self.store = store
        spec = NodeSpec("n1", Resources.of(2, {"gpu": 1}), 1.0, room=6)
        store.run(store.commands.register_node(0, "n1", 0, 1.0, spec.offer.text, spec.room))
        store.run(store.commands.set_node(0, "n1", "ahead", 1, "6"))
        self.state = AgentState(spec, Isolation())
        self.state.partition = 0
        self.state.inc = 1
        self.reporter = Reporter(store, self.state.runs)
        self.starter = Starter(store, self.state, self.reporter)
        self.keeper = SeatKeeper(
            store, self.state, self.starter, Reconciler(self.state, cast(Any, None)), lambda: None
        )
        self.started: list[str] = []
        self.reporter.start_next = self.start_next

    def start_next(self, store: Store, ended: list[Run]) -> None:
        """Do what the turns of a pool of threads do."""
        self.started += [run.place.task for run, _ in self.starter.start_next(store, (), ended)]

    def place(self, task: str, seat: int, needs: str = "") -> Place:
        """Place a task at a seat; return its doorbell."""
        self.drive.submit(task, {"resources": {"gpu": 1}} if needs else None)
        return self.drive.held(task, self.drive.take()[task], slots=(seat,), needs=needs)

    def bring(self, task: str, seat: int, needs: str = "") -> list[Run]:
        """Place a task and ring its doorbell; return the runs that were started."""
        return [run for run, _ in self.starter.answer([self.place(task, seat, needs)])]


@pytest.fixture
def node(store: Store) -> Iterator[Node]:
    node_rig = Node(store)
    yield node_rig
    if node_rig.reporter.ident is not None:
        node_rig.reporter.close()
        joined(node_rig.reporter)


def test_a_run_whose_slot_stays_held_is_reported_though_no_run_can_follow(node: Node) -> None:
    (held,) = node.bring("a", 0, "slots=1 gpu=1")
    (other,) = node.bring("b", 1)
    assert node.bring("c", 2) == [], "no slot is idle"
    node.state.isolation.free = lambda slots: False  # type: ignore[method-assign] # a process of it lives on
    node.reporter.start()
    node.reporter.ended(held, "succeeded")
    until(lambda: node.drive.state("a") == "succeeded", "its outcome is known")
    assert node.started == []
    node.reporter.ended(other, "succeeded")
    until(lambda: node.started == ["c"], "what waits follows the other one")
    node.state.isolation.free = lambda slots: True  # type: ignore[method-assign]


def test_a_start_that_fails_leaves_the_reporter_alive(node: Node) -> None:
    (first,) = node.bring("a", 0)
    (second,) = node.bring("b", 1)
    assert node.bring("c", 2) == []

    def fail(slots: object) -> str:
        raise OSError("too many open files")

    node.state.isolation.hindrance = fail  # type: ignore[method-assign]
    node.reporter.start()
    node.reporter.ended(first, "succeeded")
    until(lambda: node.drive.state("a") == "succeeded", "its outcome is known")
    del node.state.isolation.hindrance
    node.reporter.ended(second, "succeeded")
    until(lambda: node.started == ["c"], "what waits is started later")


def test_a_run_that_has_started_is_handed_over_though_the_next_round_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells = [node.place("a", 0), node.place("b", 1)]
    node.drive.cancel("b")
    runs = node.state.runs
    idle = runs.idle

    def once(slots: int, reserve: bool) -> list[int]:
        monkeypatch.setattr(runs, "idle", fail)
        return idle(slots, reserve)

    def fail(slots: int, reserve: bool) -> list[int]:
        raise OSError("too many open files")

    monkeypatch.setattr(runs, "idle", once)
    assert [run.place.task for run, _ in node.starter.answer(bells)] == ["a"]


def test_a_run_whose_start_request_failed_is_not_kept_in_the_table(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = node.place("a", 0)

    def fail(calls: object) -> list[Any]:
        raise OSError("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(node.store, "run_each", fail)
        with pytest.raises(OSError, match="open files"):
            node.starter.answer([bell])
    assert len(node.state.runs) == 0
    assert [run.place.task for run, _ in node.starter.answer([bell])] == ["a"]


def test_a_following_run_has_its_slot_before_the_ended_run_is_freed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = node.bring("a", 0)
    (_,) = node.bring("b", 1)
    runs = node.state.runs
    assert node.bring("c", 2) == []
    seen: list[bool] = []
    monkeypatch.setattr(
        node.reporter, "reported", lambda *_: seen.append(runs.used_by_others(first))
    )
    assert runs.end(first, "succeeded")
    node.start_next(node.store, [first])
    assert (node.started, seen) == (["c"], [True])


def test_a_started_run_is_handed_over_though_a_stale_outcome_cannot_be_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has lost a start. The thread that reports tells the server again; the thread that hands over starts goes on."""
    (first,) = node.bring("a", 0)
    node.bring("b", 1)
    assert node.bring("c", 2) == []
    assert node.state.runs.end(first, "succeeded")
    # the outcome of the run is stale now
    node.drive.run(node.drive.commands.requeue([(first.place, "")]))

    def fail(call: object) -> Any:
        raise ValueError("a reply that nobody can read")

    with monkeypatch.context() as patch:
        patch.setattr(node.store, "run", fail)
        node.start_next(node.store, [first])
    assert node.started == ["c"]
    assert not first.is_reported
    node.reporter.start()
    node.reporter.put([first])
    until(lambda: first.is_reported, "the thread has told it")


def test_a_task_that_waited_too_long_goes_back_though_the_seats_cannot_be_shut(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(node.bring("a", 0) + node.bring("b", 1)) == 2
    assert node.bring("c", 2) == []
    (waits,) = node.state.runs.waiting()
    waits.due_s = 0.0
    monkeypatch.setattr(node.store, "run", away)
    with pytest.raises(ServerUnreachable):
        node.keeper.keep(node.store)
    assert waits.outcome == "recalled"


def test_waiting_seats_in_doubt_are_shut(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.drive.run(node.drive.commands.set_node(0, "n1", "ahead", 1, "0"))
    run = node.store.run

    def lost(call: Call[Any]) -> Any:
        run(call)
        away(call)

    for _ in range(FIRST_SHORT_RUNS):
        node.state.ahead.ran("short", 0.001)
    monkeypatch.setattr(node.store, "run", lost)
    with pytest.raises(ServerUnreachable):
        node.keeper.keep(node.store)
    assert node.drive.bits() == "11111111"
    monkeypatch.undo()
    node.state.ahead.late()
    node.keeper.keep(node.store)
    assert node.drive.bits() == "11000000"


def test_an_absent_shard_does_not_delay_starts_of_tasks_of_other_shards(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [id_in_shard(shard, 2) for shard in (0, 1, 1)]
    bells = [Place(id, "1@1", 0, "n1", (slot,), 1, 0) for slot, id in enumerate(ids)]

    def answer(calls: Sequence[Call[Any]]) -> list[Any]:
        one, other = calls
        assert one.keys[0] != other.keys[0]
        return [ServerUnreachable("it is away"), [("ok", b""), ("wait", b"")]]

    with monkeypatch.context() as patch:
        patch.setattr(node.store.keys, "shards", 2)
        patch.setattr(node.store, "run_each", answer)
        assert [run.place.task for run, _ in node.starter.answer(bells)] == ids[1:2]
    assert [run.place.task for run in node.state.runs.waiting()] == ids[2:]


def away(call: object) -> Any:
    """Stand in for a call to a primary that is away."""
    raise ServerUnreachable("it is away")


def test_a_run_knows_that_an_earlier_run_of_its_message_had_begun(node: Node) -> None:
    """The worker reads that in the round trip of the starts, and only for attempts that are not the first."""
    (first,) = node.bring("a", 0)
    assert not first.redelivered
    assert node.drive.requeue(first.place, "it was lost") == "pending"
    node.state.runs.drop([first])
    node.drive.release(first.place)
    again = node.drive.held("a", node.drive.take()["a"], slots=(1,))
    runs = [run for run, _ in node.starter.answer([again, node.place("b", 0)])]
    assert {run.place.task: run.redelivered for run in runs} == {"a": True, "b": False}

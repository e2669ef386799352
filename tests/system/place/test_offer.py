"""The offer of a node follows the worker's pool and queues, also while tasks run there."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from parsync_redis import Parsync
from parsync_redis.inspect.audit import audit as look
from parsync_redis.inspect.waiting import explain_tasks
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import NO_PROCESS, STANDS_STILL, Node, trust_remedy
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig, join_cluster
from parsync_redis.store.reads.views import read_views
from parsync_redis.worker.celery.delivery import Delivery
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.runs import Run
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.kit.waiting import until
from tests.system.run.test_inbox import NoWorker

pytestmark = pytest.mark.one_server(0)
KNOWN = KnownTasks.of({"work": None})


class Worker:
    """A node of four processes that consumes one queue, and the port of its worker."""

    def __init__(self, store: Store) -> None:
        self.app = app = Celery("offers", set_as_current=False)
        settings = Settings.load(
            url=f"redis://{store.address}/0",
            cluster=store.keys.cluster,
            lease_s=3600.0,
            partitions=1,
        )
        Parsync(app, settings.url, settings.cluster)
        config = join_cluster(store, settings, create=True)
        assert isinstance(config, ClusterConfig)
        self.config = config
        self.drive = Driver(store)
        self.store = store
        self.port = NoWorker()
        self.port.processes = 4
        self.port.queues = {"celery"}
        spec = NodeSpec("n1", offer_with(Resources.of(4), KNOWN, ["celery"]), 1.0, KNOWN)
        self.agent = Agent(settings, store.with_own_connections(), spec, self.port)
        self.agent.loop.turned()

    def register(self) -> None:
        self.agent.renewer.register(self.store, self.config)

    def renew(self) -> None:
        self.agent.loop.turned()
        self.agent.renewer.renew(self.store, self.config)
        assert audit(self.store) == []

    @property
    def record(self) -> str:
        return self.drive.hash("nodes").get("n1", "")

    def start(self, id: str, *slots: int) -> Run:
        """Claim slots for a task that this node runs."""
        self.drive.submit(id, {"slots": len(slots)})
        place = self.drive.held(id, self.drive.take()[id], slots=slots)
        assert self.drive.start(place) == "ok"
        run = Run(place)
        assert self.agent.node.runs.enter(run)
        run.request = SimpleNamespace(time_start=1.0)
        return run


@pytest.fixture
def worker(store: Store) -> Iterator[Worker]:
    worker = Worker(store)
    yield worker
    worker.agent.stop()


def test_the_slots_follow_the_pool_at_once(worker: Worker) -> None:
    """The thread that renews looks ten times a second, and the next renewal would be due in twelve
    minutes.
    """
    worker.agent.start()
    until(lambda: " slots=4 " in worker.record, "it is up")
    worker.port.processes = 1
    until(lambda: " slots=1 " in worker.record, "its pool has shrunk")
    worker.port.processes = 6
    until(lambda: " slots=6 " in worker.record, "its pool has grown")


def test_a_pool_without_processes_reports_and_offers_no_slot_until_it_grows(worker: Worker) -> None:
    """The offer stays as it was, so that no submit is refused while the pool is empty."""
    worker.agent.start()
    until(lambda: worker.drive.bits() == "11110000", "it is up")
    worker.port.processes = 0
    until(lambda: worker.drive.bits() == "00000000", "its pool is empty")
    ((_, (node,)),) = read_views(worker.store)
    assert (node.state, node.note) == ("suspect", "its pool has no process")
    assert node.slots == 4, "a task for 4 slots may wait"
    assert trust_remedy(node.name, node.note).startswith(
        "give the pool of node n1 a process: celery control pool_grow"
    )
    worker.drive.submit("a")
    (status,) = explain_tasks(worker.store, worker.store.statuses(["a"]))
    assert "is suspect: its pool has no process" in status.why
    worker.port.processes = 2
    until(lambda: worker.drive.bits() == "11000000", "its pool has grown")


def test_a_loop_that_stands_still_over_an_empty_pool_is_told_as_that(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health file of a worker that stands still grows old, that of an empty pool does not."""
    worker.register()
    worker.port.processes = 0
    worker.renew()
    assert worker.agent.node.stalled == NO_PROCESS
    monkeypatch.setattr(worker.agent.loop, "still_s", lambda *_: 7200.0)
    worker.agent.renewer.renew(worker.store, worker.config)
    assert worker.agent.node.stalled.startswith(STANDS_STILL)


def test_a_pool_without_processes_gives_back_its_placed_tasks(worker: Worker) -> None:
    worker.register()
    worker.renew()
    worker.drive.submit("a")
    worker.drive.held("a", worker.drive.take()["a"])
    worker.port.processes = 0
    worker.renew()
    worker.agent.reconciler.reconcile(worker.store)
    assert (worker.drive.state("a"), worker.drive.bits()) == ("pending", "00000000")


def test_submit_and_the_sums_of_the_partitions_hear_of_another_offer(worker: Worker) -> None:
    worker.register()
    worker.port.processes = 2
    worker.port.queues = {"celery", "more"}
    worker.renew()
    assert " slots=2 celery.queue:celery celery.queue:more " in worker.record
    assert worker.drive.hash("meta")["slots"] == "2"
    (shape,) = worker.store.hash(worker.store.keys.queue("shapes", 0)).values()
    assert shape == worker.agent.node.spec.offer.text
    dealt = worker.store.hash(worker.store.keys.shared("dealt"))
    assert dealt["node:n1"].split()[1:] == [
        "slots=2",
        "score=1.0",
        "celery.queue:celery",
        "celery.queue:more",
    ]
    worker.port.queues = None
    worker.renew()
    assert "celery.queue:more" in worker.record, "its consumer has lost its broker"
    worker.port.queues = {"more"}
    worker.renew()
    assert " slots=2 celery.queue:more celery.tasks:" in worker.record


def test_slots_open_when_the_runs_behind_them_have_ended(worker: Worker) -> None:
    worker.register()
    runs = [worker.start("a", 2), worker.start("b", 3)]
    worker.port.processes = 2
    worker.renew()
    assert worker.drive.bits() == "00000000", "two run on a pool of two"
    assert worker.agent.renewer._offered() == worker.agent.renewer._seen, "nothing is new"
    for run, bits in zip(runs, ("10000000", "11000000"), strict=True):
        assert worker.drive.finish(run.place) == "ok"
        assert worker.drive.release(run.place) == "freed"
        worker.agent.node.runs.drop([run])
        assert worker.agent.renewer._offered() != worker.agent.renewer._seen, (
            "it looks again at once"
        )
        worker.renew()
        assert worker.drive.bits() == bits
    assert "ahead" not in worker.record


def test_slots_that_were_shut_for_an_earlier_process_open_too(worker: Worker) -> None:
    """The leader has freed these slots, and the table of runs knows nothing of them."""
    worker.register()
    run = worker.start("a", 3)
    worker.agent.node.runs.drop([run])
    worker.port.processes = 1
    worker.renew()
    assert worker.drive.bits() == "00000000"
    assert worker.drive.requeue(run.place) == "pending"
    assert worker.drive.release(run.place) == "freed"
    worker.agent.reconciler.reconcile(worker.store)
    assert worker.drive.bits() == "10000000"


CORRECTED = "node n1: its record says what it does not offer: it is corrected"


def test_a_change_of_the_pool_is_no_damage_of_the_record(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker.register()
    worker.port.processes = 2
    worker.agent.renewer._offered()  # the offer has changed, and is not told yet
    worker.agent.reconciler.reconcile(worker.store)
    read = worker.store.nodes

    def read_before_it_is_told(partition: int) -> dict[str, Node]:
        records = read(partition)
        worker.renew()
        return records

    monkeypatch.setattr(worker.store, "nodes", read_before_it_is_told)
    worker.agent.reconciler.reconcile(worker.store)
    monkeypatch.undo()
    assert " slots=2 " in worker.record
    assert CORRECTED not in caplog.messages


def test_a_damaged_offer_is_corrected_and_reported(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.register()
    worker.drive.run(worker.drive.commands.set_node(0, "n1", "offer", 1, "1.0 slots=1"))
    worker.agent.reconciler.reconcile(worker.store)
    assert " slots=4 " in worker.record
    assert CORRECTED in caplog.messages


@pytest.mark.parametrize(
    ("processes", "why"),
    [
        (0, "the pool of n1 has no process"),
        (1, "the pool of n1 has 1 processes, and all run tasks"),
        (2, ""),
        (None, ""),
    ],
)
def test_a_task_that_met_a_full_pool_goes_back_instead_of_running_without_a_process(
    worker: Worker, processes: int | None, why: str
) -> None:
    worker.register()
    worker.start("a", 0)
    worker.port.processes = processes
    outcomes = list[str]()
    begun = list[object]()
    worker.agent.reporter.ended = lambda run, outcome, only_unbegun=False: (  # type: ignore[method-assign]
        outcomes.append(outcome)
    )
    consumer: Any = SimpleNamespace(
        app=worker.app,
        strategies={"work": lambda *args: begun.append(args)},
        disable_rate_limits=True,
        task_buckets={"work": None},
        on_task_message=(),
    )
    run = Run(worker.drive.place("b", slot=1))
    received = SimpleNamespace()
    Delivery(consumer, worker.agent)._hand_over(run, received, {"headers": {"task": "work"}}, None)  # type: ignore[arg-type]
    assert (outcomes, len(begun)) == ((["recalled"], 0) if why else ([], 1))
    assert run.unbegun == bool(why)
    assert not why or run.why == why


def test_a_wide_task_goes_on_behind_a_pool_that_shrinks_and_is_no_fault(worker: Worker) -> None:
    """`renew` audits: the node runs three slots' worth of a task, and offers one slot."""
    worker.register()
    worker.renew()
    worker.start("wide", 0, 1, 2)
    worker.port.processes = 1
    worker.renew()
    worker.renew()
    assert "slots=1 " in worker.record
    assert look(worker.store) == []

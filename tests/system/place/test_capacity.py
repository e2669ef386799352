"""The capacity of a node follows its source: what it tells, gives back, recalls and shows."""

import logging
import re
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from parsync_redis import InvalidInput
from parsync_redis.inspect.checkup import judge_nodes
from parsync_redis.inspect.waiting import explain_tasks
from parsync_redis.settings import node_options
from parsync_redis.store import Store
from parsync_redis.store.reads.views import read_views
from parsync_redis.worker.celery.port import read_facts
from parsync_redis.worker.node import agent, renewer, sources
from parsync_redis.worker.node.capacity import NodeCapacity
from parsync_redis.worker.node.node import node_spec
from parsync_redis.worker.node.runs import Run
from parsync_redis.worker.node.sources import MAX_FAILURES, SourceReader
from tests.kit.waiting import joined, until
from tests.system.place.test_offer import Worker as OfferingWorker
from tests.unit.test_node_options import worker as celery_worker

pytestmark = pytest.mark.one_server(0)


class Worker(OfferingWorker):
    """A node of four processes and 8 mem whose source says what the test says."""

    def __init__(self, store: Store, shrink_after_s: float | None = None) -> None:
        super().__init__(store)
        spec = self.agent.node.spec
        spec.offer = type(spec.offer).made(4, [("mem", 8000)], spec.offer.labels)
        self.text = "slots=4"
        self.capacity = NodeCapacity(lambda: self.text, shrink_after_s)
        self.signals: list[tuple[str, str]] = []
        spec.capacity = self.capacity
        self.capacity.reader = SourceReader(
            "capacity", lambda: self.text, 1.0, self.capacity.take, lambda _: None, lambda: True
        )
        self.port.kill = lambda request, signal="SIGKILL": self.signals.append(  # type: ignore[method-assign]
            (request.id, signal)
        )

    def say(self, text: str) -> None:
        """Let the source say another text, and the node hear it."""
        self.text = text
        assert self.capacity.reader is not None
        self.capacity.reader.ask()

    def start(self, id: str, *slots: int, **options: Any) -> Run:
        """Claim slots for a task that this node runs."""
        self.drive.submit(id, {"slots": len(slots), **options})
        return self.resume(id, *slots)

    def resume(self, id: str, *slots: int) -> Run:
        """Claim slots for a task that waits, and run it on this node."""
        place = self.drive.held(id, self.drive.take()[id], slots=slots)
        assert self.drive.start(place) == "ok"
        run = Run(place)
        assert self.agent.node.runs.enter(run)
        run.request = SimpleNamespace(id=id, time_start=1.0)
        return run

    def end(self, run: Run) -> None:
        """Let a run end, and free its slots."""
        assert self.drive.finish(run.place) == "ok"
        assert self.drive.release(run.place) == "freed"
        self.agent.node.runs.drop([run])


@pytest.fixture
def worker(store: Store) -> Iterator[Worker]:
    worker = Worker(store)
    yield worker
    worker.agent.stop()


def test_the_capacity_follows_the_source_and_the_offer_stays(worker: Worker) -> None:
    worker.register()
    shapes = worker.store.hash(worker.store.keys.queue("shapes", 0))
    epoch = worker.drive.hash("meta")["epoch"]
    worker.say("slots=1 mem=3")
    assert worker.agent.renewer._offered() != worker.agent.renewer._seen, "it tells at once"
    worker.renew()
    assert " capacity=slots=1,mem=3 " in worker.record
    assert (worker.drive.bits(), worker.drive.hash("left")["n1"]) == ("10000000", "mem=3")
    worker.say("slots=9 mem=1TiB")
    worker.renew()
    assert (worker.drive.bits(), worker.drive.hash("left")["n1"]) == ("11110000", "mem=8")
    assert worker.store.hash(worker.store.keys.queue("shapes", 0)) == shapes
    assert worker.drive.hash("meta")["epoch"] == epoch


def test_a_node_that_registers_gives_no_more_than_its_source_said_before(worker: Worker) -> None:
    worker.say("slots=2")
    worker.register()
    assert worker.drive.bits() == "11000000"


def test_a_capacity_above_the_offer_is_cut_and_logged_once(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("slots=5 disk=1", "slots=6 disk=2"):
        worker.say(text)
        assert worker.capacity.of(worker.agent.node.spec.offer) == ""
    assert [message.split(" than ")[0] for message in caplog.messages] == [
        "the source of the capacity gives more slots",
        "the source of the capacity gives more disk",
    ]


def test_the_slots_of_runs_that_ended_open_at_once_within_the_capacity(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "parsync.agent")
    worker.register()
    runs = [worker.start(f"t{slot}", slot) for slot in range(4)]
    worker.say("slots=2")
    worker.renew()
    for ended, bits in ((0, "00000000"), (1, "00000000"), (3, "10000000"), (2, "11000000")):
        worker.end(runs[ended])
        assert worker.agent.renewer._offered() != worker.agent.renewer._seen
        worker.renew()
        assert worker.drive.bits() == bits
    offers = [message for message in caplog.messages if " offers now: " in message]
    assert len(offers) == 1, "the capacity has changed once"
    worker.agent.reconciler.reconcile(worker.store)
    assert worker.agent.renewer._offered() == worker.agent.renewer._seen


def test_a_damaged_capacity_in_the_record_is_corrected(worker: Worker) -> None:
    worker.say("slots=2")
    worker.register()
    worker.renew()
    nodes: Any = worker.store.client
    key = worker.store.keys.partition(0, "nodes")
    nodes.hset(key, "n1", worker.record.replace("capacity=slots=2", "capacity=slots=3"))
    worker.agent.reconciler.reconcile(worker.store)
    assert " capacity=slots=2 " in worker.record


def test_a_notice_that_the_server_has_lost_is_told_again(worker: Worker) -> None:
    worker.register()
    worker.agent.node.take_notice("30")
    worker.renew()
    (until_word,) = re.findall(r" until=\d+,own", worker.record)
    client: Any = worker.store.client
    key = worker.store.keys.partition(0, "nodes")
    client.hset(key, "n1", worker.record.replace(until_word, ""))
    worker.agent.reconciler.reconcile(worker.store)
    worker.renew()
    assert re.search(r" until=\d+,own ", worker.record)


def test_a_source_that_hangs_is_logged_and_does_not_hold_up_the_end_of_the_worker(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewer, "SILENT_S", 0.1)
    monkeypatch.setattr(agent, "THREAD_JOIN_S", 600.0)
    answer = threading.Event()
    worker.capacity.source = lambda: str(answer.wait(60))
    worker.agent = type(worker.agent)(
        worker.agent.settings, worker.agent.store, worker.agent.node.spec, worker.port
    )
    worker.agent.loop.turned()
    worker.agent.start()
    (source,) = worker.agent.node.sources
    until(lambda: worker.agent.node.inc, "it has registered")
    monkeypatch.setattr(sources, "SILENT_S", 0.0)
    worker.renew()
    worker.renew()
    assert sum("the source has not answered" in message for message in caplog.messages) == 1
    worker.agent.stop()
    assert source.is_alive(), "nobody waits for its answer"
    answer.set()
    joined(source)


def test_a_task_that_was_placed_before_the_node_shrank_does_not_begin(worker: Worker) -> None:
    worker.register()
    worker.start("runs", 0, 1)
    worker.drive.submit("late", {"slots": 2})
    late = Run(worker.drive.held("late", worker.drive.take()["late"], slots=(2, 3)))
    assert worker.agent.full_pool(late) == ""
    worker.say("slots=3")
    assert worker.agent.full_pool(late) == "n1 gives 3 of its 4 slots now"


def test_the_newest_runs_beyond_the_capacity_are_recalled_after_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(store, shrink_after_s=10.0)
    worker.register()
    for slot, id in enumerate(("oldest", "kept", "newer", "newest")):
        worker.start(id, slot, require={"transient": {"exists": False}} if id == "kept" else {})
    worker.say("slots=2")
    worker.renew()
    assert worker.signals == []
    soon_s = time.monotonic() + 5
    later_s = soon_s + 6
    monkeypatch.setattr(time, "monotonic", lambda: soon_s)
    worker.renew()
    assert worker.signals == []
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    worker.renew()
    worker.renew()
    assert worker.signals == [("newest", "SIGTERM"), ("newer", "SIGTERM")]
    worker.say("slots=0")
    worker.renew()
    monkeypatch.setattr(time, "monotonic", lambda: later_s + 3)
    worker.renew()
    assert worker.signals[2:] == [], "the time begins anew"
    monkeypatch.setattr(time, "monotonic", lambda: later_s + 11)
    worker.renew()
    assert worker.signals[-1] == ("oldest", "SIGTERM")
    assert "kept" not in {id for id, _ in worker.signals}, "an uninterruptible task goes on"
    monkeypatch.undo()
    worker.agent.stop()


def test_a_task_that_was_recalled_is_recalled_again_only_if_no_other_run_would_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(store, shrink_after_s=10.0)
    worker.register()
    worker.start("older", 0)
    recalled = worker.start("recalled", 1)
    requeue = store.commands.requeue([(recalled.place, "n1 shrank")], "recalled")
    assert store.run(requeue) == ["pending"]
    assert worker.drive.release(recalled.place) == "freed"
    worker.agent.node.runs.drop([recalled])
    worker.resume("recalled", 1)
    now_s = time.monotonic()
    for slots, signals in ((1, ["older"]), (0, ["older", "recalled"])):
        worker.say(f"slots={slots}")
        for after_s in (0, 11):
            monkeypatch.setattr(time, "monotonic", lambda s=now_s + after_s: s)
            worker.renew()
        now_s += 11
        assert [id for id, signal in worker.signals if signal == "SIGTERM"] == signals, slots
    monkeypatch.undo()
    worker.agent.stop()


def test_a_source_that_fails_is_told_and_its_last_text_stands(worker: Worker) -> None:
    worker.say("slots=3")
    worker.register()
    for _ in range(MAX_FAILURES):
        worker.say("soon")
    worker.renew()
    assert (worker.drive.bits(), " capacity=slots=3? " in worker.record) == ("11100000", True)
    ((_, (node,)),) = read_views(worker.store)
    assert node.note == "gives 3 of its 4 slots now; the source of its capacity fails"
    assert (node.capacity, node.capacity_fails, node.free, node.held) == ({"slots": 3}, True, 3, 0)
    checks = [check.text for check in judge_nodes([node]) if check.level == "warn"]
    assert checks == ["the source of the capacity of n1 fails: what it said last stands"]
    worker.say("mem=1GiB slots=3")
    worker.renew()
    assert " capacity=slots=3 " in worker.record


def test_explain_says_what_a_node_gives_now(worker: Worker) -> None:
    worker.say("slots=1")
    worker.register()
    worker.start("runs", 0)
    worker.drive.submit("waits")
    (status,) = explain_tasks(worker.store, worker.store.statuses(["waits"]))
    assert status.why.endswith("until task runs ends; it gives 1 of its 4 slots now"), status.why


def test_the_agent_asks_its_source_once_a_second(worker: Worker) -> None:
    worker.capacity.reader = None
    worker.agent = type(worker.agent)(
        worker.agent.settings, worker.agent.store, worker.agent.node.spec, worker.port
    )
    worker.agent.loop.turned()
    worker.text = "slots=1"
    worker.agent.start()
    until(lambda: worker.drive.bits() == "10000000", "it has registered with its capacity")
    worker.text = "slots=2 mem=1"
    until(lambda: worker.drive.bits() == "11000000", "it has asked again")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"parsync_capacity": "/no/such"}, "--parsync-capacity '/no/such' is not valid: it must"),
        ({"parsync_shrink_after": 1.0}, "--parsync-shrink-after is of no use without"),
        (
            {"parsync_capacity": "cgroup", "parsync_shrink_after": -1.0},
            "--parsync-shrink-after -1 is not valid: it must be a number of seconds from 0",
        ),
    ],
)
def test_a_capacity_without_sense_is_refused_at_start(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        node_spec(read_facts(celery_worker()), *node_options(flags))

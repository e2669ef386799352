"""Tasks handed to Celery: only a task that begins there counts as a run of its name."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery

from parsync_redis import Infeasible, Parsync
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from parsync_redis.submission import make_submission
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.worker.celery.delivered_message import Delivered, as_message
from parsync_redis.worker.celery.delivery import Delivery
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.runs import Run, Runs
from tests.kit.driver import Driver


def test_a_task_that_its_worker_does_not_know_is_no_short_run() -> None:
    ended: list[str] = []
    agent: Any = SimpleNamespace(
        reporter=SimpleNamespace(ended=lambda run, outcome: ended.append(outcome))
    )
    consumer: Any = SimpleNamespace(
        app=Celery("known", set_as_current=False), strategies={}, on_unknown_task=lambda *_: None
    )
    run = Run(Place("a", "1@1", 0, "n1", (0,), 1, 0))
    received = SimpleNamespace()
    Delivery(consumer, agent)._hand_over(run, received, {"headers": {"task": "unknown"}}, None)  # type: ignore[arg-type]
    assert (ended, run.handed_s, run.name) == (["failed"], 0.0, "")


def test_run_times_are_learnt_from_when_the_pool_began_a_run() -> None:
    """A run that waited for a process teaches only its own time. A run that was cancelled while it waited teaches nothing."""
    learnt = list[float]()
    no_store = cast(Any, None)
    runs = Runs()
    now_s = time.monotonic()
    reporter = Reporter(no_store, runs, Isolation(), lambda name, seconds: learnt.append(seconds))
    for slot, began_s in enumerate((0.0, now_s)):
        run = Run(
            Place(f"t{slot}", "1@1", 0, "n1", (slot,), 1, 0),
            handed_s=now_s - 10_000,
            began_s=began_s,
        )
        assert runs.enter(run)
        reporter.ended(run, "cancelled")
    assert [seconds < 9_000 for seconds in learnt] == [True]


def test_a_task_that_no_worker_knew_gets_its_declared_tenant_and_limit_from_its_arguments(
    fake_store: Store,
) -> None:
    app = Celery("late accounts", set_as_current=False, backend="cache+memory://")
    Parsync(app, url="redis://127.0.0.1:1/0")

    @app.task(
        name="work",
        shared=False,
        parsync={"tenant": "{team}", "limits": ["customer:{customer_id}"]},
    )
    def work(customer_id: int, team: str) -> None:
        pytest.fail("it must not begin")

    drive = Driver(fake_store)
    drive.run(drive.commands.set_policy([("customer:*", "units=1")]))
    ended = list[str]()
    agent: Any = SimpleNamespace(
        reporter=SimpleNamespace(ended=lambda run, outcome: ended.append(outcome)), store=fake_store
    )
    delivery = Delivery(cast(Any, SimpleNamespace(app=app)), agent)
    for id, args, outcome in (("a", (7, "acme"), "again"), ("b", (7,), "failed")):
        item = make_submission({"name": "work", "id": id, "args": args}, {})
        drive.run(drive.commands.submit([item]))
        place = drive.place(id, drive.take()[id])
        assert drive.start(place) == "ok"
        payload = open_envelope(item.message)
        run = Run(place)
        assert delivery._declares_more(
            "work",
            payload["headers"]["parsync"],
            as_message(app, payload, Delivered),
            payload,
            run,
        )
        assert ended.pop() == outcome
        drive.finish(place, outcome)
    status = drive.status("a")
    assert (status.tenant, status.limits) == ("acme", "customer:7")
    assert run.flaw == (
        "with the options that its app declares: '{team}' of task work needs the argument team, "
        "which the call does not give"
    )
    message = drive.message("a")
    assert message is not None
    assert open_envelope(message)["headers"]["parsync_tenant"] == "acme"


@pytest.mark.parametrize(
    ("slots", "sees"),
    [(2, "it goes on"), (3, "task needs slots=3; the largest node has 2")],
    ids=["fits", "too large"],
)
def test_a_task_that_fits_nowhere_with_what_its_app_declares_fails_as_its_submit_would_have(
    fake_store: Store, slots: int, sees: str
) -> None:
    """Before any worker knew its name, it was accepted without the options that the worker's app
    declares.
    """
    app = Celery("late", set_as_current=False, backend="cache+memory://")
    Parsync(app, url="redis://127.0.0.1:1/0")

    @app.task(name="work", shared=False, parsync={"slots": slots})
    def work() -> None:
        pytest.fail("it must not begin")

    drive = Driver(fake_store)
    ended = list[str]()
    item = make_submission({"name": "work", "id": "a"}, {})
    drive.run(drive.commands.submit([item]))
    place = drive.place("a", drive.take()["a"])
    assert drive.start(place) == "ok"
    drive.offer("n1", "slots=2", "work")
    agent: Any = SimpleNamespace(
        reporter=SimpleNamespace(ended=lambda run, outcome: ended.append(outcome)), store=fake_store
    )
    payload = open_envelope(item.message)
    run = Run(place)
    carried = payload["headers"]["parsync"]
    assert Delivery(cast(Any, SimpleNamespace(app=app)), agent)._declares_more(
        "work", carried, as_message(app, payload, Delivered), payload, run
    )
    if slots == 2:
        assert (ended, run.flaw) == (["again"], "")
    else:
        assert ended == ["failed"]
        assert run.flaw.startswith(f"with the options that its app declares: {sees}")
        with pytest.raises(Infeasible, match=sees):
            app.AsyncResult("a").get(timeout=10)

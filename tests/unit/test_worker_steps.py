"""The steps of a worker, the scheduler beside it, what a worker that is no node says, and the
loader's Parsync.
"""

import pickle
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.concurrency import eventlet, gevent, prefork, thread
from celery.worker import WorkController
from celery.worker.components import Pool
from celery.worker.request import Request

from parsync_redis import InvalidInput, Parsync
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.settings import Settings, wants_scheduler
from parsync_redis.store.store import Store
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.wire.message import make_message
from parsync_redis.worker import scheduler_child as beside
from parsync_redis.worker.celery.bootsteps import (
    NodeStep,
    call_when_stopped,
    leave_before_soft_shutdown,
    stop,
)
from parsync_redis.worker.celery.delivered_message import Delivered, as_message
from parsync_redis.worker.celery.port import CeleryWorker
from parsync_redis.worker.celery.request import request_class
from parsync_redis.worker.celery.watch_cluster import WatchStep, placed_tasks
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.runs import Run
from parsync_redis.worker.scheduler_child import SchedulerBeside

LOADER = "parsync_redis.loader:Loader"


def test_the_watching_step_starts_after_the_pool_and_the_node() -> None:
    """Celery orders steps by what each requires, and else at random."""
    app = Celery("steps", set_as_current=False)
    Parsync(app, url="redis://127.0.0.1:1/0")
    blueprint: Any = WorkController.Blueprint(app.steps["worker"])
    names = blueprint._finalize_steps(blueprint.claim_steps())
    order = [step for _, step in names] if isinstance(names[0], tuple) else list(names)
    assert {Pool, NodeStep} <= set(blueprint.graph[WatchStep])
    assert order.index(Pool) < order.index(NodeStep) < order.index(WatchStep)


@pytest.mark.skipif(
    not hasattr(WorkController, "wait_for_soft_shutdown"),
    reason="Celery 5.4 knows no soft shutdown",
)
@pytest.mark.parametrize("runs", [1, 0])
def test_a_soft_shutdown_waits_for_a_run_that_the_pool_has_not_told_yet(
    runs: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = Celery("steps", set_as_current=False)
    app.conf.worker_soft_shutdown_timeout = 0.01
    worker: Any = WorkController.__new__(WorkController)  # a worker that starts no pool
    worker.app = app
    settings = Settings()
    no_port: Any = None
    store = Store.from_url(settings.url, settings.cluster)
    agent = Agent(settings, store, NodeSpec("n1", Resources.of(1), 1.0), no_port)
    for _ in range(runs):
        assert agent.node.runs.enter(Run(Place("t", "1@1", 0, "n1", (0,), 1, 0)))
    leave_before_soft_shutdown(worker, agent)
    worker.wait_for_soft_shutdown()
    assert ("Initiating Soft Shutdown" in caplog.text) is (runs > 0)


@pytest.mark.parametrize(
    ("pool", "patched_by", "why"),
    [
        (
            gevent.TaskPool,
            "gevent",
            "a node cannot use the pool celery.concurrency.gevent: use prefork, threads or solo",
        ),
        (
            eventlet.TaskPool,
            "eventlet",
            "a node cannot use the pool celery.concurrency.eventlet: use prefork, threads ",
        ),
        (
            prefork.TaskPool,
            "gevent",
            "a node cannot run in a process that gevent has patched: take the patch out",
        ),
    ],
)
def test_a_worker_of_greenlets_cannot_be_a_node_and_says_why(
    pool: Any,
    patched_by: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("kombu.utils.compat._environment", patched_by)
    app = Celery("steps", broker="redis://127.0.0.1:1/0", set_as_current=False)
    Parsync(app)
    with pytest.raises(SystemExit) as ended:
        app.Worker(pool_cls=pool, parsync=True)
    assert ended.value.code == 2
    assert [line.startswith(f"error: {why}") for line in capsys.readouterr().err.splitlines()] == [
        True
    ]


def test_a_task_that_waits_for_a_thread_at_a_cold_stop_goes_back_and_never_begins() -> None:
    """Celery leaves the threads of a pool that it ends cold alone, and what waits for them too."""
    app = Celery("steps", broker="memory://", set_as_current=False)

    @app.task(name="nothing", shared=False)
    def nothing() -> None: ...

    settings = Parsync(app, url="redis://127.0.0.1:1/0").settings()
    store = Store.from_url(settings.url, settings.cluster)
    pool = thread.TaskPool(1)
    worker: Any = SimpleNamespace(app=app, pool_cls=type(pool))
    agent = Agent(settings, store, NodeSpec("n1", Resources.of(2), 1.0), CeleryWorker(worker))
    app.parsync.agent = agent
    begun: SimpleQueue[str] = SimpleQueue()
    may_end = Event()
    runs: list[Run] = []
    for slot, task in enumerate(("goes-on", "waits")):
        run = Run(Place(task, "1@1", 0, "n1", (slot,), 1, 0))
        assert agent.node.runs.enter(run)
        payload = open_envelope(make_message("nothing", (), {}, task))
        payload["headers"]["parsync"] = {"id": task, "attempt": "1@1", "slot": slot}
        message = as_message(app, payload, Delivered)
        request = request_class(Request)(message, app=app, task=nothing)
        pool.apply_async(
            lambda task: (begun.put(task), may_end.wait(60)),
            (task,),
            accept_callback=request.on_accepted,
            callback=lambda _: None,
        )
        runs.append(run)
    assert begun.get(timeout=60) == "goes-on"
    pool.terminate()
    stop(pool, agent)
    may_end.set()
    pool.executor.shutdown()
    assert begun.empty(), "a task that was given back began"
    assert [run.outcome for run in runs] == ["", "again"]


def test_callbacks_at_stop_run_in_the_order_in_which_they_were_given() -> None:
    blueprint: Any = WorkController.Blueprint()
    said: list[str] = []
    blueprint.on_stopped = lambda: said.append("worker")
    call_when_stopped(blueprint, lambda: said.append("agent"))
    call_when_stopped(blueprint, lambda: said.append("scheduler"))
    blueprint.on_stopped()
    assert said == ["worker", "agent", "scheduler"]


def test_a_scheduler_beside_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OSError: no memory, or no process to be had. Here: no such program."""
    monkeypatch.setattr(beside, "FIRST_PAUSE_S", 0.01)
    thread = SchedulerBeside(Settings())
    command = thread._command
    thread._command = ["/no/such/program"]
    thread.start()
    while caplog.text.count("did not start") < 2:
        thread.join(0.01)
        assert thread.is_alive(), "it has given up"
    thread._command = [*command[:1], "-c", "print()"]
    while "ended with code 0" not in caplog.text:
        thread.join(0.01)
        assert thread.is_alive()
    thread.stop()


@pytest.mark.parametrize(
    ("flag", "text", "wants"),
    [(True, "", True), (None, "1", True), (None, "0", False), (None, "", False), (True, "0", True)],
)
def test_the_environment_asks_for_a_scheduler_too(
    flag: Any, text: str, wants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARSYNC_NODE_WITH_SCHEDULER", text)
    assert wants_scheduler(flag) is wants


def test_a_setting_other_than_1_or_0_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARSYNC_NODE_WITH_SCHEDULER", "two")
    with pytest.raises(
        InvalidInput, match="PARSYNC_NODE_WITH_SCHEDULER='two' is not valid: it must be 1 or 0"
    ):
        wants_scheduler(None)


def test_tasks_that_a_rule_places_are_named_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parsync.toml").write_text(
        '[place]\n"untouched.train" = true\n"marked.not" = false\n'
    )
    monkeypatch.setenv("PARSYNC_CONFIG", str(tmp_path / "parsync.toml"))
    app = Celery("unmodified", loader=LOADER, set_as_current=False)
    assert app.conf.task_default_queue == "celery"  # the loader is there
    for name, options in (
        ("untouched.train", {}),
        ("marked", {"parsync": True}),
        ("marked.not", {}),
        ("plain", {}),
    ):

        @app.task(name=name, shared=False, **options)
        def nothing() -> None: ...

    named = set(placed_tasks(app))  # tasks that other tests' apps share are there too
    assert {"marked", "untouched.train"} <= named
    assert not {"marked.not", "plain"} & named


def test_the_parsync_of_the_code_replaces_the_parsync_of_the_loader() -> None:
    app = Celery("both", loader=LOADER, broker="redis://127.0.0.1:1/0", set_as_current=False)
    assert app.conf.task_default_queue == "celery"  # the loader is there
    assert app.parsync.of_loader
    sender = app.amqp.send_task_message
    parsync = Parsync(app, url="redis://10.0.0.9:6379/3", cluster="mine")
    assert app.parsync is parsync
    assert (parsync.settings().url, parsync.settings().cluster) == (
        "redis://10.0.0.9:6379/3",
        "mine",
    )
    assert app.amqp.send_task_message is not sender
    assert type(app.amqp).parsync_of[2][1:] == ("redis://10.0.0.9:6379/3", "mine", None)
    assert pickle.loads(pickle.dumps(type(app.amqp))).parsync_of == type(app.amqp).parsync_of
    flags = [option.opts[0] for option in app.user_options["worker"]]
    assert len(flags) == len(set(flags))
    with pytest.raises(InvalidInput, match="has a Parsync already"):
        Parsync(app)


def test_the_loader_leaves_alone_an_app_that_has_one() -> None:
    app = Celery("first", loader=LOADER, set_as_current=False)
    parsync = Parsync(app, url="redis://10.0.0.9:6379/3")
    assert app.conf.task_default_queue == "celery"
    assert app.parsync is parsync

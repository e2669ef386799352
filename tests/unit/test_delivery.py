"""Tasks handed to Celery: only a task that begins there counts as a run of its name."""

from types import SimpleNamespace
from typing import Any

from celery import Celery

from parsync_redis.model.place import Place
from parsync_redis.worker.delivery import Delivery
from parsync_redis.worker.runs import Run


def test_a_task_that_its_worker_does_not_know_is_no_short_run() -> None:
    ended: list[str] = []
    agent: Any = SimpleNamespace(reporter=SimpleNamespace(ended=lambda run, outcome: ended.append(outcome)))
    consumer: Any = SimpleNamespace(
        app=Celery("known", set_as_current=False), strategies={}, on_unknown_task=lambda *_: None
    )
    run, received = Run(Place("a", "1@1", 0, "n1", (0,), 1, 0)), SimpleNamespace()
    Delivery(consumer, agent)._hand_over(run, received, {"headers": {"task": "unknown"}}, None)  # type: ignore[arg-type]
    assert (ended, run.began_s, run.name) == (["failed"], 0.0, "")

"""Apps that share a cluster: two versions of one (`before` and `after` a deploy), and another
team's (`team`).
"""

import os
import signal
from typing import Any

from celery import Celery, chain, chord, signals

from parsync_redis import Parsync
from parsync_redis.worker.celery import rate_limits


@signals.worker_init.connect
def be_patient(**_: Any) -> None:
    """Give late tasks their tokens, as the machine may stand still.

    In workers only: tests import this module too.
    """
    for name in ("MOMENT_S", "TOKEN_KEPT_S"):
        setattr(rate_limits, name, 60.0)


BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")


def new_app(name: str) -> Celery:
    """Return a Celery app that is a part of the cluster."""
    app = Celery(
        name,
        broker=BROKER,
        backend=os.environ.get("CELERY_RESULT_BACKEND", BROKER),
        set_as_current=False,
    )
    app.conf.broker_connection_retry_on_startup = True
    app.conf.task_routes = {"fleet.routed": {"queue": "video"}}
    Parsync(app)
    return app


def where(task: Any) -> str:
    """Return the node that runs the task."""
    return str(task.request.parsync["node"])


before = new_app("before")
after = new_app("after")
team = new_app("team")

for app in (before, after):

    @app.task(bind=True, name="fleet.kept", parsync=True, shared=False)
    def kept(self: Any, number: int = 0) -> str:
        return where(self)

    @app.task(bind=True, name="fleet.routed", parsync=True, shared=False)
    def routed(self: Any) -> tuple[str, str]:
        return where(self), self.request.delivery_info["routing_key"]

    @app.task(
        bind=True,
        name="fleet.train",
        parsync={"resources": {"gpu": 1}, "max_starts": 1},
        shared=False,
    )
    def train(self: Any) -> str:
        return where(self)

    @app.task(name="fleet.limited", parsync=True, rate_limit="2/s", shared=False)
    def limited(number: int) -> int:
        return number

    @app.task(name="fleet.paced", parsync=True, rate_limit="10/s", shared=False)
    def paced(number: int) -> int:
        return number

    @app.task(name="fleet.add", parsync=True, shared=False)
    def add(*numbers: int) -> int:
        return sum(numbers[0] if numbers and isinstance(numbers[0], list) else numbers)

    @app.task(bind=True, name="fleet.becomes_chain", parsync=True, shared=False)
    def becomes_chain(self: Any, number: int) -> None:
        add = self.app.tasks["fleet.add"]
        raise self.replace(chain(add.s(number), add.s(10), add.s(100)))

    @app.task(bind=True, name="fleet.becomes_chord", parsync=True, shared=False)
    def becomes_chord(self: Any, number: int) -> None:
        add = self.app.tasks["fleet.add"]
        raise self.replace(chord([add.s(i, number) for i in range(3)], add.s()))


@before.task(bind=True, name="fleet.old", parsync=True, shared=False)
def old(self: Any, number: int = 0) -> str:
    return where(self)


@after.task(bind=True, name="fleet.new", parsync=True, shared=False)
def new(self: Any, number: int = 0) -> str:
    return where(self)


@team.task(bind=True, name="team.work", parsync=True, shared=False)
def work(self: Any, number: int = 0) -> str:
    return where(self)


def die_once(task: Any, when: str) -> None:
    """Kill the process of the run, the first time that a run of any task comes here with this
    mark.
    """
    if task.backend.client.set(f"fleet:died:{when}", os.getpid(), nx=True, ex=300):
        os.kill(os.getpid(), signal.SIGKILL)


for app in (before, after):

    @app.task(bind=True, name="fleet.dies_after_replace", parsync=True, shared=False)
    def dies_after_replace(self: Any, number: int, when: str) -> None:
        add = self.app.tasks["fleet.add"]
        fragile = self.app.tasks["fleet.fragile_add"]
        try:
            there = {"require": {"kind": "fragile"}}
            self.replace(chain(fragile.s(number, 10, when).set(parsync=there), add.s(100)))
        finally:
            if when == "after the publish":
                die_once(self, when)

    @app.task(bind=True, name="fleet.fragile_add", parsync=True, shared=False)
    def fragile_add(self: Any, a: int, b: int, when: str) -> int:
        if when == "before the last step":
            die_once(self, when)
        return a + b

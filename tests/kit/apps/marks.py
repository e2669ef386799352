"""The Celery app of the system tests: its tasks leave marks on a list in Redis, so that tests
can wait for facts.

A mark is 'event key pid time'; the tests read them with `marks`. The name of a task says what it
does.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import redis
from celery import Celery, Task, shared_task
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded, WorkerShutdown
from celery.signals import worker_init
from kombu import serialization

from parsync_redis import Parsync, ServerUnreachable
from parsync_redis.worker.node import look_ahead
from tests.kit.unit_locks import locked_units

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
MARKS = "test:marks"
LATE = "test:late_s"
"""The seconds after which a worker that starts hands back what waits: a busy machine does not keep
milliseconds.
"""
STATE = ""
"""The address of the state, for the tests: Celery's server or a Redis Cluster."""

serialization.register("accepted", json.dumps, json.loads, "application/x-accepted", "utf-8")
app = Celery("system", broker=BROKER, backend=os.environ.get("CELERY_RESULT_BACKEND", BROKER))
app.conf.broker_connection_retry_on_startup = True
app.conf.task_send_sent_event = True
app.conf.accept_content = ["json", "application/x-accepted"]
app.conf.worker_hijack_root_logger = True
app.conf.beat_schedule = {
    "beaten": {"task": f"{__name__}.beaten", "schedule": 0.5, "args": ("beat",)},
    "beaten by name": {
        "task": f"{__name__}.plain_mark",
        "schedule": 0.5,
        "args": ("beat2",),
        "options": {"parsync": {"priority": 3}},
    },
}
Parsync(app, limits={"customer:*": 5})

_client: Any = None


def mark(event: str, key: object) -> None:
    """Leave a mark: what happened, to what, in which process, when."""
    global _client
    _client = _client or redis.Redis.from_url(BROKER)
    _client.rpush(MARKS, f"{event} {key} {os.getpid()} {time.monotonic():.3f}")


@worker_init.connect
def set_look_ahead(**_: object) -> None:
    """Set the times of look-ahead, if the test wants others."""
    with redis.Redis.from_url(BROKER) as client:
        if late_s := client.get(LATE):
            vars(look_ahead).update(LATE_BEGIN_S=float(late_s), SHORT_TASK_S=10.0)


def hold(key: str, name: str = "go") -> None:
    """Wait until the test opens the gate `name`, which is a key in Redis; at most
    three minutes.
    """
    mark("held", key)
    deadline = time.monotonic() + 180
    while not _client.exists(f"test:gate:{name}"):
        assert time.monotonic() < deadline, "nobody opened the gate"
        time.sleep(0.02)


@app.task(parsync=True)
def add(a: int, b: int) -> int:
    return a + b


@app.task(parsync=True)
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(parsync=True)
def noted(key: str, seconds: float = 0.0) -> str:
    """Leave a mark at the begin and at the end, so that tests see what ran, how often, and where."""
    mark("begin", key)
    time.sleep(seconds)
    mark("end", key)
    return key


@app.task(parsync=True, bind=True)
def where(self: Any, seconds: float = 0.0) -> dict[str, Any]:
    """Return the place of the run, as the request tells it."""
    time.sleep(seconds)
    return dict(self.request.parsync)


@app.task(parsync=True, bind=True)
def devices(self: Any, key: str = "", gate: str = "") -> dict[str, Any]:
    """Return the devices in the variables of the run's process, and the devices that the request names."""
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES")
    seen = {name: os.environ.get(name) for name in names}
    mark("sees", f"{key}={seen['CUDA_VISIBLE_DEVICES']}")
    if gate:
        hold(key, gate)
    return {**seen, "pid": os.getpid(), "parsync": dict(self.request.parsync)}


@app.task(parsync=True)
def frozen() -> int:
    """Return the number of objects that this process does not collect as garbage: they were made before the fork."""
    return gc.get_freeze_count()


@app.task(parsync=True)
def gated(key: str, gate: str = "go") -> str:
    hold(key, gate)
    mark("end", key)
    return key


@app.task(parsync=True)
def unlearnt(key: str) -> str:
    """Wait at a gate; only one test has the task, so that no run time is learnt before."""
    hold(key, "go")
    return key


@app.task(parsync=True)
def clinging(key: str, gate: str = "go") -> str:
    """Wait at a gate, and go on waiting after the process was asked to end."""
    try:
        hold(key, gate)
    except SystemExit:
        mark("asked", key)
        hold(key, gate)
    return key


@app.task(parsync=True, bind=True)
def sole(
    self: Any, key: str, folder: str, at_once: int, seconds: float = 0.0, gate: str = ""
) -> None:
    """Lock a unit of the limit `sole` meanwhile, and wait at a gate if one is named."""
    with locked_units(Path(folder), {"sole": (1, at_once)}, self.request.parsync):
        mark("begin", key)
        if gate:
            hold(key, gate)
        time.sleep(seconds)
        mark("end", key)


@app.task
def plain(a: int) -> int:
    return 2 * a


@app.task
def plain_mark(key: str) -> None:
    mark("plain", key)


@app.task(parsync=True)
def beaten(key: str) -> None:
    mark("beaten", key)


@shared_task(parsync={"slots": 1})
def shared(a: int) -> int:
    return a + 1


@app.task(bind=True)
def placed_at(self: Any) -> dict[str, Any] | None:
    """Return the place of the run. The task is plain by itself: its request shows whether it came through parsync."""
    return getattr(self.request, "parsync", None) or None


@app.task(bind=True, max_retries=3, parsync={"limits": ["customer:{customer_id}"]})
def charge(self: Any, amount: int, customer_id: int, fails: int = 0) -> int:
    """Fail the first `fails` times. The task declares a limit with a parameter."""
    if self.request.retries < fails:
        raise self.retry(countdown=0.05)
    return amount


@app.task(parsync=True, bind=True, max_retries=3)
def flaky(self: Any, fails: int) -> int:
    if self.request.retries < fails:
        raise self.retry(countdown=0.05, exc=ValueError("flaky"))
    return int(self.request.retries)


@app.task(bind=True, max_retries=3)
def flaky_where(self: Any, fails: int) -> dict[str, Any]:
    """Fail the first `fails` times. The task is plain: the options of the call must hold for its retries too."""
    if self.request.retries < fails:
        raise self.retry(countdown=0.05)
    return {"retries": self.request.retries, "parsync": getattr(self.request, "parsync", None)}


@app.task(bind=True, max_retries=3, parsync={"slots": 1, "priority": 4})
def flaky_own(self: Any, fails: int) -> dict[str, Any]:
    """Fail the first `fails` times. The task declares options of its own; the options of the call override them."""
    if self.request.retries < fails:
        raise self.retry(countdown=0.05)
    return {"retries": self.request.retries, "parsync": dict(self.request.parsync)}


@app.task(
    parsync=True, autoretry_for=(KeyError,), retry_kwargs={"max_retries": 2, "countdown": 0.05}
)
def auto(key: str) -> None:
    mark("auto", key)
    raise KeyError(key)


@app.task(parsync=True, bind=True)
def replaced(self: Any, a: int) -> Any:
    return self.replace(add.s(a, a))


@app.task(parsync=True, bind=True, max_retries=2)
def outgrows(self: Any, how: str, **parsync: Any) -> Any:
    """Ask for other needs in the next run."""
    if self.request.retries:
        return "ran again"
    if how == "retry":
        raise self.retry(countdown=0, parsync=parsync)
    return self.replace(app.signature(how, (3, 4)).set(parsync=parsync))


@app.task(parsync=True, bind=True)
def doubtful(self: Any, key: str, how: str, executed: bool) -> str:
    """Ask for another run; in the first run the server's answer is lost, though the server may have executed the request."""
    mark("doubtful", key)
    if self.request.retries:
        return "ran again"
    client = app.parsync.client
    send = client.send

    def lose(*args: Any) -> None:
        if executed:
            send(*args)
        raise ServerUnreachable("the answer is lost")

    if _client.incr(f"test:doubtful:{key}") == 1:
        client.send = lose
    try:
        if how == "retry":
            raise self.retry(countdown=0)
        return self.replace(noted.si("ran again"))
    finally:
        client.send = send


SUBMITS: dict[str, Callable[[str], object]] = {
    "delay": lambda id: add.si(1, 2).set(task_id=id).delay(),
    "send_task": lambda id: app.send_task(f"{__name__}.add", (1, 2), task_id=id),
    "a client": lambda id: app.parsync.client.submit(f"{__name__}.add", [1, 2], id=id),
    "another tenant": lambda id: add.apply_async((1, 2), task_id=id, parsync={"tenant": "sales"}),
    "no tenant": lambda id: add.apply_async((1, 2), task_id=id, parsync={"tenant": ""}),
    "a plain task": lambda id: app.send_task(f"{__name__}.plain_submits", ("delay", id)),
}
"""Ways in which a task submits another task."""


@app.task(parsync=True)
def submits(way: str, id: str) -> None:
    """Submit a task in one of the ways."""
    SUBMITS[way](id)


@app.task
def plain_submits(way: str, id: str) -> None:
    """Do the same in a task that parsync does not place."""
    SUBMITS[way](id)


@app.task(parsync=True, bind=True)
def retries_after(self: Any, key: str) -> None:
    """Wait at the gate 'retry', and then retry."""
    hold(key, "retry")
    raise self.retry(countdown=0)


@app.task(parsync=True)
def boom(text: str = "boom") -> None:
    raise ValueError(text)


@app.task(parsync=True, bind=True)
def fragile(self: Any, seconds: float) -> str:
    """Fail at once on the nodes that the test has broken."""
    node = str(self.request.parsync["node"])
    mark("fragile", node)
    if _client.sismember("test:broken", node):
        raise OSError(f"{node} is broken")
    time.sleep(seconds)
    return node


@app.task(parsync=True)
def ignoring(key: str) -> None:
    mark("ignoring", key)
    raise Ignore


@app.task(parsync=True, acks_late=True)
def rejecting(key: str, requeue: bool = False) -> str:
    """Reject its message the first time."""
    mark("rejecting", key)
    if _client.incr(f"test:rejected:{key}") == 1:
        raise Reject("no", requeue=requeue)
    return key


@app.task(parsync=True)
def caught(*args: Any) -> None:
    """Catch an error as an errback: called with the id of what failed, or in the newer way."""
    mark("errback", "called")


@app.task(parsync=True, time_limit=0.5)
def hard_limited() -> None:
    time.sleep(30)


@app.task(parsync=True, soft_time_limit=0.5, time_limit=20)
def soft_limited() -> str:
    try:
        time.sleep(30)
    except SoftTimeLimitExceeded:
        return "soft"
    return "none"


@app.task(parsync=True)
def dies(key: str, times: int) -> str:
    """Kill its own process the first `times` times."""
    mark("dies", key)
    if _client.incr(f"test:died:{key}") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


ENDS = {
    "sys.exit": lambda: sys.exit(3),
    "sys.exit(15)": lambda: sys.exit(15),
    "KeyboardInterrupt": lambda: raises(KeyboardInterrupt()),
    "CancelledError": lambda: raises(asyncio.CancelledError()),
    "GeneratorExit": lambda: raises(GeneratorExit()),
    "WorkerShutdown": lambda: raises(WorkerShutdown(0)),
    "os._exit": lambda: os._exit(3),
    "os._exit(0)": lambda: os._exit(0),
}
"""Ways in which a task ends its run, or its process, with something other than an Exception."""


def raises(error: BaseException) -> None:
    raise error


@app.task(parsync=True)
def ends(key: str, how: str) -> None:
    mark("ends", key)
    ENDS[how]()


@app.task(parsync=True, ignore_result=True)
def silent(key: str) -> str:
    mark("silent", key)
    return key


@app.task(parsync=True, acks_late=True)
def late(a: int) -> int:
    return a


@app.task(parsync=True, rate_limit="20/s")
def limited(a: int) -> int:
    return a


@app.task(parsync=True, rate_limit="1/h")
def hourly(key: str) -> str:
    mark("hourly", key)
    return key


class Doubled(Task):
    """A task as a class."""

    name = "system.doubled"
    parsync: ClassVar = {"slots": 1}

    def run(self, a: int) -> int:
        return 2 * a


doubled = app.register_task(Doubled())

if option := os.environ.get("TEST_BAD_TASK"):

    class Bad(Task):  # type: ignore[misc,unused-ignore]
        """A task that asks for what there is not.

        Nobody but a worker looks at the declaration of a class.
        """

        name = f"{__name__}.bad"
        parsync: ClassVar = {option: 1}

    app.register_task(Bad())

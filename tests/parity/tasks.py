"""The tasks of the parity suite: functions with Celery's options, of which `app.build` makes tasks."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import redis
from celery import Task, chain, chord, group
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.result import allow_join_result
from pydantic import BaseModel

TASKS: list[tuple[Callable[..., Any], dict[str, Any]]] = []
MARKS, GATES = "parity:marks:", "parity:gate:"
GATE_S = 40
_clients: dict[int, Any] = {}


def task(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a task with these options."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        TASKS.append((function, options))
        return function

    return add


def client() -> Any:
    """Redis, over a connection of this process."""
    if os.getpid() not in _clients:
        _clients[os.getpid()] = redis.Redis.from_url(os.environ["PARITY_URL"], decode_responses=True)
    return _clients[os.getpid()]


def mark(key: str, what: object = "") -> int:
    """Leaves a mark that the case reads; how many there are."""
    return int(client().rpush(MARKS + key, str(what)))


def wait(key: str) -> None:
    """Waits at a gate until the case opens it."""
    deadline = time.monotonic() + GATE_S
    while not client().exists(GATES + key):
        assert time.monotonic() < deadline, "nobody opened the gate"
        time.sleep(0.02)


class Odd(Exception):
    """An exception of the app's own, with more than a text."""


class Stubborn(Exception):
    """One that cannot be pickled as it is."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__("stubborn")
        self.first, self.second = first, second


class Hooked(Task):
    """Marks what Celery calls, under the key that is the task's first argument."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        mark(args[0], "before_start")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        mark(args[0], f"on_success {retval}")

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        mark(args[0], f"on_failure {exc!r}")

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        mark(args[0], f"on_retry {type(exc).__name__}")

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        mark(args[0], f"after_return {status}")

    def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
        return "parity.shadow"


class Numbers(BaseModel):
    """What the pydantic tasks take and return."""

    a: int
    b: int = 2


# -- values and errors -------------------------------------------------------------------------------------------------


@task()
def add(a: Any, b: Any) -> Any:
    return a + b


@task()
def total(numbers: list[Any]) -> Any:
    return sum(numbers)


@task()
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task()
def marks(key: str, what: Any = "") -> Any:
    mark(key, what)
    return key


@task()
def count(*args: Any, key: str) -> int:
    return mark(key, len(args))


@task()
def nothing() -> None:
    return None


@task()
def boom(text: Any = "boom") -> None:
    raise ValueError(text)


@task()
def boom_with(kind: str) -> None:
    if kind == "cause":
        try:
            raise KeyError("first")
        except KeyError as error:
            raise Odd("second", 2) from error
    raise {"odd": Odd("odd", 1), "stubborn": Stubborn(1, 2), "memory": RuntimeError("m"), "stop": StopIteration(3)}[
        kind
    ]


@task()
def unpackable() -> Any:
    return object()


@task()
def gated(key: str) -> str:
    mark(key, "began")
    wait(key)
    mark(key, "ended")
    return key


@task()
def sleeps(key: str, seconds: float) -> str:
    mark(key, "began")
    time.sleep(seconds)
    return key


@task(bind=True)
def fields(self: Any, *names: str) -> Any:
    return {name: getattr(self.request, name, None) for name in names}


@task(bind=True)
def headers(self: Any) -> Any:
    return {key: value for key, value in (self.request.headers or {}).items() if key.startswith("x-")}


@task(bind=True)
def delivery(self: Any) -> Any:
    return dict(self.request.delivery_info or {})


# -- retries -----------------------------------------------------------------------------------------------------------


@task(bind=True, max_retries=3)
def flaky(self: Any, fails: int, countdown: float = 0.01) -> int:
    if self.request.retries < fails:
        raise self.retry(countdown=countdown, exc=ValueError("flaky"))
    return int(self.request.retries)


@task(bind=True, default_retry_delay=0.01, max_retries=2)
def retries_as(self: Any, key: str, how: str) -> Any:
    n = mark(key, self.request.retries)
    if how == "bare":
        raise self.retry()
    if how == "args" and n == 1:
        raise self.retry(args=[key, "done"], countdown=0)
    if how == "kwargs" and n == 1:
        raise self.retry(args=[key], kwargs={"how": "done"}, countdown=0)
    if how == "eta" and n == 1:
        from datetime import UTC, datetime, timedelta

        raise self.retry(eta=datetime.now(UTC) + timedelta(seconds=0.1))
    if how == "more" and n < 5:
        raise self.retry(countdown=0, max_retries=4)
    if how == "nothrow" and n == 1:
        self.retry(countdown=0, throw=False)
        return "this run's"
    if how == "implied":
        try:
            raise KeyError("implied")
        except KeyError:
            self.retry(countdown=0, max_retries=1)
    if how == "headers" and n == 1:
        raise self.retry(countdown=0, headers={"x-again": "yes"})
    if how == "limits" and n == 1:
        raise self.retry(countdown=0, time_limit=33)
    return [n, self.request.retries, self.request.timelimit, (self.request.headers or {}).get("x-again")]


@task(autoretry_for=(KeyError,), retry_kwargs={"max_retries": 2, "countdown": 0})
def auto(key: str) -> None:
    mark(key)
    raise KeyError(key)


@task(
    autoretry_for=(Exception,),
    dont_autoretry_for=(KeyError,),
    max_retries=2,
    retry_backoff=False,
    default_retry_delay=0,
)
def auto_but(key: str, what: str) -> None:
    mark(key)
    raise {"key": KeyError, "value": ValueError}[what](what)


@task(autoretry_for=(KeyError,), max_retries=2, retry_backoff=0.05, retry_backoff_max=0.1, retry_jitter=False)
def backoff(key: str) -> str:
    if mark(key) < 3:
        raise KeyError(key)
    return "in the end"


@task(bind=True, max_retries=1)
def publishes_itself(self: Any, key: str) -> int:
    n = mark(key, self.request.retries)
    if n == 1:
        self.apply_async((key,), task_id=self.request.id)
        raise self.retry(countdown=0)
    return n


# -- replacing ---------------------------------------------------------------------------------------------------------


@task(bind=True)
def replaced(self: Any, how: str) -> Any:
    t = self.app.tasks
    add, total, boom = t["parity.add"], t["parity.total"], t["parity.boom"]
    raise self.replace(
        {
            "task": lambda: add.s(1, 2),
            "chain": lambda: chain(add.s(1, 2), add.s(3)),
            "group": lambda: group(add.s(1, 2), add.s(3, 4)),
            "chord": lambda: chord([add.s(1, 2), add.s(3, 4)], total.s()),
            "failure": lambda: boom.s("replaced"),
            "chain of chord": lambda: chain(chord([add.s(1, 2), add.s(3, 4)], total.s()), add.s(5)),
            "itself": lambda: t["parity.replaced"].s("task"),
        }[how]()
    )


@task(bind=True)
def becomes_gated(self: Any, key: str) -> Any:
    t = self.app.tasks
    raise self.replace(chain(t["parity.gated"].si(key), t["parity.marks"].si(key, "last")))


@task(bind=True)
def extends(self: Any, a: int) -> int:
    if a > 0:
        self.add_to_chord(self.app.tasks["parity.extends"].s(a - 1))
    return a


# -- states and children -----------------------------------------------------------------------------------------------


@task(bind=True)
def reports(self: Any, key: str) -> str:
    self.update_state(state="PROGRESS", meta={"done": 3})
    mark(key, "reported")
    wait(key)
    return key


@task(bind=True)
def spawns(self: Any, n: int) -> Any:
    return [self.app.tasks["parity.add"].delay(i, i).id for i in range(n)] and n


@task(bind=True, trail=False)
def trackless(self: Any) -> int:
    self.app.tasks["parity.add"].delay(1, 1)
    return 1


@task(bind=True)
def waits_for(self: Any, how: str) -> Any:
    result = self.app.tasks["parity.add"].delay(1, 2)
    if how == "refused":
        return result.get(timeout=10)
    if how == "allowed":
        with allow_join_result():
            return result.get(timeout=10)
    return result.get(timeout=10, disable_sync_subtasks=False)


@task(bind=True)
def sends_event(self: Any, what: str) -> str:
    self.send_event("task-parity", what=what)
    return what


# -- options -----------------------------------------------------------------------------------------------------------


@task(base=Hooked, bind=True, max_retries=1)
def hooked(self: Any, key: str, how: str) -> str:
    if how == "fails":
        raise ValueError(how)
    if how == "retries" and not self.request.retries:
        raise self.retry(countdown=0)
    if how == "ignores":
        raise Ignore
    return how


@task(bind=True, ignore_result=True)
def silent(self: Any, key: str, fails: bool = False) -> str:
    mark(key, self.request.ignore_result)
    if fails:
        raise ValueError("silent")
    return key


@task(ignore_result=True, store_errors_even_if_ignored=True)
def silent_but(key: str) -> None:
    mark(key)
    raise ValueError("stored")


@task()
def annotated(key: str) -> str:
    mark(key)
    return key


@task(track_started=True)
def tracked(key: str) -> str:
    mark(key, "began")
    wait(key)
    return key


@task(acks_late=True)
def late(key: str) -> int:
    return mark(key)


@task(acks_late=True, acks_on_failure_or_timeout=False)
def late_unacked(key: str) -> None:
    mark(key)
    raise ValueError("late")


@task(acks_late=True)
def rejects(key: str, requeue: bool) -> int:
    if mark(key) == 1:
        raise Reject("no", requeue=requeue)
    return 2


@task()
def ignores(key: str) -> None:
    mark(key)
    raise Ignore


@task(bind=True)
def ignores_with_state(self: Any, key: str) -> None:
    self.update_state(state="HALF", meta={"n": 1})
    raise Ignore


@task(time_limit=0.7)
def hard(key: str) -> None:
    mark(key)
    time.sleep(20)


@task(soft_time_limit=0.4, time_limit=20)
def soft(key: str, catches: bool) -> str:
    try:
        time.sleep(20)
    except SoftTimeLimitExceeded:
        if not catches:
            raise
    return "caught"


@task(rate_limit="30/m")
def limited(key: str) -> int:
    return mark(key)


@task(typing=False)
def untyped(a: int) -> int:
    return a


@task(pydantic=True)
def typed(numbers: Numbers) -> Numbers:
    return Numbers(a=numbers.a + numbers.b, b=0)


@task(serializer="pickle")
def pickled(value: Any) -> str:
    return type(value).__name__


@task(resultrepr_maxsize=12)
def long_result() -> str:
    return "x" * 200


@task(expires=0.2)
def perishable(key: str) -> int:
    return mark(key)


@task(send_events=False)
def quiet(a: int) -> int:
    return a


@task(priority=7)
def important(a: int) -> int:
    return a


@task()
def routed(a: int) -> int:
    return a


@task()
def by_argument(queue: str) -> str:
    return queue


@task(parsync=False)
def ordinary(a: int) -> int:
    return a


@task(queue="elsewhere")
def queued(a: int) -> int:
    return a


@task(throws=(ValueError,))
def throws(a: int) -> None:
    raise ValueError(a)


# -- ends --------------------------------------------------------------------------------------------------------------


@task(reject_on_worker_lost=True, acks_late=True)
def lost_late(key: str, how: str) -> int:
    n = mark(key)
    if n == 1:
        end(how)
    return n


@task(retry_on_worker_lost=True, max_retries=1, default_retry_delay=0)
def lost_retries(key: str, ends: int) -> int:
    n = mark(key)
    if n <= ends:
        end("os._exit")
    return n


@task()
def ends(key: str, how: str) -> None:
    mark(key)
    end(how)


BEGUN_S = 0.3
"""A pool of processes runs a task once more whose process ends before the pool has read that it began."""


def end(how: str) -> None:
    """Ends the run, or its process, without an ordinary exception."""
    if how == "sys.exit":
        sys.exit(3)
    if how == "sys.exit()":
        sys.exit()
    if how == "sys.exit(text)":
        sys.exit("text")
    if how == "os._exit":
        time.sleep(BEGUN_S)
        os._exit(3)
    if how.startswith("SIG"):
        import signal

        time.sleep(BEGUN_S)
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(20)
    raise {
        "KeyboardInterrupt": KeyboardInterrupt,
        "CancelledError": asyncio.CancelledError,
        "GeneratorExit": GeneratorExit,
        "MemoryError": MemoryError,
    }[how]


# -- callbacks ---------------------------------------------------------------------------------------------------------


@task()
def called(*args: Any, key: str) -> None:
    mark(key, [arg for arg in args if isinstance(arg, int | list)])


@task()
def errback(request: Any, error: Any, trace: Any, key: str) -> None:
    mark(key, f"{type(error).__name__} {error} {bool(trace)}")


@task()
def old_errback(id: str) -> None:
    mark(id, "old")

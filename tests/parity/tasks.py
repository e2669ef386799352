"""Tasks of the parity suite: values, errors, retries, replacing, states.

`app.build` makes Celery's tasks of them.
"""

import time
from typing import Any

from celery import chain, chord, group
from celery.result import allow_join_result

from .task_kit import Odd, Stubborn, mark, task, wait

# -- values and errors -----------------------------------------------------------------------------


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
    raise {
        "odd": Odd("odd", 1),
        "stubborn": Stubborn(1, 2),
        "memory": RuntimeError("m"),
        "stop": StopIteration(3),
    }[kind]


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
def etas(self: Any) -> Any:
    return [self.request.eta]


@task(bind=True)
def retries_with_eta(self: Any, key: str) -> Any:
    if mark(key, bool(self.request.eta)) == 1:
        raise self.retry(countdown=0.1)
    return key


@task(bind=True)
def headers(self: Any) -> Any:
    return {
        key: value for key, value in (self.request.headers or {}).items() if key.startswith("x-")
    }


@task(bind=True)
def header_names(self: Any) -> Any:
    return list(self.request.headers or ())


@task(bind=True)
def delivery(self: Any) -> Any:
    return dict(self.request.delivery_info or {})


# -- retries ---------------------------------------------------------------------------------------


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
    return [
        n,
        self.request.retries,
        self.request.timelimit,
        (self.request.headers or {}).get("x-again"),
    ]


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


@task(
    autoretry_for=(KeyError,),
    max_retries=2,
    retry_backoff=0.05,
    retry_backoff_max=0.1,
    retry_jitter=False,
)
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


# -- replacing -------------------------------------------------------------------------------------


@task(bind=True)
def replaced(self: Any, how: str) -> Any:
    t = self.app.tasks
    add = t["parity.add"]
    total = t["parity.total"]
    boom = t["parity.boom"]
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


# -- states and children ---------------------------------------------------------------------------


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
        return result.get(timeout=180)
    if how == "allowed":
        with allow_join_result():
            return result.get(timeout=180)
    return result.get(timeout=180, disable_sync_subtasks=False)


@task(bind=True)
def sends_event(self: Any, what: str) -> str:
    self.send_event("task-parity", what=what)
    return what

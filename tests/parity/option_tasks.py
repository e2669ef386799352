"""Tasks of the parity suite: options, ends of runs, callbacks."""

import asyncio
import os
import sys
import time
from typing import Any

from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from .task_kit import Hooked, Numbers, mark, task, wait

# -- options ---------------------------------------------------------------------------------------


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


# -- ends ------------------------------------------------------------------------------------------


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


@task(bind=True, acks_late=True, reject_on_worker_lost=True)
def redelivered(self: Any, key: str, how: str) -> int:
    n = mark(key, bool(self.request.delivery_info["redelivered"]))
    if n > 1:
        return n
    if how == "reject":
        raise Reject("once", requeue=True)
    if how == "retry":
        raise self.retry(countdown=0)
    end(how)
    return n


@task()
def ends(key: str, how: str) -> None:
    mark(key)
    end(how)


BEGUN_S = 0.3
"""A pool of processes runs a task once more whose process ends before the pool has read that it
began.
"""


def end(how: str) -> None:
    """End the run, or its process, without an ordinary exception."""
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


# -- callbacks -------------------------------------------------------------------------------------


@task()
def called(*args: Any, key: str) -> None:
    mark(key, [arg for arg in args if isinstance(arg, int | list)])


@task()
def errback(request: Any, error: Any, trace: Any, key: str) -> None:
    mark(key, f"{type(error).__name__} {error} {bool(trace)}")


@task()
def old_errback(id: str) -> None:
    mark(id, "old")

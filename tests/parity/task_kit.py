"""Tools of the parity suite's tasks: marks and gates that their cases see, their table, classes of
errors.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import redis
from celery import Task
from pydantic import BaseModel

TASKS: list[tuple[Callable[..., Any], dict[str, Any]]] = []
MARKS = "parity:marks:"
GATES = "parity:gate:"
GATE_S = 40
_clients: dict[int, Any] = {}


def task(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a task with these options."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        TASKS.append((function, options))
        return function

    return add


def client() -> Any:
    """Return a client of Redis, over a connection of this process."""
    if os.getpid() not in _clients:
        _clients[os.getpid()] = redis.Redis.from_url(
            os.environ["PARITY_URL"], decode_responses=True
        )
    return _clients[os.getpid()]


def mark(key: str, what: object = "") -> int:
    """Leave a mark that the case reads; return how many there are."""
    return int(client().rpush(MARKS + key, str(what)))


def wait(key: str) -> None:
    """Wait at a gate until the case opens it."""
    deadline = time.monotonic() + GATE_S
    while not client().exists(GATES + key):
        assert time.monotonic() < deadline, "nobody opened the gate"
        time.sleep(0.02)


class Odd(Exception):
    """An exception of the app's own, with more than a text."""


class Stubborn(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__("stubborn")
        self.first = first
        self.second = second


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

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        mark(args[0], f"after_return {status}")

    def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
        return "parity.shadow"


class Numbers(BaseModel):
    """The argument and the result of the pydantic tasks."""

    a: int
    b: int = 2

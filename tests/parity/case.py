"""A case: one thing that a Celery user does, as a function that returns what can be compared; and
what it is given.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import uuid4

import redis
from celery import Celery
from celery.exceptions import TimeoutError as GetTimeout

from tests.kit.waiting import until

from .task_kit import GATES, MARKS

PREFORK = "prefork"
THREADS = "threads"
POOLS = (PREFORK, THREADS)
PATIENCE_S = 180.0
"""Seconds for which a case waits for an event that must come."""
REPLY_S = 30.0
"""Seconds after which a case asks a worker again: a reply may be lost."""
MOMENT_S = 2.0
"""Seconds for which a case waits for an event that plain Celery never sends."""


@dataclass(frozen=True)
class Case:
    """A comparison of plain Celery and parsync.

    calls: the parts of Celery that the case uses.
    shows: the answer that must be the same.
    differs: why the two answers differ on purpose, on the pools `differs_on`; '' if they must be
        the same.
    alone: whether the case changes the worker, so that nothing may run beside it.
    short: whether the case is in the form that runs on older versions of Celery.
    """

    area: str
    calls: str
    shows: str
    run: Callable[["Context"], Any]
    differs: str = ""
    differs_on: tuple[str, ...] = POOLS
    pools: tuple[str, ...] = POOLS
    alone: bool = False
    short: bool = False
    since: tuple[int, int] = (5, 4)

    @property
    def id(self) -> str:
        """Return the name of the case in tests and on the page."""
        return f"{self.calls}: {self.shows}"


CASES: list[Case] = []


def area(name: str) -> Callable[..., Any]:
    """Return a function that adds cases of this area.

    The function is a decorator, or takes the case's function as its last argument.
    """

    def add(
        calls: str, shows: str, run: Callable[["Context"], Any] | None = None, **more: Any
    ) -> Any:
        def keep(function: Callable[["Context"], Any]) -> Callable[["Context"], Any]:
            CASES.append(Case(name, calls, shows, function, **more))
            return function

        return keep if run is None else keep(run)

    return add


class Context:
    """The context of a case: an app with a worker, its tasks, and a key of its own for marks and
    gates.
    """

    def __init__(
        self, app: Celery, kind: str, pool: str, client: Any, worker: str, said: "Said"
    ) -> None:
        self.app = app
        self.t = app.t
        self.kind = kind
        self.pool = pool
        self.redis = client
        self.worker = worker
        self.said = said
        self.key = uuid4().hex
        self.s = PATIENCE_S
        self.reply_s = REPLY_S

    def end(self, result: Any, timeout_s: float = PATIENCE_S) -> Any:
        """Return how a result ended, its state and value; 'nothing' if it does not end in time."""
        try:
            value = result.get(timeout=timeout_s, propagate=False)
        except GetTimeout:
            return "nothing"
        return [result.state, value] if hasattr(result, "state") else value

    def until(self, fact: Callable[[], Any], what: str = "a fact") -> Any:
        """Wait for a fact and return it."""
        return until(fact, what, PATIENCE_S)

    def marks(self, n: int = 0, key: str = "") -> list[str]:
        """Return the marks under this case's key, as soon as there are n of them."""
        name = MARKS + (key or self.key)
        self.until(lambda: self.redis.llen(name) >= n, f"{n} marks")
        return list(self.redis.lrange(name, 0, -1))

    def open(self, key: str = "") -> None:
        """Open the gate at which this case's tasks wait."""
        self.redis.set(GATES + (key or self.key), "open", ex=60)

    def begun(self, *results: Any) -> None:
        """Wait until the worker knows that these tasks run: their own marks come a
        moment earlier.
        """
        ids = [result.id for result in results]
        inspect = self.app.control.inspect(destination=[self.worker], timeout=self.reply_s)

        def active() -> bool:
            found = (inspect.query_task(ids) or {}).get(self.worker) or {}
            return [found[id][0] for id in ids if id in found] == ["active"] * len(ids)

        self.until(active, "they run")

    def states(self, results: Any) -> list[str]:
        """Return the states of results, in order, when all have ended."""
        return [self.end(result) and result.state for result in results]


def raised(run: Callable[[], Any]) -> Any:
    """Return the exception that it raises."""
    try:
        value = run()
    except Exception as error:
        return error
    return ["no error", value]


_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_NOISE = ((_UUID, "ID"), (re.compile(r" Job: \d+"), ""), (re.compile(r"0x[0-9a-f]+"), "0x"))


def comparable(value: Any, worker: str = "") -> Any:
    """Return a value without what differs from one run to the next: ids, addresses, the worker's
    name.
    """
    if isinstance(value, str):
        for pattern, word in _NOISE:
            value = pattern.sub(word, value)
        return value.replace(worker, "WORKER") if worker else value
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "text": comparable(str(value), worker)}
    if isinstance(value, Mapping):
        return {
            str(comparable(key, worker)): comparable(each, worker) for key, each in value.items()
        }
    if isinstance(value, set | frozenset):
        return sorted(map(str, (comparable(each, worker) for each in value)))
    if isinstance(value, list | tuple):
        return [comparable(each, worker) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return comparable(str(value), worker)


class Said:
    """The events of one app, by task id, as one thread reads them."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = Lock()
        self._stopped = False
        self._receiver: Any = None
        self._events: dict[Any, list[dict[str, Any]]] = {}

    def run(self) -> None:
        """Read events until stopped, by one subscription: an event that is sent between two subscriptions is lost."""
        with self._app.connection_for_read() as connection:
            self._receiver = self._app.events.Receiver(connection, handlers={"*": self._keep})
            self._receiver.should_stop = self._stopped
            self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def stop(self) -> None:
        """Let the reading end within a second."""
        self._stopped = True
        if self._receiver:
            self._receiver.should_stop = True

    def _keep(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            self._events.setdefault(event.get("uuid"), []).append(dict(event))

    def of(self, id: str) -> list[dict[str, Any]]:
        """Return the events of one task so far."""
        with self._lock:
            return list(self._events.get(id, ()))


def connect(url: str) -> Any:
    """Return a client of Redis, as a case reads marks."""
    return redis.Redis.from_url(url, decode_responses=True)

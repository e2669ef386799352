"""Clients that submit without end, ask again until they know, and watch how their tasks end."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parsync_redis import ParsyncClient
from parsync_redis.errors import InvalidInput, ParsyncError, ServerUnreachable
from parsync_redis.model.task import TaskState
from parsync_redis.store.store import Store

from .history import FINAL
from .limited import AT_ONCE, draw_limits

WORK = "tests.chaos.real.app.work"
Make = Callable[[random.Random], dict[str, Any]]
"""Makes the arguments of a submit."""


def mixed(dice: random.Random) -> dict[str, Any]:
    """Return a random task: mostly short, some long, some with several slots, resources
    or labels, most under limits.
    """
    kind = dice.random()
    task: dict[str, Any] = {
        "args": [round(dice.uniform(0.0, 0.5), 2)],
        "priority": dice.randrange(10),
    }
    if kind < 0.04:
        task["args"] = [dice.uniform(2.0, 5.0)]
    elif kind < 0.16:
        task["slots"] = 2
    elif kind < 0.28:
        task["resources"] = {"mem": "1GiB"}
    elif kind < 0.36:
        task["require"] = {"zone": dice.choice("ab")}
    if limits := draw_limits(dice):
        task["limits"] = limits
        task["args"].append({name: (units, AT_ONCE[name]) for name, units in limits.items()})
    return {**task, "wait_for_capacity": True}


@dataclass(slots=True)
class Book:
    """The knowledge that all clients share.

    `final` is the first final state that was seen of a task, `open` are acknowledged tasks that
    were not seen to end.
    """

    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    final: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, id: str) -> None:
        """Record that a submit was answered."""
        with self.lock:
            self.acknowledged.add(id)
            self.unknown.discard(id)
            self.open.add(id)

    def fail(self, id: str, error: Exception) -> None:
        """Record that a submit was refused, or not answered: then its fate is unknown."""
        with self.lock:
            self.errors[type(error).__name__] += 1
            if isinstance(error, ServerUnreachable):
                self.unknown.add(id)

    def see(self, id: str, state: str) -> None:
        """Record a state of a task that was read."""
        with self.lock:
            before = self.final.get(id)
            if before is None and state in FINAL:
                self.final[id] = state
                self.open.discard(id)
            elif before is not None and state != before:
                self.changed[id] = f"{before}, then {state}"

    def still_open(self) -> list[str]:
        """Return the open tasks, now."""
        with self.lock:
            return sorted(self.open)


class Submitter(threading.Thread):
    """A client that submits tasks until it is stopped. `broken` is the bug that ended it.

    latencies_s: the time of each acknowledged submit. marker: hears the id of each.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        name: str,
        book: Book,
        rate: float,
        retry_for_s: float,
        seed: int,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.book = book
        self.rate = rate
        self._dice = random.Random(f"{seed} {name}")
        self._client = ParsyncClient.from_url(url, cluster)
        self._client.requests.retry_for_s = retry_for_s
        self._halt = threading.Event()
        self.broken: Exception | None = None
        self.latencies_s: list[float] = []
        self.marker: queue.SimpleQueue[str | None] | None = None

    def acknowledge(self, id: str, began_s: float) -> None:
        """Record that a submit that began at this time was answered."""
        self.latencies_s.append(time.monotonic() - began_s)
        self.book.acknowledge(id)
        if self.marker is not None:
            self.marker.put(id)

    def stop(self) -> None:
        """Submit no more."""
        self._halt.set()


def stop_all(submitters: Sequence[Submitter]) -> None:
    """Stop submitters and wait for their end; raises the bug that ended one before."""
    for submitter in submitters:
        submitter.stop()
    for submitter in submitters:
        submitter.join(timeout=180)
        assert not submitter.is_alive(), f"{submitter.name} does not end"
        if submitter.broken is not None:
            raise submitter.broken


class Client(Submitter):
    """Submits tasks, `rate` a second as long as fewer than `window` are open, until it
    is stopped.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        name: str,
        book: Book,
        rate: float,
        window: int,
        seed: int,
        make: Make = mixed,
        cancels: float = 0.02,
    ) -> None:
        super().__init__(url, cluster, name, book, rate, 1.0, seed)
        self.window = window
        self.make = make
        self.cancels = cancels

    def run(self) -> None:
        """Submit until stopped; whatever happens to the server, it goes on."""
        number = 0
        due_s = time.monotonic()
        while not self._halt.is_set() and self.broken is None:
            if len(self.book.open) >= self.window:
                due_s = time.monotonic()
                self._halt.wait(0.02)
                continue
            number += 1
            self._submit(f"{self.name}-{number}")
            due_s = max(due_s + 1 / self.rate, time.monotonic() - 1.0)
            self._halt.wait(max(0.0, due_s - time.monotonic()))
        self._client.close()

    def _submit(self, id: str) -> None:
        """Submit a task until the submit is acknowledged: the same id is the same task.

        Now and then the client gives up, and never knows whether the task was submitted.
        """
        task = self.make(self._dice)
        while True:
            began_s = time.monotonic()
            try:
                self._client.submit(WORK, id=id, **task)
            except InvalidInput as error:
                self.broken = error
                return
            except ParsyncError as error:
                self.book.fail(id, error)
                if self._halt.is_set() or self._dice.random() < 0.1:
                    return
                self._halt.wait(0.1)
                continue
            self.acknowledge(id, began_s)
            break
        if self._dice.random() < self.cancels:
            self._cancel(id)

    def _cancel(self, id: str) -> None:
        try:
            self._client.cancel(id)
        except ParsyncError as error:
            with self.book.lock:
                self.book.errors[f"cancel {type(error).__name__}"] += 1


class Watcher(threading.Thread):
    """Reads the states of open tasks, past all lines; the server may be away."""

    def __init__(self, store: Store, book: Book) -> None:
        super().__init__(name="watcher", daemon=True)
        self._store = store
        self._book = book
        self._halt = threading.Event()

    def run(self) -> None:
        """Look some times a second."""
        while not self._halt.wait(0.1):
            self.look()

    def look(self) -> None:
        """Look once."""
        reads = self._store.keys.by_shard(self._book.still_open(), str)
        commands = self._store.commands
        calls = [commands.read_tasks(ids[:500], False) for _, ids in reads]
        for (_, ids), records in zip(reads, self._store.run_each(calls), strict=True):
            # an error means that the server is away: the tasks are read later
            if not isinstance(records, ParsyncError):
                for id, record in zip(ids[:500], records, strict=True):
                    self._book.see(id, "" if record.state == TaskState.GONE else record.state)

    def stop(self) -> None:
        """Look no more."""
        self._halt.set()
        self.join(timeout=180)
        assert not self.is_alive(), f"{self.name} does not end"
        self._store.client.close()

"""The consumer of a node: Celery's own, whose event loop turns also while the app's broker is away.

Celery connects in the thread of the event loop, so that nothing else happens until the broker answers. A node connects
in a thread of its own; meanwhile it answers doorbells, and reads what its pool has done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from celery.worker.state import maybe_shutdown

from .transport import connection_to_nothing

QUICK_S = 0.1
"""A connection that is made so soon is waited for: the event loop need not be set up for it."""


class Attempt(threading.Thread):
    """Connects to the broker, in a thread; `finish` returns the connection, `abandon` closes it."""

    def __init__(self, connect: Callable[[], Any], on_done: Callable[[], Any]) -> None:
        super().__init__(name="parsync-connect", daemon=True)
        self._connect, self._on_done = connect, on_done
        self._connection: Any = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._done = self._abandoned = False

    def run(self) -> None:
        """Connects, for as long as that takes."""
        try:
            connection, error = self._connect(), None
        except BaseException as raised:  # also WorkerShutdown, which Celery raises here: the event loop raises it again
            connection, error = None, raised
        with self._lock:
            self._connection, self._error, self._done = connection, error, True
            unwanted = connection if self._abandoned else None
        if unwanted is not None:
            unwanted.release()
        self._on_done()

    @property
    def done(self) -> bool:
        """Whether it has connected, or failed for good."""
        return self._done

    def finish(self) -> Any:
        """The connection; raises what kept Celery from it."""
        if self._error is not None:
            raise self._error
        return self._connection

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._abandoned = True
            unwanted, self._connection = self._connection, None
        if unwanted is not None:
            unwanted.release()


class NodeConsumer:
    """What a node's consumer does otherwise than Celery's; `node_consumer` puts the two together."""

    hub: Any
    controller: Any
    event_dispatcher: Any
    timer_entries_before_start: Any
    parsync_inbox: Any
    _alone = False

    def ensure_connected(self, conn: Any) -> Any:
        """Connects as Celery does, and turns the event loop until that is done."""
        celery: Any = super()
        attempt = Attempt(lambda: celery.ensure_connected(conn), lambda: self.hub.call_soon(_nothing))
        attempt.start()
        attempt.join(QUICK_S)
        if not attempt.done:
            try:
                self._turn_until(attempt)
            except BaseException:
                attempt.abandon()
                raise
        return attempt.finish()

    def _turn_until(self, attempt: Attempt) -> None:
        hub = self.hub
        before = _entries(hub)
        with self._by_itself():
            self.controller.register_with_event_loop(hub)
            self.parsync_inbox.listen(self)
            loop = hub.create_loop()
            while not attempt.done:
                maybe_shutdown()
                try:
                    next(loop)
                except StopIteration:
                    loop = hub.create_loop()
        # Celery cancels what a lost connection has left on the timer; what came meanwhile are time limits of tasks
        if getattr(self, "timer_entries_before_start", None) is not None:
            self.timer_entries_before_start |= _entries(hub) - before

    @contextmanager
    def _by_itself(self) -> Iterator[None]:
        """While there is no broker: events are not sent, and no error of it ends the loop."""
        hub, events = self.hub, self.event_dispatcher
        enabled, errors = events is not None and events.enabled, hub.propagate_errors
        self._alone, hub.propagate_errors = True, ()
        if enabled:
            events.enabled = False
        yield
        if enabled:
            events.enabled = True
        self._alone, hub.propagate_errors = False, errors

    def stop(self) -> None:
        """Celery does not stop the steps of a consumer that has not started all of them: what they would do is done."""
        celery: Any = super()
        if self._alone:
            celery.on_close()
            self.parsync_inbox.stop(self)
        celery.stop()


class PlacedOnlyConsumer(NodeConsumer):
    """The consumer of a node that serves placed tasks only: it consumes from no broker."""

    steps: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        celery: Any = super()
        celery.__init__(*args, **kwargs)
        # declares exchanges on the broker that tasks are published to; Celery has it since 5.5
        self.steps[:] = [step for step in self.steps if type(step).__name__ != "DelayedDelivery"]

    @property
    def conninfo(self) -> Any:
        """What Celery asks of the broker that it consumes from."""
        return self.__dict__["_conninfo"]

    @conninfo.setter
    def conninfo(self, connection: Any) -> None:
        self.__dict__["_conninfo"] = connection_to_nothing()

    def connection_for_read(self, heartbeat: Any = None) -> Any:
        """The connection to no broker."""
        return connection_to_nothing()


@cache
def node_consumer(base: type, placed_only: bool) -> type:
    """`base`, a class of Celery consumers, as a node's."""
    return type(base.__name__, (PlacedOnlyConsumer if placed_only else NodeConsumer, base), {"__doc__": base.__doc__})


def register_once(worker: Any) -> None:
    """Has the worker register its pool with the event loop once for each poller.

    Celery registers it whenever the consumer's loop starts. The node's consumer has done so by then, if it had to wait
    for the broker; to do it again would forget a result of which a part is read.
    """
    celery_register = worker.register_with_event_loop
    registered: dict[str, Any] = {"poller": None, "entries": set()}

    def register_with_event_loop(hub: Any) -> None:
        if registered["poller"] is hub.poller:
            return
        for entry in registered["entries"]:
            hub.timer.cancel(entry)
        before = _entries(hub)
        celery_register(hub)
        registered.update(poller=hub.poller, entries=_entries(hub) - before)

    worker.register_with_event_loop = register_with_event_loop


def _entries(hub: Any) -> set[Any]:
    return {scheduled.entry for scheduled in hub.timer.queue}


def _nothing() -> None:
    """Wakes the event loop."""

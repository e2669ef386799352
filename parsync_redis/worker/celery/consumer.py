"""The consumer of a node: Celery's own, but its event loop turns while the app's broker is away.

Celery connects in the thread of the event loop, so that nothing else happens until the broker
answers. A node connects in a thread of its own. Meanwhile its event loop answers doorbells and
reads what its pool has done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.state import maybe_shutdown
from kombu import Connection

from .celery_types import Hub, TimerEntry, Worker
from .message_filter import connect_carefully, handle_carefully
from .refusing_broker import outliving, pause
from .transport import connection_to_nothing

log = logging.getLogger("parsync.agent")

QUICK_CONNECT_S: Final = 0.1
"""Seconds for which the event loop waits for a connection before it turns by itself."""


class ConnectAttempt(threading.Thread):
    """Connects to the broker in a thread; `finish` returns the connection, `abandon` closes it."""

    def __init__(self, connect: Callable[[], Connection], on_done: Callable[[], object]) -> None:
        super().__init__(name="parsync-connect", daemon=True)
        self._connect = connect
        self._on_done = on_done
        self._connection: Connection | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._done = self._abandoned = False

    def run(self) -> None:
        """Connect, however long that takes."""
        connection = None
        error = None
        try:
            connection = self._connect()
        # also WorkerShutdown, which Celery raises here: the event loop raises it again
        except BaseException as raised:
            error = raised
        with self._lock:
            self._connection = connection
            self._error = error
            self._done = True
            unwanted = connection if self._abandoned else None
        if unwanted is not None:
            unwanted.release()
        self._on_done()

    @property
    def done(self) -> bool:
        """True if it has connected, or failed for good."""
        return self._done

    def finish(self) -> Connection | None:
        """Return the connection; raises the error that Celery met."""
        if self._error is not None:
            raise self._error
        return self._connection

    def abandon(self) -> None:
        """Close the connection as soon as there is one."""
        with self._lock:
            self._abandoned = True
            unwanted = self._connection
            self._connection = None
        if unwanted is not None:
            unwanted.release()


class NodeConsumer(CeleryConsumer):
    """The differences between a node's consumer and Celery's consumer.

    `node_consumer` puts it before the app's own class.

    was_refused: the broker's server answered a request and refused it.
    """

    _alone = False
    was_refused = False

    def ensure_connected(self, conn: Connection) -> Connection | None:
        """Connect as Celery does, and turn the event loop until that is done."""
        connect_carefully(conn)
        refused = self.was_refused
        self.was_refused = False
        celery_connect = super().ensure_connected

        def connect() -> Connection:
            if refused:
                pause()
            connection: Connection = celery_connect(conn)
            return connection

        attempt = ConnectAttempt(connect, lambda: self.hub.call_soon(_nothing))
        attempt.start()
        attempt.join(QUICK_CONNECT_S)
        if not attempt.done:
            try:
                self._turn_until(attempt)
            except BaseException:
                attempt.abandon()
                raise
        return attempt.finish()

    def _turn_until(self, attempt: ConnectAttempt) -> None:
        hub = self.hub
        before = _entries(hub)
        with self._without_broker():
            self.controller.register_with_event_loop(hub)
            self.parsync_inbox.start(self)
            loop = hub.create_loop()
            while not attempt.done:
                maybe_shutdown()
                try:
                    next(loop)
                except StopIteration:
                    loop = hub.create_loop()
        # Celery cancels the timer entries of a lost connection; those that came meanwhile are time
        # limits of tasks
        if getattr(self, "timer_entries_before_start", None) is not None:
            self.timer_entries_before_start |= _entries(hub) - before

    @contextmanager
    def _without_broker(self) -> Iterator[None]:
        """Send no events, and let no error of the event loop end it."""
        hub = self.hub
        events = self.event_dispatcher
        enabled = events is not None and events.enabled
        errors = hub.propagate_errors
        self._alone = True
        hub.propagate_errors = ()
        if enabled:
            events.enabled = False
        yield
        if enabled:
            events.enabled = True
        self._alone = False
        hub.propagate_errors = errors

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        """Close the connection as Celery does, and end the runs that the broker delivers again.

        The broker delivers no placed task again.
        """
        node = self.controller.parsync_agent.node
        if self.connection is not None:
            _close_without_errors(self.connection)
        node.broker_lost = True
        try:
            super().on_connection_error_after_connected(exc)
        finally:
            node.broker_lost = False

    def create_task_handler(self, *args: object, **kwargs: object) -> object:
        """Return Celery's handler of messages, which drops what is no task's message."""
        return handle_carefully(self, super().create_task_handler(*args, **kwargs))

    def stop(self) -> None:
        """Stop, and close what Celery leaves open if some steps have not started."""
        if self._alone:
            self.on_close()
            self.parsync_inbox.stop(self)
        super().stop()


class PlacedOnlyConsumer(NodeConsumer):
    """The consumer of a node that runs placed tasks only: it consumes from no broker."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        # this step declares exchanges on the broker that tasks are published to; Celery has it
        # since 5.5
        self.steps[:] = [step for step in self.steps if type(step).__name__ != "DelayedDelivery"]

    @property
    def conninfo(self) -> Connection:
        """The connection that Celery takes the broker's address from: to no broker."""
        connection: Connection = self.__dict__["_conninfo"]
        return connection

    @conninfo.setter
    def conninfo(self, connection: Connection) -> None:
        self.__dict__["_conninfo"] = connection_to_nothing()

    def connection_for_read(self, heartbeat: float | None = None) -> Connection:
        """Return a connection to no broker."""
        return connection_to_nothing()


@cache
def node_consumer(base: type, placed_only: bool) -> type:
    """Return `base`, a class of Celery consumers, as the class of a node's consumer."""
    kinds = (PlacedOnlyConsumer if placed_only else NodeConsumer, base)
    blueprint = outliving(base.Blueprint)  # type: ignore[attr-defined] # of every Celery consumer
    return type(base.__name__, kinds, {"__doc__": base.__doc__, "Blueprint": blueprint})


def register_once(worker: Worker) -> None:
    """Make the worker register its pool at most once with each poller of the event loop.

    Celery registers the pool whenever the consumer's loop starts. A node's consumer that had to
    wait for the broker has registered it before. A second registration would lose a result that has
    been read only in part.
    """
    celery_register = worker.register_with_event_loop
    poller: object = None
    entries: set[TimerEntry] = set()

    def register_with_event_loop(hub: Hub) -> None:
        nonlocal poller, entries
        if poller is hub.poller:
            return
        for entry in entries:
            hub.timer.cancel(entry)
        before = _entries(hub)
        celery_register(hub)
        poller = hub.poller
        entries = _entries(hub) - before

    worker.register_with_event_loop = register_with_event_loop


def _close_without_errors(connection: Connection) -> None:
    """Make the close of a lost connection raise nothing.

    kombu puts unacknowledged messages back then. If the broker is away it closes half of the
    connection, and its second try raises an AttributeError, which would end the worker. The broker
    delivers such messages again by itself.
    """
    kombu_close: Callable[[], None] = connection.close

    def close() -> None:
        try:
            kombu_close()
        except Exception as error:
            log.info("the lost connection to the broker could not be closed in order: %r", error)

    connection.__dict__["close"] = close


def _entries(hub: Hub) -> set[TimerEntry]:
    return {scheduled.entry for scheduled in hub.timer.queue}


def _nothing() -> None:
    """Wake the event loop."""

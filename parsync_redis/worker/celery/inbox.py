"""The inbox of a node: a step of the worker's consumer that reads doorbells.

The tasks of the doorbells are then started.

The inbox waits in the server (BLMPOP), over a connection of its own. Celery's event loop calls the
inbox when there is an answer to read. Celery and kombu see nothing of the inbox's content.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Final

from celery import bootsteps
from redis import Connection
from redis.exceptions import RedisError, ResponseError

from ...errors import ParsyncError
from ...model.place import Place
from ...store.repair.quarantine import quarantine
from ...store.server.server_errors import Backoff, is_damage, translate
from ...wire.doorbell import read_doorbell
from ..node.agent import Agent
from ..node.loop_watch import BEAT_S
from .celery_types import Consumer, TimerEntry
from .delivery import Delivery
from .prefetched_runs import is_forgotten
from .start_queue import StartQueue

log = logging.getLogger("parsync.agent")

BLMPOP_TIMEOUT_S: Final = 2.0
"""BLMPOP's timeout.

A doorbell delivered to a paused worker, or to a connection that an orphan has inherited, is lost;
the reconciler rings again.
"""
LATE_ANSWER_S: Final = 2.0
"""If the server has not answered this long after its timeout, the connection is replaced."""
MAX_DOORBELLS: Final = 64
"""Maximum number of doorbells that are answered at a time."""
HAND_OVER_S: Final = 0.02
"""The inbox reads as many doorbells at a time as the pool takes tasks in this time.

A solo pool runs each task when it is handed over. Further tasks would be started and then wait.
"""


class Inbox(bootsteps.StartStopStep):
    """Reads the node's inbox.

    Doorbells are not acknowledged: a lost or repeated one does no harm, the lease counts.
    """

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, consumer: Consumer, **kwargs: object) -> None:
        agent: Agent | None = getattr(consumer.controller, "parsync_agent", None)
        self.enabled = agent is not None
        self.consumer = consumer
        consumer.parsync_inbox = self
        self._connection: Connection | None = None
        self._descriptor = -1
        self._timer: TimerEntry | None = None
        self._beat: TimerEntry | None = None
        self._key = ""
        self._asked_s = 0.0
        self._at_a_time = 1
        self._wanted = False
        if agent is not None:
            self.agent = agent
            self.start_queue = StartQueue(
                consumer, agent, Delivery(consumer, agent), self._rung_meanwhile
            )
            if self.start_queue.looks_ahead:
                self._at_a_time = MAX_DOORBELLS
            self._backoff = Backoff(log, f"the inbox of node {agent.node.name}")
        super().__init__(consumer, **kwargs)

    def include_if(self, consumer: Consumer) -> bool:
        """Include the step in a node only."""
        return self.enabled

    # -- listening ---------------------------------------------------------------------------------

    def start(self, consumer: Consumer) -> None:
        """Listen; if the node is not registered yet, as soon as it is.

        Have the event loop say that it turns.
        """
        self._wanted = True
        if self._beat is not None:
            self._beat.cancel()
        # with each connection anew: Celery before 5.6 clears the loop's timer when it loses the
        # broker
        self._beat = consumer.hub.call_repeatedly(BEAT_S, self.agent.loop.turned)
        consumer.hub.call_soon(self.agent.loop.turned)
        if self.agent.node.inc:
            self._listen()

    def registered(self) -> None:
        """Listen to the inbox of a node that has registered. Any thread may call this."""
        if self._wanted:
            self.consumer.hub.call_soon(self._listen)

    def stop(self, consumer: Consumer) -> None:
        """Stop listening, and give back the runs that Celery has thrown away unbegun."""
        self._wanted = False
        self._hang_up()
        for run in self.agent.node.runs.going():
            if (
                run.request
                and not run.request.time_start
                and is_forgotten(consumer.pool, run.request)
            ):
                self.agent.reporter.ended(run, "again")  # the task never ran, so no start was lost

    def _listen(self) -> None:
        """Wait for doorbells over a new connection, unless the inbox does so already.

        A node may register again.
        """
        node = self.agent.node
        key = self.agent.store.keys.inbox(node.partition, node.name)
        if self._connection is not None and key == self._key:
            return
        self._hang_up()
        self._key = key
        try:
            self._connection = self.agent.another_store().pool_of(key).get_connection()
            self._ask(self._connection)
            # a descriptor of our own: redis-py closes its socket by itself. If a child has
            # inherited that, epoll would go on reporting it, by a number that is another file's by
            # then
            self._descriptor = os.dup(self._connection._sock.fileno())  # type: ignore[union-attr] # set as it connects
            self.consumer.hub.add_reader(self._descriptor, self._on_answer)
            self._timer = self.consumer.hub.call_repeatedly(LATE_ANSWER_S, self._check_silence)
        except (ParsyncError, RedisError, OSError) as error:
            self._listen_again(error)

    def _ask(self, connection: Connection) -> None:
        connection.send_command(
            "BLMPOP", BLMPOP_TIMEOUT_S, 1, self._key, "RIGHT", "COUNT", self._at_a_time
        )
        self._asked_s = time.monotonic()

    def _listen_again(self, error: Exception) -> None:
        """Listen over another connection, after a pause."""
        self._hang_up()
        pause_s = self._backoff.pause_s(translate(self.agent.store.address, error))
        self._timer = self.consumer.hub.call_later(pause_s, self._listen)

    def _hang_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor >= 0:
            self.consumer.hub.remove_reader(self._descriptor)
            os.close(self._descriptor)
        if self._connection is not None:
            self._connection.disconnect()
        self._connection = None
        self._descriptor = -1
        self._timer = None

    def _check_silence(self) -> None:
        """Replace a connection that is silent for too long, because its server may be gone."""
        if (
            self._connection is None
            or time.monotonic() < self._asked_s + BLMPOP_TIMEOUT_S + LATE_ANSWER_S
        ):
            return
        try:
            # otherwise the loop was busy, and will read next
            if not self._connection.can_read(timeout=0):
                raise TimeoutError("it is silent")
        except (RedisError, OSError) as error:
            self._listen_again(error)

    # -- doorbells ---------------------------------------------------------------------------------

    def _on_answer(self) -> None:
        """Read the server's answer, which may hold no doorbells, and ask again."""
        connection = self._connection
        if connection is None:
            return
        try:
            bells = self._read(connection)
            if (
                self.start_queue.looks_ahead
            ):  # doorbells that ring meanwhile are heard between two tasks
                self._ask(connection)
                self.start_queue.answer(bells)
            else:
                self._answer_bells(bells)
                self._ask(connection)
        except (ParsyncError, RedisError, OSError) as error:
            self._listen_again(error)

    def _rung_meanwhile(self) -> list[Place]:
        """Return the doorbells that rang while a task ran in this thread, and ask again."""
        connection = self._connection
        try:
            if connection is None or not connection.can_read(timeout=0):
                return []
            bells = self._read(connection)
            self._ask(connection)
            return bells
        except (ParsyncError, RedisError, OSError) as error:
            self._listen_again(error)
            return []

    def _read(self, connection: Connection) -> list[Place]:
        try:
            answer = connection.read_response()
        except ResponseError as error:
            if not is_damage(error):
                raise
            self._delete_damaged(error)
            return []
        self._backoff.well()
        return self._bells(answer[1]) if answer is not None else []

    def _bells(self, rung: list[bytes]) -> list[Place]:
        """Return the doorbells of an answer, without those that cannot be read."""
        bells = []
        for data in rung:
            try:
                bells.append(read_doorbell(data))
            except ValueError as error:
                quarantine(self.agent.store, self._key, str(error), data)
        return bells

    def _answer_bells(self, bells: list[Place]) -> None:
        began_s = time.monotonic()
        if count := self.start_queue.answer(bells):
            in_time = int(count * HAND_OVER_S / max(time.monotonic() - began_s, 1e-6))
            self._at_a_time = max(1, min(in_time, 2 * self._at_a_time, MAX_DOORBELLS))

    def _delete_damaged(self, error: Exception) -> None:
        """Delete an inbox of another type. The reconciler rings again for its leases."""
        quarantine(self.agent.store, self._key, f"the inbox cannot be read: {error}", b"")
        try:
            self.agent.store.client.delete(self._key)
        except ResponseError as trouble:
            log.warning("the inbox %s cannot be deleted: %s", self._key, trouble)
            raise

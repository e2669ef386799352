"""The inbox of a node: a step of the worker's consumer that reads doorbells and hands tasks to Celery.

It has a connection of its own, on which it waits in the server (BLMPOP) for as many doorbells as there are; Celery's
event loop says when there is an answer to read. Whatever lies in an inbox, Celery and kombu never see it.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import Any

from celery import bootsteps
from celery.app.task import Context
from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Message
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from ..errors import ParsyncError
from ..model.ids import decode_id
from ..model.task import Submission, TaskOptions
from ..store.quarantine import quarantine
from ..store.server_errors import Backoff, is_damage, translate
from ..wire.doorbell import Doorbell
from ..wire.message import Decoder, open_envelope, pack_envelope
from .rate_limits import RateLimits, without_bucket
from .request import watch
from .runs import Run, Runs

log = logging.getLogger("parsync.agent")

WAIT_S = 2.0
"""For how long the server is asked to wait for a doorbell.

What it gives to a worker that was paused, or to a connection that a child of a dead one has inherited, rings later."""
LATE_S = 2.0
"""A server that has not answered so long after that is asked anew, over another connection."""
MOST = 64
"""The most doorbells that are answered at a time."""
HAND_OVER_S = 0.02
"""As many are answered at a time as are handed to the pool in so long: a pool that runs each task there and then (solo)
would else have many started that wait for a long one."""


AGAIN_S = 1.0
"""For how long a task goes back that the server's trouble kept from being run."""


class Delivered(Message):
    """A task's message that came from its record, not from a queue: there is nothing to acknowledge."""

    def ack(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    reject = requeue = ack


class Inbox(bootsteps.StartStopStep):
    """Reads the node's inbox. A doorbell is not acknowledged: lost or repeated, the lease is what counts."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self.agent: Any = getattr(consumer.controller, "parsync_agent", None)
        self.enabled = self.agent is not None
        if self.enabled:  # kombu writes when it connects: what passes is no reason to end a worker, as Celery would
            consumer.connection_errors += (OutOfMemoryError, ReadOnlyError)
        self.consumer = consumer
        consumer.parsync_inbox = self
        self._connection: Any = None
        self._descriptor = -1
        self._timer: Any = None
        self._key = ""
        self._asked_s = 0.0
        self._at_a_time = 1
        self._limits = RateLimits()
        name = self.agent.spec.name if self.agent else ""
        self._patience = Backoff(log, f"the inbox of node {name}")
        super().__init__(consumer, **kwargs)

    def include_if(self, consumer: Any) -> bool:
        """Only for a node."""
        return self.enabled

    # -- listening ---------------------------------------------------------------------------------------------------

    def start(self, consumer: Any) -> None:
        """Listens, and sends the events of verdicts."""
        events = consumer.event_dispatcher
        self.agent.send_event = events.send if events and events.enabled else None
        self.listen(consumer)

    def listen(self, consumer: Any) -> None:
        """Listens; before the node is registered, as soon as it is."""
        self.agent.on_registered = lambda: consumer.hub.call_soon(self._listen)
        if self.agent.inc:
            self._listen()

    def stop(self, consumer: Any) -> None:
        """Stops listening. What Celery had not begun it has thrown away by now, so that it goes back."""
        self._hang_up()
        self.agent.on_registered = lambda: None
        for run in self.agent.runs.going():
            if not run.request.time_start and forgotten(consumer, run.request):
                self.agent.ended(run, "again")  # it never ran: no start of it was lost

    def _listen(self) -> None:
        """Waits for doorbells, over a new connection unless it does already: a node may register again."""
        key = self.agent.store.keys.inbox(self.agent.partition, self.agent.spec.name)
        if self._connection is not None and key == self._key:
            return
        self._hang_up()
        self._key = key
        try:
            self._connection = self.agent.another_store().client.connection_pool.get_connection()
            self._ask()
            # a descriptor of our own: redis-py closes its socket by itself, and epoll would go on about a closed one
            # that a child has inherited, by a number that is another's by then
            self._descriptor = os.dup(self._connection._sock.fileno())
            self.consumer.hub.add_reader(self._descriptor, self._on_answer)
            self._timer = self.consumer.hub.call_repeatedly(LATE_S, self._look)
        except (RedisError, OSError) as error:
            self._again(error)

    def _ask(self) -> None:
        self._connection.send_command("BLMPOP", WAIT_S, 1, self._key, "RIGHT", "COUNT", self._at_a_time)
        self._asked_s = time.monotonic()

    def _again(self, error: Exception) -> None:
        """Listens anew, after a while."""
        self._hang_up()
        pause_s = self._patience.pause_s(translate(self.agent.store.address, error))
        self._timer = self.consumer.hub.call_later(pause_s, self._listen)

    def _hang_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor >= 0:
            self.consumer.hub.remove_reader(self._descriptor)
            os.close(self._descriptor)
        if self._connection is not None:
            self._connection.disconnect()
        self._connection, self._descriptor, self._timer = None, -1, None

    def _look(self) -> None:
        """A server that went away without a word leaves a connection that stays silent."""
        if self._connection is None or time.monotonic() < self._asked_s + WAIT_S + LATE_S:
            return
        try:
            if not self._connection.can_read(timeout=0):  # else the loop was busy, and comes to it next
                raise TimeoutError("it is silent")
        except (RedisError, OSError) as error:
            self._again(error)

    # -- doorbells ---------------------------------------------------------------------------------------------------

    def _on_answer(self) -> None:
        """The server has answered: doorbells, or that there are none yet. It is asked again."""
        try:
            self._read()
            self._ask()
        except (RedisError, OSError) as error:
            self._again(error)

    def _read(self) -> None:
        try:
            answer = self._connection.read_response()
        except ResponseError as error:
            if not is_damage(error):
                raise
            self._on_no_list(error)
            return
        self._patience.well()
        if answer is not None:
            self._on_bells(answer[1])

    def _on_bells(self, rung: list[bytes]) -> None:
        bells = []
        for data in rung:
            try:
                bells.append(Doorbell.of(data))
            except ValueError as error:
                quarantine(self.agent.store, self._key, str(error), data)
        found, began_s = deque(self.agent.answer(bells)), time.monotonic()
        count = len(found)
        try:
            while found and not self.agent.leaving:
                run, message = found.popleft()
                if run.unwanted or run.place.inc != self.agent.inc:
                    run.why = "it had not begun"
                    self.agent.ended(run, run.unwanted or "recalled")
                else:
                    self._deliver(run, message)
        finally:
            for run, _ in found:
                self.agent.ended(run, "again")  # the worker stops, and it has not begun
        if count:
            in_time = int(count * HAND_OVER_S / max(time.monotonic() - began_s, 1e-6))
            self._at_a_time = max(1, min(in_time, 2 * self._at_a_time, MOST))

    def _on_no_list(self, error: Exception) -> None:
        """The inbox is of another type: it is deleted, and its leases ring again."""
        quarantine(self.agent.store, self._key, f"the inbox cannot be read: {error}", b"")
        try:
            self.agent.store.client.delete(self._key)
        except ResponseError as trouble:
            log.warning("the inbox %s cannot be deleted: %s", self._key, trouble)
            raise

    def _deliver(self, run: Run, message: bytes) -> None:
        """Hands a task to Celery as if its message had come from a queue.

        A message that Celery cannot take ends its task as failed: whatever is wrong with it, the worker lives on.
        """
        consumer, place = self.consumer, run.place
        make: Any = Delivered
        delivered: Any = None
        try:
            payload = open_envelope(message)
            headers = payload["headers"]
            carried = headers.get("parsync")
            headers["parsync"] = {
                **(carried if isinstance(carried, dict) else {}),
                "id": place.task,
                "attempt": place.attempt,
                "node": place.node,
                "slot": place.slot,
                "partition": place.partition,
                "inc": place.inc,
            }
            accept = prepare_accept_content(consumer.app.conf.accept_content)
            delivered = make(payload, channel=Decoder(), accept=accept)
            name = headers.get("task")
            strategy = self._strategy(name)
            if strategy is None:  # not the name in its record, which the node knows: its message is damaged
                run.flaw = f"its worker knows no task {name!r:.80}"
                consumer.on_unknown_task(None, delivered, KeyError(name))
                self.agent.ended(run, "failed")
                return
            if self._declares_more(name, carried, payload, run):
                return
            if (hold_s := self._limits.hold_s(name, place.task, consumer)) > 0:
                self._give_back(run, f"{place.node} has run as many of {name} as its rate limit allows", hold_s)
                return
            with without_bucket(name, consumer):
                strategy(delivered, None, _nothing, _nothing, consumer.on_task_message)
        except (InvalidTaskError, ContentDisallowed, DecodeError) as error:
            if delivered is not None:
                consumer.on_invalid_task(None, delivered, error)
            self._failed(run, error, message)
        except Exception as error:
            log.error("the message of task %s cannot be run: %r", place.task, error, exc_info=True)
            if run.request is not None and run.request.time_start:  # it ran, in this very call: it is not its message
                self.agent.ended(run, "failed")
            else:
                self._failed(run, error, message)

    def _give_back(self, run: Run, why: str, hold_s: float) -> None:
        """Frees the slot of a run that has not begun; its task may be placed again after `hold_s` seconds."""
        run.why, run.delay_ms = why, max(1, round(hold_s * 1000))
        self.agent.ended(run, "recalled")

    def _declares_more(self, name: str, carried: Any, payload: Any, run: Run) -> bool:
        """True if the task's app declares options that were not known when it was submitted by name.

        The attempt that runs here then submits the task anew, with those options, and ends without having begun. If the
        task is another attempt's by now, its end counts as little as its submit. If the server does not take that
        submit, the task goes back as it is.
        """
        if not isinstance(carried, dict) or not carried.get("undeclared"):
            return False
        parsync = self.consumer.app.parsync
        found = parsync.as_declared(name, carried.get("options") or {})
        if found is None:
            return False
        options, queue = found
        payload["headers"]["parsync"] = {"options": options}
        payload["properties"]["delivery_info"] = {"exchange": "", "routing_key": queue}
        task, message = run.place.task, pack_envelope(payload)
        next_run = Submission(task, name, message, TaskOptions.of(options, queue), after=run.place.attempt)
        try:
            self.agent.store.run(self.agent.store.commands.submit([next_run]))
        except (ParsyncError, RedisError, OSError) as error:
            log.warning("task %s goes back, with the options that its app declares not submitted: %s", task, error)
            self._give_back(run, str(error), AGAIN_S)
            return True
        self.agent.ended(run, "again")
        return True

    def _strategy(self, name: Any) -> Any:
        """How Celery takes a task of that name, None if it knows none; a task may be younger than the worker."""
        consumer = self.consumer
        task = consumer.app.tasks.get(name)
        if task is not None and (watch(task) or name not in consumer.strategies):
            consumer.strategies[name] = task.start_strategy(consumer.app, consumer)
        return consumer.strategies.get(name)

    def _failed(self, run: Run, error: Exception, message: bytes) -> None:
        """The task failed before it ran, because of its message: whoever waits for its result is told."""
        run.flaw = f"its message cannot be run: {type(error).__name__} {error!s:.300}"
        quarantine(self.agent.store, self.agent.store.keys.task(run.place.task), run.flaw, message)
        try:
            id = decode_id(run.place.task)
            self.consumer.app.backend.mark_as_failure(id, InvalidTaskError(str(error)), request=Context(id=id))
        except Exception as trouble:
            log.error("the result of task %s could not be stored: %r", run.place.task, trouble)
        self.agent.ended(run, "failed")


def forgotten(consumer: Any, request: Any) -> bool:
    """Whether Celery has forgotten a request that has not begun, now that its consumer closes.

    What has not come to the pool, because of its rate limit, is thrown away; and a pool of processes throws away what
    waits there, but what a process was handed: see `keep_handed_over`. What waits for a thread will run.
    """
    if request._apply_result is None:
        return True
    return bool(consumer.pool.uses_semaphore) and not _in_pool(_job(request))


def keep_handed_over(pool: Any, runs: Runs) -> None:
    """Has a pool of processes keep the runs that a process has been handed, when Celery has it thrown away what waits.

    Celery calls `flush` when a consumer closes: at the end, or because its connection was lost. It forgets what no
    process has said to have begun, but what is in a process' pipe by then runs all the same: it would run twice, and
    the process would wait half a minute for somebody to take its result.
    """
    if not pool.uses_semaphore:
        return
    celery_flush = pool.flush

    def flush() -> None:
        jobs = [job for run in runs.going() if _in_pool(job := _job(run.request)) and _lives(job._write_to)]
        for job in jobs:
            job.discard = _nothing
        try:
            celery_flush()
        finally:
            for job in jobs:
                del job.discard
                if not _lives(job._write_to):
                    job.discard()

    pool.flush = flush


def _job(request: Any) -> Any:
    """What a pool of processes knows a request by; None if it has not come so far, or was thrown away."""
    return request._apply_result and request._apply_result()


def _in_pool(job: Any) -> bool:
    return job is not None and job._job in job._cache


def _lives(process: Any) -> bool:
    return process is not None and process._is_alive()


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What is called where Celery would acknowledge or reject a message."""

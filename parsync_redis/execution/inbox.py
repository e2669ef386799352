"""The inbox of a node: a step of the worker's consumer that answers doorbells and hands tasks to Celery."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.app.task import Context
from celery.exceptions import InvalidTaskError
from kombu import Consumer, Queue
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Message
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from ..store.quarantine import quarantine
from ..store.trouble import is_damage
from ..wire.message import open_envelope, why_no_doorbell
from .request import watch
from .runs import Run, Runs

log = logging.getLogger("parsync.agent")


class Delivered(Message):
    """A task's message that came from its record, not from a queue: there is nothing to acknowledge."""

    def ack(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    reject = requeue = ack


def only_doorbells(channel: Any, damaged: Callable[[str, bytes | None], None]) -> None:
    """Keeps what is no doorbell from a channel that consumes inboxes only.

    `damaged` is told why, and the bytes, None if it is no list.

    kombu decodes what it has popped before anybody could look at it, and what it cannot decode ends the worker. So what
    is popped is looked at here; for kombu it is then as if nothing had come.
    """
    client = channel.client
    parse = client.parse_response

    def parse_response(connection: Any, command: str, **options: Any) -> Any:
        try:
            reply = parse(connection, command, **options)
        except ResponseError as error:
            if not is_damage(error):
                raise
            damaged(f"the inbox cannot be read: {error}", None)
            return None
        if command != "BRPOP" or not reply or not (why := why_no_doorbell(reply[1])):
            return reply
        damaged(why, reply[1])
        return None

    client.parse_response = parse_response


class Inbox(bootsteps.ConsumerStep):
    """Consumes the node's inbox. A doorbell is not acknowledged: lost or repeated, the lease is what counts."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self.agent: Any = getattr(consumer.controller, "parsync_agent", None)
        self.enabled = self.agent is not None
        if self.enabled:  # kombu writes when it connects: what passes is no reason to end a worker, as Celery would
            consumer.connection_errors += (OutOfMemoryError, ReadOnlyError)
        self.consumer = consumer
        self.queue = ""
        self.consumers: Any = None
        super().__init__(consumer, **kwargs)

    def include_if(self, consumer: Any) -> bool:
        """Only for a node."""
        return self.enabled

    # -- listening ---------------------------------------------------------------------------------------------------

    def start(self, consumer: Any) -> None:
        """Consumes; before the node is registered, as soon as it is."""
        events = consumer.event_dispatcher
        self.agent.send_event = events.send if events and events.enabled else None
        self.agent.on_registered = lambda: consumer.hub.call_soon(self._listen, consumer)
        if self.agent.inc:
            self._listen(consumer)

    def _listen(self, consumer: Any) -> None:
        """Consumes the inbox of the node's partition, once: a node that registers again keeps its consumer."""
        wanted = self._inbox()
        if self.consumers and wanted == self.queue:
            return
        if self.consumers:
            super().stop(consumer)
        self.queue = wanted
        super().start(consumer)

    def _inbox(self) -> str:
        return str(self.agent.store.keys.inbox(self.agent.partition, self.agent.spec.name))

    def get_consumers(self, channel: Any) -> list[Any]:
        """One, of the inbox, without acknowledgements."""
        only_doorbells(channel, self._on_damaged)
        queue = Queue(self.queue, routing_key=self.queue, no_ack=True)
        return [Consumer(channel, queues=[queue], no_ack=True, on_message=self._on_doorbell, accept=["json"])]

    def stop(self, consumer: Any) -> None:
        """Stops consuming. What Celery had not begun it has thrown away by now, so that it goes back."""
        try:
            super().stop(consumer)
        except Exception as error:  # the connection is gone, and with it what was to be closed; Celery makes a new one
            log.info("the inbox of node %s was cut off: %r", self.agent.spec.name, error)
        self.consumers = None
        for run in self.agent.runs.going():
            if not run.request.time_start and _forgotten(consumer, run.request):
                self.agent.ended(run, "again")  # it never ran: no start of it was lost

    # -- doorbells ---------------------------------------------------------------------------------------------------

    def _on_doorbell(self, message: Any) -> None:
        answer = self.agent.answer(message.headers)
        if answer is not None:
            self._deliver(message.channel, *answer)

    def _on_damaged(self, why: str, data: bytes | None) -> None:
        """Something that is no doorbell was in the inbox; an inbox that is no list is deleted: leases ring again."""
        store = self.agent.store
        quarantine(store, self.queue, why, data or b"")
        if data is None:
            try:
                store.client.delete(self.queue)
            except (RedisError, OSError) as error:
                log.warning("the inbox %s cannot be deleted: %s", self.queue, error)

    def _deliver(self, channel: Any, run: Run, message: bytes) -> None:
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
                **(carried if isinstance(carried, dict) else {}), "id": place.task, "attempt": place.attempt,
                "node": place.node, "slot": place.slot, "partition": place.partition, "inc": place.inc,
            }  # fmt: skip
            accept = prepare_accept_content(consumer.app.conf.accept_content)
            delivered = make(payload, channel=channel, accept=accept)
            strategy = self._strategy(headers.get("task"))
            if strategy is None:
                run.flaw = f"its worker knows no task {headers.get('task')!r:.80}"
                consumer.on_unknown_task(None, delivered, KeyError(headers.get("task")))
                self.agent.ended(run, "failed")
                return
            strategy(delivered, None, _nothing, _nothing, consumer.on_task_message)
        except (InvalidTaskError, ContentDisallowed, DecodeError) as error:
            if delivered is not None:
                consumer.on_invalid_task(None, delivered, error)
            self._failed(run, error, message)
        except Exception as error:
            log.error("the message of task %s cannot be run: %r", place.task, error, exc_info=True)
            self._failed(run, error, message)

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
            id = run.place.task
            self.consumer.app.backend.mark_as_failure(id, InvalidTaskError(str(error)), request=Context(id=id))
        except Exception as trouble:
            log.error("the result of task %s could not be stored: %r", run.place.task, trouble)
        self.agent.ended(run, "failed")


def _forgotten(consumer: Any, request: Any) -> bool:
    """Whether Celery has forgotten a request that has not begun, now that its consumer closes.

    A pool that can flush has thrown away what waits there (but what a process was handed: see `keep_handed_over`); what
    waits for its rate limit is thrown away in any case.
    """
    if getattr(consumer.pool, "flush", None):
        return not _in_pool(_job(request))
    return bool(consumer.task_buckets[request.task.name])


def keep_handed_over(pool: Any, runs: Runs) -> None:
    """Has a pool of processes keep the runs that a process has been handed, when Celery has it thrown away what waits.

    Celery calls `flush` when a consumer closes: at the end, or because its connection was lost. It forgets what no
    process has said to have begun, but what is in a process' pipe by then runs all the same: it would run twice, and
    the process would wait half a minute for somebody to take its result.
    """
    if not (celery_flush := getattr(pool, "flush", None)):
        return

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

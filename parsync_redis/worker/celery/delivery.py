"""Hands started tasks to Celery as if their messages had come from a queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError
from redis.exceptions import RedisError

from ...errors import InvalidInput, ParsyncError
from ...model.ids import decode_id
from ...model.options import TaskOptions
from ...model.parameters import Arguments
from ...model.place import Place
from ...model.task import Submission
from ...near import resolve_near
from ...store.repair.quarantine import quarantine
from ...submission import explain_refusal
from ...wire.envelope import open_envelope, pack_envelope
from ...wire.headers import flaw_of, wait_s
from ...wire.tenant import TENANT_HEADER, submitting_for
from ..node.agent import Agent
from ..node.runs import Run
from .celery_types import Consumer
from .delivered_message import Delivered, as_message
from .rate_limits import RateLimits, without_bucket
from .request import watch
from .results_outbox import context_of

log = logging.getLogger("parsync.agent")

AGAIN_S: Final = 1.0
"""Seconds for which a task waits that an error of the server kept from being resubmitted."""


FULL_S: Final = 0.2
"""Seconds for which a task goes back that met a full pool: by then the slots follow the pool."""


class Delivery:
    """Hands tasks to one consumer."""

    def __init__(self, consumer: Consumer, agent: Agent) -> None:
        self._consumer = consumer
        self._agent = agent
        self._limits = RateLimits()

    def deliver(self, run: Run, message: bytes) -> None:
        """Hand a task to Celery.

        If Celery cannot take its message the task fails; the worker lives on.
        """
        received: Delivered | None = None
        try:
            payload = open_envelope(message)
            if flaw := flaw_of(payload["headers"]):
                raise InvalidTaskError(flaw)
            carried = _put_place(payload["headers"], run.place)
            payload["properties"]["delivery_info"] = {
                **(payload["properties"].get("delivery_info") or {}),
                "redelivered": run.redelivered,
            }
            received = as_message(self._consumer.app, payload, Delivered)
            self._hand_over(run, received, payload, carried)
        except (InvalidTaskError, ContentDisallowed, DecodeError) as error:
            if received is not None:
                self._consumer.on_invalid_task(None, received, error)
            self._fail(run, error, message)
        except Exception as error:
            log.error(
                "the message of task %s cannot be run: %r", run.place.task, error, exc_info=True
            )
            # the task ran inside this call, so its message is sound
            if run.request is not None and run.request.time_start:
                run.flaw = run.flaw or f"Celery could not report its end: {type(error).__name__}"
                self._agent.reporter.ended(run, "failed")
            else:
                self._fail(run, error, message)

    # Any: an envelope is a JSON object
    def _hand_over(
        self, run: Run, received: Delivered, payload: dict[str, Any], carried: object
    ) -> None:
        """Call Celery's strategy for the task, unless it must go back first."""
        consumer = self._consumer
        place = run.place
        name = payload["headers"].get("task")
        strategy = self._strategy(name)
        # the message has another name than the record, which the node knows: it is damaged
        if strategy is None:
            run.flaw = f"its worker knows no task {name!r:.80}"
            consumer.on_unknown_task(None, received, KeyError(name))
            self._agent.reporter.ended(run, "failed")
            return
        if self._declares_more(name, carried, received, payload, run):
            return
        eta = payload["headers"].pop("eta", None)  # Celery would wait here, and hold the slots
        if (early_s := wait_s(eta)) > 0:
            self._give_back(
                run, f"its message says that it must not start before {eta}", early_s, unbegun=False
            )
            return
        if (hold_s := self._agent.node.failures.hold_s(name)) > 0:
            self._give_back(
                run,
                f"tasks of {name} fail on {place.node}, which runs one of them now and then",
                hold_s,
            )
            return
        if (hold_s := self._limits.hold_s(name, place.task, consumer)) > 0:
            self._give_back(
                run, f"{place.node} has run as many of {name} as its rate limit allows", hold_s
            )
            return
        if full := self._agent.full_pool(run):  # it has just shrunk: the node's slots follow
            self._give_back(run, full, FULL_S)
            return
        run.name = name
        run.handed_s = time.monotonic()
        if self._agent.spans is not None:
            self._agent.spans.begin(place, name, payload["headers"])
        with without_bucket(name, consumer):
            strategy(received, None, _nothing, _nothing, consumer.on_task_message)

    def _strategy(self, name: str) -> Callable[..., object] | None:
        """Return how Celery takes tasks of that name, None if it knows none.

        Celery's consumer makes the strategies and the tracers of all tasks when its broker has
        answered. This makes the strategy and the tracer of a task that comes before, or that the
        app has registered since.
        """
        consumer = self._consumer
        app = consumer.app
        task = app.tasks.get(name)
        if task is not None and (watch(task) or name not in consumer.strategies):
            consumer.strategies[name] = task.start_strategy(app, consumer)
            task.__trace__ = build_tracer(name, task, app.loader, consumer.hostname, app=app)
        return consumer.strategies.get(name)

    def _give_back(self, run: Run, why: str, hold_s: float, unbegun: bool = True) -> None:
        """Free the slots of a run that has not begun.

        hold_s: the seconds until the task may be placed again.
        unbegun: the task could have run, so it counts as ready since before; otherwise it is ready
            in `hold_s` seconds.
        """
        run.why = why
        run.delay_ms = max(1, round(hold_s * 1000))
        run.unbegun = unbegun
        self._agent.reporter.ended(run, "recalled")

    # Any: an envelope is a JSON object
    def _declares_more(
        self, name: str, carried: object, received: Delivered, payload: dict[str, Any], run: Run
    ) -> bool:
        """Return True if the task's app declares options that its submit did not have.

        The options were not known when the task was submitted by name. This attempt submits the
        task again with the options and ends without having begun. If the task belongs to another
        attempt by now, neither the submit nor the end counts. If no node could hold the task with
        the options, the task fails as its first submit would have. If the server does not answer,
        the task goes back as it is.
        """
        if not isinstance(carried, dict) or not carried.get("undeclared"):
            return False
        try:
            declared = self._consumer.app.parsync.options.as_declared(
                carried.get("options") or {}, Arguments.of(name, received.payload)
            )
        except InvalidInput as error:
            self._refuse(run, error, pack_envelope(payload))
            return True
        if declared is None:
            return False
        options, queue = declared
        payload["headers"]["parsync"] = {"options": dict(options)}
        if options.get("tenant") is None:
            options["tenant"] = payload["headers"].get(TENANT_HEADER)
        payload["headers"][TENANT_HEADER] = options["tenant"]
        payload["properties"]["delivery_info"] = {"exchange": "", "routing_key": queue}
        task = run.place.task
        message = pack_envelope(payload)
        store = self._agent.store
        next_run = Submission(
            task, name, message, TaskOptions.of(options, queue), after=run.place.attempt
        )
        try:
            (word,) = store.run(store.commands.submit(resolve_near(store, [next_run])))
            refusal = None if word in ("next", "stale") else explain_refusal(store, next_run, word)
        except InvalidInput as error:
            refusal = error
        except (ParsyncError, RedisError, OSError) as error:
            log.warning(
                "task %s goes back, with the options that its app declares not submitted: %s",
                task,
                error,
            )
            self._give_back(run, str(error), AGAIN_S)
            return True
        if refusal is None:
            self._agent.reporter.ended(run, "again")
        else:
            self._refuse(run, refusal, message)
        return True

    def _refuse(self, run: Run, refusal: ParsyncError, message: bytes) -> None:
        """Fail a task that would have been refused with the options that its app declares."""
        run.flaw = f"with the options that its app declares: {refusal!s:.300}"
        self._store_failure(run, refusal, message)
        self._agent.reporter.ended(run, "failed")

    def _fail(self, run: Run, error: Exception, message: bytes) -> None:
        """Fail a task before it ran, because of its message, and store the failure."""
        run.flaw = f"its message cannot be run: {type(error).__name__} {error!s:.300}"
        store = self._agent.store
        quarantine(
            store,
            f"{store.keys.in_shard_of('messages', run.place.task)} {run.place.task}",
            run.flaw,
            message,
        )
        self._store_failure(run, InvalidTaskError(str(error)), message)
        self._agent.reporter.ended(run, "failed")

    def _store_failure(self, run: Run, error: Exception, message: bytes) -> None:
        """Store why a task failed before it ran, in the result backend.

        The task's chord and chain learn of the failure as well.
        """
        id = decode_id(run.place.task)
        app = self._consumer.app
        try:
            context = context_of(app, message)
            if context.id != id:  # its message cannot be read
                context = Context(id=id)
            with submitting_for(context):
                app.backend.mark_as_failure(
                    id, error, request=context, store_result=not context.ignore_result
                )
        except Exception as trouble:
            log.error(
                "the result of task %s could not be stored, and waits in the outbox: %r",
                id,
                trouble,
            )
            run.unstored = True


def _put_place(headers: dict[str, object], place: Place) -> object:
    """Put the place of a run into its message's `parsync` header; return the old header."""
    carried = headers.get("parsync")
    headers["parsync"] = {
        **(carried if isinstance(carried, dict) else {}),
        "id": place.task,
        "attempt": place.attempt,
        "node": place.node,
        "slot": place.slot,
        "slots": list(place.slots),
        "devices": place.devices,
        "partition": place.partition,
        "inc": place.inc,
    }
    return carried


def _nothing(*args: object, **kwargs: object) -> None:
    """Do nothing, where Celery would acknowledge or reject a message."""

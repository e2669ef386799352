"""The producer that Celery is given for a parsync task.

The producer submits the message instead of publishing it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from celery import Celery
from celery.app import amqp
from celery.app.defaults import NAMESPACES
from kombu import Exchange, Producer, Queue
from kombu.exceptions import OperationalError, SerializerNotInstalled
from kombu.utils.functional import fxrange

from ..errors import InvalidInput, ParsyncError, ServerFull, ServerReadOnly, ServerUnreachable
from ..model.ids import shown
from ..model.options import TaskOptions
from ..model.parameters import Arguments
from ..wire.envelope import envelope
from ..wire.headers import flaw_of
from ..wire.message_options import until_ms
from ..wire.tenant import TENANT_HEADER, inherited_tenant
from .port import Options, ParsyncPort

ROUTED_QUEUE: Final = "_queue"
"""The option that names the queue to which the workers' app routes a task.

Only `OptionSource` sets it, and only `Capture` reads it.
"""

AS_RECORDED: Final = "_as_recorded"
"""The option of a retry of which the record has the options, not the message.

A client without a Celery app submits such a task. Only `OptionSource` sets it, and only `Capture`
reads it.
"""


_TRANSPORT: Final = frozenset(
    (
        "exchange",
        "routing_key",
        "mandatory",
        "immediate",
        "retry",
        "retry_policy",
        "declare",
        "timeout",
        "confirm_timeout",
        "auto_declare",
        "return_value",
        "serializer",
        "compression",
        "headers",
    )
)
"""Arguments of kombu's publish that concern the broker, not the message."""

_CELERYS_POLICY: Final = NAMESPACES["task"]["publish_retry_policy"].default


class Unreachable(ServerUnreachable, OperationalError):
    """ServerUnreachable for Celery's callers, who expect OperationalError."""


class ReadOnly(ServerReadOnly, OperationalError):
    """ServerReadOnly for Celery's callers."""


class Full(ServerFull, OperationalError):
    """ServerFull for Celery's callers."""


class Capture:
    """Stands where Celery expects a kombu Producer, and submits the task.

    All other calls go to the real producer. The first publish is the task's message. The second is
    Celery's event task-sent: a thread in the background sends the event to the broker. Over a
    producer of the caller's own the event goes at once, because only the caller knows when that
    producer is free.
    """

    def __init__(
        self, producer: Producer, parsync: ParsyncPort, name: str, options: Options
    ) -> None:
        self._producer = producer
        self._parsync = parsync
        self._name = name
        self._options = options
        self._submitted = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._producer, name)

    # Any: kombu's arguments, each of its own type
    def publish(self, body: object, headers: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Serialize as kombu would, and submit; the second call publishes the event task-sent.

        Raises what `Parsync.submit` raises. Errors for which Celery would raise OperationalError
        are OperationalErrors as well.
        """
        if self._submitted:
            pool = self._parsync.app.producer_pool
            # a pool without a limit does not note its connections
            from_pool = not pool.limit or self._producer in pool._dirty
            if from_pool:  # Celery gives this producer back to its pool after this call
                self._parsync.background.do(
                    lambda: self._publish_event(body, headers=headers, **kwargs)
                )
            else:
                # Celery keeps the event if the send fails
                self._producer.publish(body, headers=headers, **kwargs)
            return
        if not isinstance(headers, dict) or "task" not in headers:
            raise InvalidInput("parsync tasks need Celery's task protocol 2: set task_protocol = 2")
        if flaw := flaw_of(headers):
            raise InvalidInput(f"task {self._name}: {flaw}")
        called_queue = queue_of(
            self._parsync.app, kwargs.get("exchange"), kwargs.get("routing_key")
        )
        # here, because receivers of before_task_publish may have changed the arguments
        options = dict(self._parsync.fill(self._options, Arguments.of(self._name, body)))
        routed_queue = str(options.pop(ROUTED_QUEUE, ""))
        as_recorded = bool(options.pop(AS_RECORDED, False))
        parsync_header: dict[str, object] = {} if as_recorded else {"options": dict(options)}
        if kwargs.get("priority") is not None:
            options.setdefault("priority", celery_priority(kwargs["priority"]))
        if options.get("tenant") is None and (tenant := inherited_tenant()):
            options["tenant"] = tenant
        if (eta := headers.get("eta")) is not None:
            parsync_header["eta"] = eta  # beside Celery's own, by which its worker would wait
        headers = {**headers, "parsync": parsync_header, "eta": None}
        headers.pop(TENANT_HEADER, None)
        if options.get("tenant"):
            headers[TENANT_HEADER] = options["tenant"]
        delay_ms = delay_of(eta)
        if headers.get("expires") is None and options.get("expires") is not None:
            seconds = TaskOptions.of(options).expires or 0.0
            headers["expires"] = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
        serializer = kwargs.get("serializer")
        compression = kwargs.get("compression")
        try:
            packed, content_type, content_encoding = self._producer._prepare(
                body, serializer, None, None, compression, headers
            )
        # kombu says EncodeError if it is the arguments
        except (KeyError, TypeError, SerializerNotInstalled):
            if all(isinstance(name, str | None) for name in (serializer, compression)):
                raise  # a name that is not known: plain Celery raises the same
            raise InvalidInput(
                f"task {self._name}: serializer={shown(serializer)} or "
                f"compression={shown(compression)} is no name"
            ) from None
        properties = {
            name: value
            for name, value in kwargs.items()
            if name not in _TRANSPORT and value is not None
        }
        routed = exchange_name(kwargs.get("exchange")), kwargs.get("routing_key") or ""
        message = envelope(packed, content_type, content_encoding, headers, properties, *routed)
        expiry_ms = expiry_of(headers.get("expires"))
        pauses = pauses_of(kwargs.get("retry"), kwargs.get("retry_policy") or {})
        try:
            self._parsync.submit(
                self._name,
                headers["id"],
                message,
                options,
                called_queue or routed_queue,
                delay_ms,
                expiry_ms,
                pauses,
                as_recorded,
            )
        except (ServerUnreachable, ServerReadOnly, ServerFull) as error:
            raise operational(error) from None
        self._submitted = True

    def _publish_event(self, body: object, **kwargs: object) -> None:
        # the task's producer is in use elsewhere
        with self._parsync.app.producer_pool.acquire(block=True) as producer:
            producer.publish(body, **kwargs)


def celery_priority(priority: float) -> int:
    """Return Celery's priority as parsync's, 0 to 9; raises InvalidInput for no number."""
    if not isinstance(priority, (int, float)) or priority != priority:
        raise InvalidInput(f"priority={shown(priority)} is not valid: it must be a number")
    return int(min(9, max(0, priority)))


_DELAYED: Final = re.compile(r"(?:[01]\.){28}")
"""The beginning of a routing key of Celery's delayed delivery: the bits of the delay."""


def exchange_name(exchange: Exchange | str | None) -> str:
    """Return the name of an exchange as Celery gives it to a producer, '' for none."""
    return str(getattr(exchange, "name", exchange or ""))


def queue_of(app: Celery, exchange: Exchange | str | None, routing_key: str | None) -> str:
    """Return the queue that a task was explicitly routed to, '' if that is the app's default queue.

    exchange, routing_key: as a producer gets them from Celery. If no declared queue is bound to the
    key, the key is the name of a queue. Of several bound queues the first by name counts, because a
    task runs once.
    """
    name = exchange_name(exchange)
    key = _DELAYED.sub("", routing_key or "", count=1)
    bound = [
        queue.name for queue in app.amqp.queues.values() if name and _is_bound(queue, name, key)
    ]
    queue_name = min(bound, default=key)
    return "" if queue_name == app.conf.task_default_queue else queue_name


def _is_bound(queue: Queue, exchange: str, key: str) -> bool:
    """Return whether a queue gets the messages to this exchange with this routing key."""
    if queue.exchange.name != exchange and not exchange.startswith("celery_delayed"):
        return False
    if queue.exchange.type == "fanout":
        return True
    if queue.exchange.type == "topic":
        words = (
            re.escape(word).replace(r"\*", "[^.]*") for word in str(queue.routing_key).split(".")
        )
        pattern = (
            r"\.".join(words)
            .replace(r"\.\#", r"(?:\..*)?")
            .replace(r"\#\.", r"(?:.*\.)?")
            .replace(r"\#", ".*")
        )
        return re.fullmatch(pattern, key) is not None
    return bool(queue.routing_key == key)


def operational(error: ParsyncError) -> ParsyncError:
    """Return the same error as one that is also kombu's OperationalError."""
    for kind, celerys in (
        (ServerUnreachable, Unreachable),
        (ServerReadOnly, ReadOnly),
        (ServerFull, Full),
    ):
        if isinstance(error, kind):
            return celerys(*error.args)
    return error


# Any: Celery's retry_policy, numbers and exceptions
def pauses_of(retry: bool | None, policy: Mapping[str, Any]) -> Iterator[float] | None:
    """Return the seconds before each further try to publish.

    Celery's `retry` and `retry_policy` ask for them. None if both are Celery's defaults: then the
    client's `retry_for_s` counts.
    """
    if policy == _CELERYS_POLICY and (retry or from_callback()):
        return None
    if not retry:
        return iter(())
    start, step, most = (
        float(policy.get(f"interval_{part}", 0)) for part in ("start", "step", "max")
    )
    pauses = (min(pause_s, most) for pause_s in fxrange(start, most + start, step, repeatlast=True))
    tries = policy.get("max_retries")
    return pauses if tries is None else islice(pauses, int(tries))


KNOWS_CALLBACKS: Final = hasattr(amqp, "_callback_publish_retry")
"""Celery (5.7 on) tells whether it publishes a callback."""


def from_callback() -> bool:
    """Return True if Celery (5.7 on) publishes a callback of a task that ran.

    Celery itself tries again then, and passes retry=False.
    """
    inside = getattr(amqp, "_callback_publish_retry", None)
    return inside is not None and bool(inside.get())


def delay_of(eta: str | datetime | None) -> int | None:
    """Return the milliseconds until an ETA, None for no ETA or a past ETA.

    eta: in ISO 8601; UTC if it names no zone.
    """
    return max(0, until_ms("eta", eta)) or None if eta else None


def expiry_of(expires: str | datetime | None) -> int | None:
    """Return the milliseconds until a task expires, 0 if it has expired, None if it never does."""
    return max(0, until_ms("expires", expires)) if expires else None

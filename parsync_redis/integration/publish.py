"""The producer that Celery is given for a parsync task: what it publishes is submitted instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from celery.app import amqp
from celery.app.defaults import NAMESPACES
from kombu.exceptions import OperationalError
from kombu.utils.functional import fxrange

from ..errors import InvalidInput, ParsyncError, ServerFull, ServerReadOnly, ServerUnreachable
from ..model.task import TaskOptions
from ..wire.message import envelope, until_ms

if TYPE_CHECKING:
    from .app import Parsync

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
"""Arguments of kombu's publish that are about the broker, not the message."""


_CELERYS_POLICY: Final = NAMESPACES["task"]["publish_retry_policy"].default


class Unreachable(ServerUnreachable, OperationalError):
    """ServerUnreachable for callers of Celery, who expect its OperationalError."""


class ReadOnly(ServerReadOnly, OperationalError):
    """ServerReadOnly, likewise."""


class Full(ServerFull, OperationalError):
    """ServerFull, likewise."""


class Capture:
    """Stands where Celery expects a kombu Producer: submits the task, and passes all else on to the real producer.

    What is published after the task is the event task-sent. It goes to the broker in the background.
    """

    def __init__(self, producer: Any, parsync: Parsync, name: str, options: dict[str, Any]) -> None:
        self._producer, self._parsync, self._name, self._options = producer, parsync, name, options
        self._submitted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, headers: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Serializes as kombu would, and submits; raises what `Parsync.submit` raises.

        Where Celery would raise OperationalError, what is raised is one too.
        """
        if self._submitted:
            self._parsync.background.do(lambda: self._publish_event(body, headers=headers, **kwargs))
            return
        if not isinstance(headers, dict) or "task" not in headers:
            raise InvalidInput("parsync tasks need Celery's task protocol 2: set task_protocol = 2")
        queue = queue_of(self._parsync.app, kwargs.get("exchange"), kwargs.get("routing_key"))
        options = dict(self._options)
        queue = queue or str(options.pop("_queue", ""))
        if kwargs.get("priority") is not None:
            options.setdefault("priority", min(9, max(0, int(kwargs["priority"]))))
        headers = {**headers, "parsync": {"options": {k: v for k, v in self._options.items() if k != "_queue"}}}
        delay_ms = delay_of(headers.get("eta"))
        headers["eta"] = None
        if headers.get("expires") is None and options.get("expires") is not None:
            seconds = TaskOptions.of(options).expires_s or 0.0
            headers["expires"] = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
        packed, content_type, content_encoding = self._producer._prepare(
            body, kwargs.get("serializer"), None, None, kwargs.get("compression"), headers
        )
        properties = {name: value for name, value in kwargs.items() if name not in _TRANSPORT and value is not None}
        routed = (
            str(getattr(kwargs.get("exchange"), "name", kwargs.get("exchange") or "")),
            kwargs.get("routing_key") or "",
        )
        message = envelope(packed, content_type, content_encoding, headers, properties, *routed)
        expiry_ms = expiry_of(headers.get("expires"))
        pauses = pauses_of(kwargs.get("retry"), kwargs.get("retry_policy") or {})
        try:
            self._parsync.submit(self._name, headers["id"], message, options, queue, delay_ms, expiry_ms, pauses)
        except (ServerUnreachable, ServerReadOnly, ServerFull) as error:
            raise operational(error) from None
        self._submitted = True

    def _publish_event(self, body: Any, **kwargs: Any) -> None:
        with self._parsync.app.producer_pool.acquire(block=True) as producer:  # by now the task's is another's
            producer.publish(body, **kwargs)


_DELAYED: Final = re.compile(r"(?:[01]\.){28}")
"""How a routing key of Celery's native delayed delivery begins (celery_delayed_27): the delay, bit by bit."""


def exchange_name(exchange: Any) -> str:
    """The name of an exchange, which Celery gives as kombu's Exchange, as a name, or not at all."""
    return str(getattr(exchange, "name", exchange or ""))


def queue_of(app: Celery, exchange: Any, routing_key: str | None) -> str:
    """The queue that a task was explicitly routed to, '' if that is the app's default queue.

    exchange, routing_key: as Celery gives them to a producer. If no declared queue is bound to the key, the key is the
    name of a queue. Of several queues the first by name counts, because a task runs once.
    """
    name, key = exchange_name(exchange), _DELAYED.sub("", routing_key or "", count=1)
    bound = [queue.name for queue in app.amqp.queues.values() if name and _is_bound(queue, name, key)]
    found = min(bound, default=key)
    return "" if found == app.conf.task_default_queue else found


def _is_bound(queue: Any, exchange: str, key: str) -> bool:
    """True if a message to this exchange with this routing key would come into a queue."""
    if queue.exchange.name != exchange and not exchange.startswith("celery_delayed"):
        return False
    if queue.exchange.type == "fanout":
        return True
    if queue.exchange.type == "topic":
        words = (re.escape(word).replace(r"\*", "[^.]*") for word in str(queue.routing_key).split("."))
        pattern = r"\.".join(words).replace(r"\.\#", r"(?:\..*)?").replace(r"\#\.", r"(?:.*\.)?").replace(r"\#", ".*")
        return re.fullmatch(pattern, key) is not None
    return bool(queue.routing_key == key)


def operational(error: ParsyncError) -> ParsyncError:
    """The same error as one that is also kombu's OperationalError."""
    for kind, celerys in ((ServerUnreachable, Unreachable), (ServerReadOnly, ReadOnly), (ServerFull, Full)):
        if isinstance(error, kind):
            return celerys(*error.args)
    return error


def pauses_of(retry: Any, policy: Mapping[str, Any]) -> Iterator[float] | None:
    """Seconds to wait before each further try to publish, as Celery's `retry` and `retry_policy` ask for.

    None if nobody has asked for anything: with Celery's own default the client's patience counts.
    """
    if policy == _CELERYS_POLICY and (retry or _from_callback()):
        return None
    if not retry:
        return iter(())
    start, step, most = (float(policy.get(f"interval_{part}", 0)) for part in ("start", "step", "max"))
    pauses = (min(pause_s, most) for pause_s in fxrange(start, most + start, step, repeatlast=True))
    tries = policy.get("max_retries")
    return pauses if tries is None else islice(pauses, int(tries))


def _from_callback() -> bool:
    """Whether Celery (5.7 on) publishes a callback of a task that has run: it repeats that itself, with retry=False."""
    inside = getattr(amqp, "_callback_publish_retry", None)
    return inside is not None and bool(inside.get())


def delay_of(eta: str | datetime | None) -> int | None:
    """Milliseconds from now until an ETA (ISO 8601; UTC where it names no zone), None for none or one in the past."""
    return max(0, until_ms("eta", eta)) or None if eta else None


def expiry_of(expires: str | datetime | None) -> int | None:
    """Milliseconds from now until a task expires, 0 if it has, None if it never does."""
    return max(0, until_ms("expires", expires)) if expires else None

"""The producer that Celery is given for a parsync task: what it publishes is submitted instead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidInput
from ..model.ids import check_name
from ..wire.message import envelope

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


class Capture:
    """Stands where Celery expects a kombu Producer: submits the task, and passes all else on to the real producer, also
    what is published after it (the event task-sent).
    """

    def __init__(self, producer: Any, parsync: Parsync, name: str, options: dict[str, Any]) -> None:
        self._producer, self._parsync, self._name, self._options = producer, parsync, name, options
        self._submitted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, headers: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Serializes as kombu would, and submits; raises what `Parsync.submit` raises."""
        if self._submitted:
            self._producer.publish(body, headers=headers, **kwargs)
            return
        if not isinstance(headers, dict) or "task" not in headers:
            raise InvalidInput("parsync tasks need Celery's task protocol 2: set task_protocol = 2")
        id = check_name("task id", headers.get("id"))
        headers = {**headers, "parsync": {"options": self._options}}
        delay_ms = delay_of(headers.get("eta"))
        headers["eta"] = None
        packed, content_type, content_encoding = self._producer._prepare(
            body, kwargs.get("serializer"), None, None, kwargs.get("compression"), headers
        )
        properties = {name: value for name, value in kwargs.items() if name not in _TRANSPORT and value is not None}
        message = envelope(packed, content_type, content_encoding, headers, properties)
        self._parsync.submit(self._name, id, message, self._options, delay_ms)
        self._submitted = True


def delay_of(eta: str | datetime | None) -> int | None:
    """Milliseconds from now until an ETA (ISO 8601; UTC where it names no zone), None for none or one in the past."""
    if not eta:
        return None
    try:
        at = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    except ValueError:
        raise InvalidInput(f"eta={eta!r} is not valid: it must be a datetime, or one as ISO 8601 writes it") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    delay_ms = int((at - datetime.now(UTC)).total_seconds() * 1000)
    return delay_ms if delay_ms > 0 else None

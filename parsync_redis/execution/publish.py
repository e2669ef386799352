"""The producer that Celery is given for a parsync task: what it publishes is submitted instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidInput
from ..model.ids import check_name
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
        if headers.get("expires") is None and self._options.get("expires") is not None:
            seconds = TaskOptions.of(self._options).expires_s or 0.0
            headers["expires"] = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
        packed, content_type, content_encoding = self._producer._prepare(
            body, kwargs.get("serializer"), None, None, kwargs.get("compression"), headers
        )
        properties = {name: value for name, value in kwargs.items() if name not in _TRANSPORT and value is not None}
        message = envelope(packed, content_type, content_encoding, headers, properties)
        self._parsync.submit(self._name, id, message, self._options, delay_ms, expiry_of(headers.get("expires")))
        self._submitted = True


def delay_of(eta: str | datetime | None) -> int | None:
    """Milliseconds from now until an ETA (ISO 8601; UTC where it names no zone), None for none or one in the past."""
    return max(0, until_ms("eta", eta)) or None if eta else None


def expiry_of(expires: str | datetime | None) -> int | None:
    """Milliseconds from now until a task expires, 0 if it has, None if it never does."""
    return max(0, until_ms("expires", expires)) if expires else None

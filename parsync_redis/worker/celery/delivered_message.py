"""A task's message in the form in which Celery takes messages from a queue."""

from __future__ import annotations

from typing import Any, TypeVar

from celery import Celery
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Message

from ...wire.envelope import Decoder

MessageT = TypeVar("MessageT", bound=Message)


class Delivered(Message):
    """A message that came from a task's record: there is nothing to acknowledge."""

    def ack(self, *args: object, **kwargs: object) -> None:
        """Do nothing."""

    reject = requeue = ack


# Any: an envelope is a JSON object
def as_message(app: Celery, payload: dict[str, Any], kind: type[MessageT]) -> MessageT:
    """Return the message of an opened envelope, which decodes what the app accepts."""
    make: Any = kind  # Any: kombu's signature is not the one that it uses
    message: MessageT = make(
        payload, channel=Decoder(), accept=prepare_accept_content(app.conf.accept_content)
    )
    return message

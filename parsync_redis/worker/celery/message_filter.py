"""Drops messages of plain queues that are no task's message, so that no worker ends.

Whoever may write to a queue can put anything into the queue. Celery and kombu expect a task's
message. A message that is no JSON, has no properties, or has a list for a time limit raises an
error in the event loop. The error ends the worker, and then the next worker that gets the message.
This module logs and drops such a message. Errors of the connection are raised as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from queue import Empty
from typing import Any, Final

from celery.exceptions import InvalidTaskError
from kombu.message import Message
from kombu.transport import virtual

from ...wire.headers import flaw_of, flaw_of_message
from .celery_types import Consumer
from .refusing_broker import writable

log = logging.getLogger("parsync.agent")

_SHOWN_CHARACTERS: Final = 300


# Any: kombu's transports, whose base has no types
@cache
def careful(transport: type) -> type:
    """Return a class of kombu transports that drops what is no message.

    A transport that is not virtual is returned as it is: it needs no care.
    """
    if not issubclass(transport, virtual.Transport):
        return transport
    base: Any = transport  # Any: a base class that is known at run time only

    class Channel(base.Channel):
        def _brpop_read(self, **options: object) -> object:
            """Read a message of a queue in Redis.

            The message has left the queue before anybody knows that it is none.
            """
            return self._carefully("a queue", lambda: super(Channel, self)._brpop_read(**options))

        def _receive_one(self, client: object) -> object:
            """Read a broadcast."""
            return self._carefully("a channel", lambda: super(Channel, self)._receive_one(client))

        def _carefully(self, where: str, read: Callable[[], object]) -> object:
            try:
                return read()
            except self.connection.connection_errors + self.connection.channel_errors + (Empty,):
                raise
            except Exception as error:
                if _while_reading(error):
                    raise
                _drop(where, error)
                return True

    class Transport(base):
        def _deliver(self, message: object, queue: str) -> None:
            if flaw := flaw_of_message(message):
                _drop(queue, InvalidTaskError(flaw), message)
                return
            try:
                super()._deliver(message, queue)
            except self.connection_errors + self.channel_errors:
                raise
            except Exception as error:
                _drop(queue, error, message)

    Channel.__name__ = base.Channel.__name__
    Transport.__name__ = base.__name__
    Transport.Channel = Channel
    return Transport


# Any: a method of this object only is replaced
def connect_carefully(connection: Any) -> None:
    """Make a connection drop messages that are no task's message.

    The connection is not made yet; connections that replace it drop such messages as well.

    The connection is made when the server takes writes, because kombu writes down each message that
    it reads.
    """
    original = connection.get_transport_cls
    connection.get_transport_cls = lambda: writable(careful(original()))


def handle_carefully(
    consumer: Consumer, handle: Callable[[Message], object]
) -> Callable[[Message], object]:
    """Return Celery's handler of messages, which drops the messages that it cannot take.

    This works with each broker.
    """

    def on_message(message: Message) -> object:
        try:
            headers = message.headers
            if isinstance(headers, dict) and "task" in headers and (flaw := flaw_of(headers)):
                return consumer.on_invalid_task(None, message, InvalidTaskError(flaw))
            return handle(message)
        except consumer.connection_errors + consumer.channel_errors:
            raise
        except Exception as error:
            _drop("its queue", error, message)
            if not message.acknowledged:
                message.reject()
            # Celery may have scheduled a call that would raise
            vars(message).update(ack=_nothing, reject=_nothing)
            return None

    return on_message


def _nothing(*args: object, **kwargs: object) -> None:
    """Acknowledge nothing: the message is gone."""


def _while_reading(error: BaseException) -> bool:
    """Return True if an error was raised while a reply was read.

    Then the message is not what is wrong.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "parse_response":
            return True
        trace = trace.tb_next
    return False


def _drop(where: str, error: Exception, message: object = "") -> None:
    shown = f": {message!r:.{_SHOWN_CHARACTERS}}" if message else ""
    log.error(
        "a message in %s is dropped, because it is no task: %s %s%s",
        where,
        type(error).__name__,
        error,
        shown,
    )

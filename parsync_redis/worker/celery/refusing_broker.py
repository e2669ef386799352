"""Makes Celery connect again when its broker in Redis refuses, until the server serves.

A server may answer and do nothing: its disk is full, its replicas are missing, it has become a
replica. For kombu such a reply is an error of the channel, and Celery ends the worker. A node lives
on, because it runs placed tasks too.
"""

from __future__ import annotations

import random
import time
from functools import cache
from typing import Any, Final, Protocol

from kombu import Connection
from redis.exceptions import ResponseError

from ...store.server.server_errors import refusal, refusal_to

PAUSE_S: Final = 1.0
"""The longest pause of a consumer between a refusal and its next connection."""


class Recovering(Protocol):
    """A consumer that goes on after a refusal.

    was_refused: the server answered a request and refused it.
    """

    conninfo: Connection
    was_refused: bool


class Refused(ConnectionError):
    """The broker's server answers, and does no request now.

    Celery takes this error for a lost connection.
    """


# Any: kombu's transports, whose base has no types
@cache
def writable(transport: type) -> type:
    """Return a class of kombu transports that connects only to a server that takes writes.

    This concerns Redis; other transports are returned as they are.
    """
    base: Any = transport  # Any: a base class that is known at run time only
    if base.driver_type != "redis":
        return transport

    class Transport(base):
        def establish_connection(self) -> object:
            """Connect, and send a write that changes nothing. Raises Refused."""
            connection = super().establish_connection()
            channel = self._avail_channels[-1]
            try:
                with channel.conn_or_acquire() as client:
                    client.zadd(channel.unacked_index_key, {"": 0}, xx=True)
            except ResponseError as error:  # this login may be one that only publishes: it goes on
                if why := refusal(self.client.as_uri(), error):
                    self.close_connection(connection)
                    raise Refused(str(why)) from error
            # no other code closes this connection, and each lost connection leaves a channel open
            except BaseException:
                self.close_connection(connection)
                raise
            return connection

    Transport.__name__ = base.__name__
    return Transport


def as_refused(broker: Connection, error: BaseException) -> Refused | None:
    """Return the error of a lost connection for a refusal by the broker, None for any other error.

    kombu hides some refusals as the cause of another error. A broker that is no Redis refuses
    nothing this way. An error of parsync's own server is no refusal of the broker.
    """
    if broker.transport.driver_type != "redis":
        return None
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ResponseError) and (why := refusal_to(broker.as_uri(), cause)):
            return Refused(str(why))
        cause = cause.__cause__
    return None


def outliving(blueprint: type) -> type:
    """Return a class of consumers' blueprints that goes on after a refusal.

    The consumer connects again, as after a lost connection.
    """
    base: Any = blueprint  # Any: Celery's classes have no types

    class Blueprint(base):
        def start(self, parent: Recovering) -> None:
            """Run the consumer until it stops. Raises Refused."""
            try:
                super().start(parent)
            except Exception as error:
                refused = as_refused(parent.conninfo, error)
                if refused is None:
                    raise
                parent.was_refused = True
                raise refused from error

    Blueprint.__name__ = base.__name__
    return Blueprint


def pause() -> None:
    """Wait for a moment that differs from worker to worker."""
    time.sleep(random.uniform(0.5, 1.0) * PAUSE_S)

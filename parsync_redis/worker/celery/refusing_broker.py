"""A refusal by a broker in Redis counts as the loss of its connection: Celery connects again until
the server serves.

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
"""The longest pause of a consumer between a refusal and the next connection, which the server may
accept.
"""


class Recovering(Protocol):
    """A consumer that goes on after a refusal.

    was_refused: the server answered, and did not do what it was asked.
    """

    conninfo: Connection
    was_refused: bool


class Refused(ConnectionError):
    """The broker's server answers, and does no request now.

    Celery takes it for a lost connection.
    """


# Any: kombu's transports, whose base has no types
@cache
def writable(transport: type) -> type:
    """Return a class of kombu transports that connects to Redis only while the server
    takes writes.
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
            # nobody else knows this connection, and each of them leaves a channel open
            except BaseException:
                self.close_connection(connection)
                raise
            return connection

    Transport.__name__ = base.__name__
    return Transport


def as_refused(broker: Connection, error: BaseException) -> Refused | None:
    """Return the error of a lost connection for a refusal by the broker, None for any other error.

    kombu hides some as a cause. A broker that is no Redis refuses nothing this way, and errors of
    parsync's own server are none of the broker's.
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
    """Return a class of blueprints of consumers, which goes on after a refusal as after a lost
    connection.
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

"""The transport of a node that runs placed tasks only: a kombu transport without a broker.

It is always connected and has no messages, so Celery's event loop turns whatever happens to the
app's broker. Placed tasks come through the node's inbox (inbox.py).
"""

from __future__ import annotations

from queue import Empty

from kombu import Connection
from kombu.transport import virtual

TRANSPORT = f"{__name__}:Transport"


class Channel(virtual.Channel):
    """A channel whose queues are empty. Nothing can be published on it."""

    supports_fanout = False

    def _get(self, queue: str, timeout: float | None = None) -> object:
        raise Empty

    def _put(self, queue: str, message: object, **kwargs: object) -> None:
        raise NotImplementedError(
            "this connection leads to no broker: publish with app.connection_for_write()"
        )

    def _size(self, queue: str) -> int:
        return 0

    def _purge(self, queue: str) -> int:
        return 0


class Transport(virtual.Transport):
    """A transport that is always connected and never has a message."""

    Channel = Channel
    driver_type = "parsync"
    driver_name = "parsync"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, heartbeats=False, exchange_type=frozenset(["direct", "topic"])
    )

    def driver_version(self) -> str:
        """Return none: there is no driver."""
        return "none"

    def register_with_event_loop(self, connection: object, loop: object) -> None:
        """Register nothing, because there is nothing to read."""


def connection_to_nothing() -> Connection:
    """Return the connection of a node that consumes no queue."""
    return Connection(transport=TRANSPORT)

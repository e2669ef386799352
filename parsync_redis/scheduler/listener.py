"""Listen to pub/sub: ticks on one channel, and `wake` and `freed` messages on a channel of the scheduler's own.

Twenty schedulers hear forty ticks a second each, and a turn of the loop takes hardly longer than redis-py takes to
hand over one message. So the sockets are redis-py's, with its address, login and TLS, but this module reads them. Each
channel has a connection of its own, so that ticks need not wake a scheduler that has nothing to do.
"""

import logging
import re
import select
import ssl
import time
from collections.abc import Sequence
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from ..store.server_errors import Backoff
from ..store.store import Store

log = logging.getLogger("parsync.scheduler")

_HEARD: Final = re.compile(rb"tick \d{1,18} \d{1,18}|wake|freed \d{1,9} -?\d{1,18} -?\d{1,18}")
_SOME: Final = 1 << 16
_TICKS, _OWN = ("tick",), ("wake", "freed")

CUT: Final = "cut"
"""The word that `hear` returns if a subscription was lost; nobody sends it."""


def understand(data: bytes, partitions: int, known: Sequence[str] = (*_TICKS, *_OWN)) -> list[str]:
    """Return the words of a message; [] if no scheduler or script can have sent it on this channel.

    known: the first words that are heard on this channel. Clients may publish on the channels of schedulers too.
    """
    if not _HEARD.fullmatch(data):
        return []
    words = data.decode().split()
    return [] if words[0] not in known or (words[0] == "freed" and int(words[1]) >= partitions) else words


class _Subscription:
    """A subscription to one channel, on a connection of its own. Raises RedisError and OSError."""

    def __init__(self, store: Store, channel: str, known: Sequence[str]) -> None:
        self.known = known
        self._pool = store.client.connection_pool
        self._connection: Any = self._pool.get_connection()
        self.socket: Any = None
        self._reader = hiredis.Reader(protocolError=Disconnected, replyError=ResponseError)
        try:
            self._connection.send_command("SUBSCRIBE", channel)
            self.socket = self._connection._get_socket()  # redis-py reads nothing more from it
            self.socket.setblocking(False)
        except BaseException:
            self.close()
            raise

    def receive(self) -> list[bytes]:
        """Return the messages that have come."""
        more = True
        while more:
            try:
                data = self.socket.recv(_SOME)
            except (BlockingIOError, ssl.SSLWantReadError):
                break  # it was readable, but no message: of TLS, a part of one
            if not data:
                raise Disconnected("the server closed the connection")
            self._reader.feed(data)
            more = bool(getattr(self.socket, "pending", int)())  # of TLS: read, and not handed over
        found = []
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, ResponseError):
                raise reply
            if reply[0] == b"message":
                found.append(reply[2])
        return found

    def close(self) -> None:
        """End the subscription."""
        self._connection.disconnect()
        self._pool.release(self._connection)


class Listener:
    """A subscription to the ticks and one to the scheduler's own channel.

    Messages are only hints: if a connection fails, the scheduler goes on by its own clock.
    """

    def __init__(self, store: Store, name: str, partitions: int) -> None:
        self._store = store
        self._channels = {store.keys.tick: _TICKS, store.keys.own_channel(name): _OWN}
        self._partitions = partitions
        self._subscriptions: dict[int, _Subscription] = {}
        self._all, self._own = select.poll(), select.poll()
        self._backoff = Backoff(log, f"scheduler {name} hears nothing")
        self._again_s = 0.0

    def listen(self) -> None:
        """Subscribe, again if need be; if that fails, `hear` tries again later."""
        self.close()
        self._all, self._own = select.poll(), select.poll()
        try:
            for channel, known in self._channels.items():
                subscription = _Subscription(self._store, channel, known)
                self._subscriptions[subscription.socket.fileno()] = subscription
                self._all.register(subscription.socket, select.POLLIN)
            self._own.register(subscription.socket, select.POLLIN)
        except (RedisError, OSError) as error:
            self._close_for(error)

    def _close_for(self, error: Exception) -> None:
        self.close()
        self._again_s = time.monotonic() + self._backoff.pause_s(error)

    def hear(self, timeout_s: float, ticks: bool = True) -> list[list[str]]:
        """Return the messages that have come, each as its words; wait up to `timeout_s` for the first.

        ticks: wait for ticks as well as for own messages. Returns [[CUT]] if a subscription was lost.
        """
        try:
            if not self._subscriptions:
                time.sleep(max(0.0, min(timeout_s, self._again_s - time.monotonic())))
                if time.monotonic() < self._again_s:
                    return []
                self.listen()
            return self._take_in(timeout_s, ticks)
        except (RedisError, OSError) as error:
            self._close_for(error)
            return [[CUT]]

    def _take_in(self, timeout_s: float, ticks: bool) -> list[list[str]]:
        if not ticks and timeout_s > 0:
            self._own.poll(timeout_s * 1000)
            timeout_s = 0.0
        found = []
        for socket, _ in self._all.poll(max(0.0, timeout_s * 1000)):
            subscription = self._subscriptions[socket]
            heard = (understand(data, self._partitions, subscription.known) for data in subscription.receive())
            found += [words for words in heard if words]
            self._backoff.well()
        return found

    def close(self) -> None:
        """End the subscriptions."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions = {}

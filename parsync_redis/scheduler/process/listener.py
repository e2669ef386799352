"""Listen to pub/sub: ticks on one channel, and `wake` and `freed` messages on the scheduler's own
channels.

The channels are sharded: each is of one hash tag, and only the server that has this tag carries its
messages. So a scheduler has a subscription on each server that has channels of its own, and one
more for the ticks, so that these need not wake a scheduler that has nothing to do.

Twenty schedulers hear forty ticks a second each, and a turn of the loop takes hardly longer than
redis-py takes to hand over one message. So the sockets are redis-py's, with its address, login and
TLS, but this module reads them.
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

from ...errors import ParsyncError, ServerUnreachable
from ...store.server.server_errors import Backoff
from ...store.store import Store

log = logging.getLogger("parsync.scheduler")

_HEARD: Final = re.compile(
    rb"tick \d{1,18} \d{1,18}(?: booked)?|wake|freed \d{1,9} -?\d{1,18} -?\d{1,18}"
)
_SOME: Final = 1 << 16

LOOK_S: Final = 1.0
"""How often it looks whether its channels are still with the servers that it listens to."""

CONNECT_S: Final = 1.0
"""How long one of several servers may take to answer a new subscription: the loop waits for it, and
serves the others after that.
"""

CUT: Final = "cut"
"""The word that `hear` returns if the ticks were lost; nobody sends it."""


def understand(data: bytes, word: str, number: int = 0) -> list[str]:
    """Return the words of a message; [] if no scheduler or script can have sent it on this channel.

    word: the first word of what is heard on this channel; number: the partition or the shard that
    it is of. A wake-up does not name its shard, so the number is added. Clients may publish on the
    channels of schedulers too.
    """
    if not _HEARD.fullmatch(data):
        return []
    words = data.decode().split()
    if words == ["wake"]:
        words.append(str(number))
    return [] if words[0] != word or (word == "freed" and int(words[1]) != number) else words


class _Subscription:
    """A subscription to channels of one server, on a connection of its own.

    Raises RedisError and OSError.

    within_s: how long the server may take to accept the connection, if not as long as those of the
    pool.
    """

    def __init__(self, pool: Any, channels: Sequence[str], within_s: float | None = None) -> None:
        self.channels = channels
        limits = (
            {"socket_timeout": within_s, "socket_connect_timeout": within_s} if within_s else {}
        )
        self._connection: Any = pool.connection_class(
            **{**pool.connection_kwargs, **limits}
        )  # the pool may close its own
        self.socket: Any = None
        self._reader = hiredis.Reader(protocolError=Disconnected, replyError=ResponseError)
        try:
            self._connection.connect()
            # of many slots
            asked = [self._connection.pack_command("SSUBSCRIBE", channel) for channel in channels]
            self._connection.send_packed_command([b"".join(part) for part in asked])
            self.socket = self._connection._get_socket()  # redis-py reads nothing more from it
            self.socket.setblocking(False)
        except BaseException:
            self.close()
            raise

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Return the messages that have come, each with its channel."""
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
            if reply[0] == b"smessage":
                found.append((reply[1], reply[2]))
            elif reply[0] == b"sunsubscribe":
                raise Disconnected("a channel has moved to another server")
        return found

    def close(self) -> None:
        """End the subscription."""
        self._connection.disconnect()


class Listener:
    """Subscriptions to the ticks and to the scheduler's own channels, on each server that has some
    of them.

    Messages are only hints: if a connection fails, the scheduler goes on by its own clock, and
    hears the others.
    """

    def __init__(self, store: Store, name: str, partitions: int) -> None:
        self._store = store
        self._meanings = {store.keys.tick: ("tick", 0), **store.keys.own_channels(name, partitions)}
        self._by_name = {channel.encode(): meaning for channel, meaning in self._meanings.items()}
        # (connections to a server, is it the ticks)
        self._live: dict[tuple[Any, bool], _Subscription] = {}
        self._by_socket: dict[int, tuple[Any, bool]] = {}
        self._all = select.poll()
        self._own = select.poll()
        self._backoff = Backoff(log, f"scheduler {name} hears nothing of a server")
        self._missing = False
        self._again_s = 0.0

    def listen(self) -> None:
        """Subscribe to everything anew; what fails, `hear` tries again later."""
        self.close()
        self._follow()

    def listen_to_ticks(self) -> None:
        """Subscribe to the ticks anew."""
        for place in [place for place in self._live if place[1]]:
            self._drop(place)
        self._follow()

    def _follow(self) -> list[list[str]]:
        """Subscribe where the channels are now.

        Returns what may have been missed on those that moved.
        """
        self._again_s = time.monotonic() + LOOK_S
        failed: Exception | None = None
        try:
            pools = self._store.pools_of(self._meanings, anew=self._missing)
        except ParsyncError as error:
            pools = {}
            failed = error
        if len(pools) < len(self._meanings):
            failed = failed or ServerUnreachable(f"a server at {self._store.address} is away")
        wanted: dict[tuple[Any, bool], list[str]] = {}
        for channel, pool in pools.items():
            wanted.setdefault((pool, channel == self._store.keys.tick), []).append(channel)
        moved = [
            place
            for place, subscription in self._live.items()
            if wanted.get(place) != subscription.channels
        ]
        missed = [words for place in moved for words in self._drop(place)]
        for place in wanted.keys() - self._live.keys():
            within_s = CONNECT_S if self._store.several else None
            try:
                subscription = self._live[place] = _Subscription(place[0], wanted[place], within_s)
            except (RedisError, OSError) as error:
                failed = error
                continue
            self._by_socket[subscription.socket.fileno()] = place
            for poll in self._polls(place):
                poll.register(subscription.socket, select.POLLIN)
        self._missing = failed is not None
        if failed:
            self._again_s = time.monotonic() + self._backoff.pause_s(failed)
        return missed

    def _polls(self, place: tuple[Any, bool]) -> tuple[select.poll, ...]:
        return (self._all,) if place[1] else (self._all, self._own)

    def _drop(self, place: tuple[Any, bool]) -> list[list[str]]:
        """End a subscription; return what may be missed, as it would be heard."""
        subscription = self._live.pop(place)
        del self._by_socket[subscription.socket.fileno()]
        for poll in self._polls(place):
            poll.unregister(subscription.socket)
        subscription.close()
        if place[1]:
            return [[CUT]]
        meanings = [self._meanings[channel] for channel in subscription.channels]
        return [
            [word, str(number), *(["1", "1"] if word == "freed" else [])]
            for word, number in meanings
        ]

    def hear(self, timeout_s: float, ticks: bool = True) -> list[list[str]]:
        """Return the messages that have come, each as its words; wait up to `timeout_s` for the
        first.

        ticks: wait for ticks as well as for own messages. Adds [CUT] if the ticks were lost, and
        what may have been missed on an own channel that was.
        """
        found: list[list[str]] = []
        if time.monotonic() >= self._again_s and (missed := self._follow()):
            return missed
        if not self._live:
            time.sleep(max(0.0, min(timeout_s, self._again_s - time.monotonic())))
            return []
        if not ticks and timeout_s > 0:
            self._own.poll(timeout_s * 1000)
            timeout_s = 0.0
        for socket, _ in self._all.poll(max(0.0, timeout_s * 1000)):
            place = self._by_socket[socket]
            try:
                said = self._live[place].receive()
            except (RedisError, OSError) as error:
                found += self._drop(place)
                self._missing = True
                self._again_s = time.monotonic() + self._backoff.pause_s(error)
                continue
            heard = (understand(data, *self._by_name[channel]) for channel, data in said)
            found += [words for words in heard if words]
            if not self._missing:
                self._backoff.well()
        return found

    def close(self) -> None:
        """End the subscriptions."""
        for place in list(self._live):
            self._drop(place)

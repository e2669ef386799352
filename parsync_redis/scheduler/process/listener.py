"""The subscriptions of a scheduler: ticks on one channel, `wake` and `freed` on its own channels.

The channels are sharded: each belongs to one hash tag, and only the server that has this tag
carries its messages. So a scheduler has a subscription on each server that has channels of the
scheduler. A further subscription has the ticks, so that ticks need not wake a scheduler without
work.

Twenty schedulers hear forty ticks a second each, and a turn of the loop takes hardly longer than
redis-py takes to hand over one message. So this module reads the sockets itself; redis-py makes
them, with address, login and TLS.
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

_MESSAGE_FORMAT: Final = re.compile(
    rb"tick \d{1,18} \d{1,18}(?: booked)?|wake|freed \d{1,9} -?\d{1,18} -?\d{1,18}"
)
"""The messages that schedulers and scripts send."""
_READ_BYTES: Final = 1 << 16
"""Maximum number of bytes read from a socket at once."""

FOLLOW_EVERY_S: Final = 1.0
"""Interval at which the listener checks which servers have its channels, in seconds."""

CONNECT_S: Final = 1.0
"""Seconds that one of several servers may take to accept a subscription: the loop waits meanwhile.
"""

TICKS_LOST: Final = "cut"
"""The word that `hear` returns if ticks were lost; nobody sends it."""


def understand(data: bytes, word: str, number: int = 0) -> list[str]:
    """Return the words of a message; [] if no scheduler or script can have sent it on this channel.

    Clients may publish on the channels of schedulers too.

    word: the first word of the channel's messages.
    number: the channel's partition or shard; it is added to a wake-up, which does not name its
        shard.
    """
    if not _MESSAGE_FORMAT.fullmatch(data):
        return []
    words = data.decode().split()
    if words == ["wake"]:
        words.append(str(number))
    if words[0] != word or (word == "freed" and int(words[1]) != number):
        return []
    return words


class _Subscription:
    """A subscription to channels of one server, on a connection of its own.

    Raises RedisError and OSError. within_s: how long the server may take to accept the connection;
    None for the limit of the pool.
    """

    def __init__(self, pool: Any, channels: Sequence[str], within_s: float | None = None) -> None:
        self.channels = channels
        limits = (
            {"socket_timeout": within_s, "socket_connect_timeout": within_s} if within_s else {}
        )
        # not a connection of the pool, because the pool may close its own
        self._connection: Any = pool.connection_class(**{**pool.connection_kwargs, **limits})
        self.socket: Any = None
        self._reader = hiredis.Reader(protocolError=Disconnected, replyError=ResponseError)
        try:
            self._connection.connect()
            # one command for each channel, because the channels have different slots
            commands = [
                self._connection.pack_command("SSUBSCRIBE", channel) for channel in channels
            ]
            self._connection.send_packed_command([b"".join(part) for part in commands])
            # redis-py reads nothing more from the socket
            self.socket = self._connection._get_socket()
            self.socket.setblocking(False)
        except BaseException:
            self.close()
            raise

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Return the messages that have come, each with its channel."""
        has_more = True
        while has_more:
            try:
                data = self.socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                break  # the socket was readable, but TLS has only a part of a message
            if not data:
                raise Disconnected("the server closed the connection")
            self._reader.feed(data)
            has_more = bool(
                getattr(self.socket, "pending", int)()
            )  # bytes that TLS has read and not handed over
        messages = []
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, ResponseError):
                raise reply
            if reply[0] == b"smessage":
                messages.append((reply[1], reply[2]))
            elif reply[0] == b"sunsubscribe":
                raise Disconnected("a channel has moved to another server")
        return messages

    def close(self) -> None:
        """End the subscription."""
        self._connection.disconnect()


class Listener:
    """Subscriptions to the ticks and to the scheduler's own channels, one for each server.

    Messages are only hints: if a connection fails, the scheduler goes on by its own clock, and
    hears the other servers. Here a *place* is a server's pool of connections, and whether the
    subscription is to the ticks.
    """

    def __init__(self, store: Store, name: str, partitions: int) -> None:
        self._store = store
        self._meanings = {store.keys.tick: ("tick", 0), **store.keys.own_channels(name, partitions)}
        self._by_name = {channel.encode(): meaning for channel, meaning in self._meanings.items()}
        # (connections to a server, whether the subscription is to the ticks)
        self._live: dict[tuple[Any, bool], _Subscription] = {}
        self._by_socket: dict[int, tuple[Any, bool]] = {}
        self._all = select.poll()
        self._own = select.poll()
        self._backoff = Backoff(log, f"scheduler {name} hears nothing of a server")
        self._is_incomplete = False
        self._follow_s = 0.0

    def listen(self) -> None:
        """Subscribe to everything anew; `hear` tries again what fails."""
        self.close()
        self._follow()

    def listen_to_ticks(self) -> None:
        """Subscribe to the ticks anew."""
        for place in [place for place in self._live if place[1]]:
            self._drop(place)
        self._follow()

    def _follow(self) -> list[list[str]]:
        """Subscribe where the channels are now.

        Returns what may have been missed on channels that moved.
        """
        self._follow_s = time.monotonic() + FOLLOW_EVERY_S
        failed: Exception | None = None
        try:
            pools = self._store.pools_of(self._meanings, anew=self._is_incomplete)
        except ParsyncError as error:
            pools = {}
            failed = error
        if len(pools) < len(self._meanings):
            failed = failed or ServerUnreachable(f"a server at {self._store.address} is away")
        channels_by_place: dict[tuple[Any, bool], list[str]] = {}
        for channel, pool in pools.items():
            channels_by_place.setdefault((pool, channel == self._store.keys.tick), []).append(
                channel
            )
        moved = [
            place
            for place, subscription in self._live.items()
            if channels_by_place.get(place) != subscription.channels
        ]
        missed = [words for place in moved for words in self._drop(place)]
        for place in channels_by_place.keys() - self._live.keys():
            within_s = CONNECT_S if self._store.several else None
            try:
                subscription = self._live[place] = _Subscription(
                    place[0], channels_by_place[place], within_s
                )
            except (RedisError, OSError) as error:
                failed = error
                continue
            self._by_socket[subscription.socket.fileno()] = place
            for poll in self._polls(place):
                poll.register(subscription.socket, select.POLLIN)
        self._is_incomplete = failed is not None
        if failed:
            self._follow_s = time.monotonic() + self._backoff.pause_s(failed)
        return missed

    def _polls(self, place: tuple[Any, bool]) -> tuple[select.poll, ...]:
        """Return the polls that wait for the subscription at a place."""
        return (self._all,) if place[1] else (self._all, self._own)

    def _drop(self, place: tuple[Any, bool]) -> list[list[str]]:
        """End a subscription.

        Return the messages that may be missed, as `hear` would return them.
        """
        subscription = self._live.pop(place)
        del self._by_socket[subscription.socket.fileno()]
        for poll in self._polls(place):
            poll.unregister(subscription.socket)
        subscription.close()
        if place[1]:
            return [[TICKS_LOST]]
        meanings = [self._meanings[channel] for channel in subscription.channels]
        return [
            [word, str(number), *(["1", "1"] if word == "freed" else [])]
            for word, number in meanings
        ]

    def hear(self, timeout_s: float, ticks: bool = True) -> list[list[str]]:
        """Return the messages that have come, each as its words.

        Wait up to `timeout_s` for the first. The result has [TICKS_LOST] if ticks were lost, and
        the messages that may have been missed on an own channel that was lost. ticks: wait for
        ticks as well as for own messages.
        """
        messages: list[list[str]] = []
        if time.monotonic() >= self._follow_s and (missed := self._follow()):
            return missed
        if not self._live:
            time.sleep(max(0.0, min(timeout_s, self._follow_s - time.monotonic())))
            return []
        if not ticks and timeout_s > 0:
            self._own.poll(timeout_s * 1000)
            timeout_s = 0.0
        for socket, _ in self._all.poll(max(0.0, timeout_s * 1000)):
            place = self._by_socket[socket]
            try:
                received = self._live[place].receive()
            except (RedisError, OSError) as error:
                messages += self._drop(place)
                self._is_incomplete = True
                self._follow_s = time.monotonic() + self._backoff.pause_s(error)
                continue
            heard = (understand(data, *self._by_name[channel]) for channel, data in received)
            messages += [words for words in heard if words]
            if not self._is_incomplete:
                self._backoff.well()
        return messages

    def close(self) -> None:
        """End all subscriptions."""
        for place in list(self._live):
            self._drop(place)

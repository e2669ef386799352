"""What a scheduler hears over pub/sub, on a connection of its own: ticks, wake-ups, freed slots.

Twenty schedulers hear forty ticks a second each, and a turn of the loop takes hardly longer than redis-py takes to
hand over one message. So the socket is redis-py's, with its address, login and TLS; what comes is read here.
"""

import logging
import re
import select
import ssl
import time
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from ..store.store import Store
from ..store.trouble import Patience

log = logging.getLogger("parsync.scheduler")

_HEARD: Final = re.compile(rb"tick \d{1,18} \d{1,18}|wake \d{1,18}|freed \d{1,9} -?\d{1,18} -?\d{1,18}")
_SOME: Final = 1 << 16


def understand(data: bytes, partitions: int) -> list[str]:
    """The words of a message; none of one that no scheduler or script of ours can have sent: clients may speak here."""
    if not _HEARD.fullmatch(data):
        return []
    words = data.decode().split()
    return [] if words[0] == "freed" and int(words[1]) >= partitions else words


class Ears:
    """A subscription to the ticks and to the scheduler's own channel.

    Nothing that is heard is needed: where that connection fails, the scheduler goes on by its own clock.
    """

    def __init__(self, store: Store, name: str, partitions: int) -> None:
        self._store, self._channels = store, (store.keys.tick, store.keys.own_channel(name))
        self._partitions = partitions
        self._connection: Any = None
        self._socket: Any = None
        self._patience = Patience(log, f"scheduler {name} hears nothing")
        self._again_s = 0.0

    def listen(self) -> None:
        """(Re-)subscribes; where that fails, `hear` tries again."""
        self.close()
        try:
            self._connection = self._store.client.connection_pool.get_connection()
            self._connection.send_command("SUBSCRIBE", *self._channels)
            self._socket = self._connection._get_socket()  # redis-py reads nothing more from it
            self._socket.setblocking(False)
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            self._reader = hiredis.Reader(protocolError=Disconnected, replyError=ResponseError)
        except (RedisError, OSError) as error:
            self._fall_deaf(error)

    def _fall_deaf(self, error: Exception) -> None:
        self.close()
        self._again_s = time.monotonic() + self._patience.pause_s(error)

    def hear(self, timeout_s: float) -> list[list[str]]:
        """The messages that are there, after waiting up to `timeout_s` for the first; each as its words.

        `deaf` if the subscription was lost: what was said since is not known.
        """
        try:
            if self._socket is None:
                time.sleep(max(0.0, min(timeout_s, self._again_s - time.monotonic())))
                if time.monotonic() < self._again_s:
                    return []
                self.listen()
            return self._take_in(timeout_s) if self._socket is not None else []
        except (RedisError, OSError) as error:
            self._fall_deaf(error)
            return [["deaf"]]

    def _take_in(self, timeout_s: float) -> list[list[str]]:
        self._receive()
        found = self._messages()
        if not found and timeout_s > 0 and self._poll.poll(timeout_s * 1000):
            self._receive()
            found = self._messages()
        return found

    def _receive(self) -> None:
        """Feeds the reader with what is there."""
        while True:
            try:
                data = self._socket.recv(_SOME)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise Disconnected("the server closed the connection")
            self._reader.feed(data)

    def _messages(self) -> list[list[str]]:
        found = []
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, ResponseError):
                raise reply
            if reply[0] == b"message":
                words = understand(reply[2], self._partitions)
                found += [words] if words else []
                self._patience.well()
        return found

    def close(self) -> None:
        """Ends the subscription."""
        if self._connection is not None:
            self._connection.disconnect()
            self._store.client.connection_pool.release(self._connection)
        self._connection = self._socket = None

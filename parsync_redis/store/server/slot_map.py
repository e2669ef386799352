"""The map from the hash slots of a Redis Cluster to its primaries. Nothing here does I/O."""

from binascii import crc_hqx
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

HASH_SLOTS: Final = 16384

_KEY_AT: Final = {"EVAL": 3, "EVALSHA": 3, "BLMPOP": 3, "OBJECT": 2, "MEMORY": 2, "XINFO": 2}
"""Commands whose first key is not their first argument, and the position of the key."""

_WITHOUT_KEY: Final = (
    "ACL CLIENT CLUSTER COMMAND CONFIG DBSIZE FLUSHALL INFO PING PUBLISH PUBSUB SCAN SCRIPT TIME"
)


def slot_of(key: str | bytes) -> int:
    """Return the hash slot of a key: of the text in its first braces, if there is any."""
    raw = key.encode() if isinstance(key, str) else bytes(key)
    begin = raw.find(b"{") + 1
    end = raw.find(b"}", begin) if begin else -1
    return _slot(raw[begin:end] if end > begin else raw)


@lru_cache(4096)
def _slot(tag: bytes) -> int:
    return crc_hqx(tag, 0) % HASH_SLOTS


def key_of(words: tuple[Any, ...]) -> str | bytes | None:
    """Return the first key of a plain command, None if the command has no key."""
    name = str(words[0]).upper()
    if name in _WITHOUT_KEY.split():
        return None
    position = _KEY_AT.get(name, 1)
    if position == 3 and int(words[2]) == 0:
        return None
    key: str | bytes = words[position]
    return key


class SlotMap:
    """The primary of each slot as 'HOST:PORT' ('' for none), and all servers of the cluster."""

    def __init__(self) -> None:
        self._owners = [""] * HASH_SLOTS
        self.primaries: list[str] = []
        self.servers: list[str] = []

    def owner(self, slot: int) -> str:
        """Return the address of the primary that has a slot, '' if no primary is known."""
        return self._owners[slot]

    def move(self, slot: int, address: str) -> None:
        """Record that the primary at `address` has this slot now, as another primary said."""
        self._owners[slot] = address
        if address not in self.primaries:
            self.primaries = [*self.primaries, address]

    @classmethod
    def of(cls, ranges: Iterable[Any], host: str) -> "SlotMap":
        """Return the map in a reply to CLUSTER SLOTS.

        host: the server that replied, as it may not name itself. CLUSTER SLOTS names the port that
        this client uses, with TLS or without; CLUSTER SHARDS names both ports.
        """
        slot_map = cls()
        for first, last, *servers in ranges:
            places = [_address(server[0], int(server[1]), host) for server in servers]
            slot_map._owners[first : last + 1] = places[:1] * (last + 1 - first)
            slot_map.primaries += [place for place in places[:1] if place not in slot_map.primaries]
            slot_map.servers += [place for place in places if place not in slot_map.servers]
        return slot_map


def _address(name: bytes | str | None, port: int, host: str) -> str:
    host_named = name.decode() if isinstance(name, bytes) else name or ""
    return f"{host_named if host_named not in ('', '?') else host}:{port}"

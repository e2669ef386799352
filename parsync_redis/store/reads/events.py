"""Read the streams of events of all tags, merged by time: the newest once, or all that come from
now on.

A cluster's streams are in many hash slots, so one XREAD that blocks cannot wait for all of them.
They are polled instead: one request to each server, the same for one server and for several.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ...errors import ServerUnreachable
from ...model.events import MAX_MS_AHEAD, Event, Wanted
from ...model.ids import encode_id
from ..repair.lost_leases import now_ms
from ..server.server_errors import AWAY, is_damage, translate
from ..store import Store
from .views import partitions_of

log = logging.getLogger("parsync.store")

POLL_S: Final = 0.25
"""The pause between two looks of somebody who follows."""

PAGE: Final = 1000
"""Entries that are read of one stream at a time."""

Entry = tuple[bytes, Mapping[bytes, bytes]]


def read_events(store: Store, wanted: Wanted, limit: int) -> list[Event]:
    """Return the newest `limit` events that are wanted, the oldest first.

    Streams whose server is away are left out; the log names them. Raises ServerUnreachable if all
    are.
    """
    until = "+" if wanted.until_ms is None else str(wanted.until_ms)
    page = max(100, min(PAGE, limit))
    ends = dict.fromkeys(_streams(store, wanted), until)
    now = now_ms(store)
    found: dict[str, list[Event]] = {key: [] for key in ends}
    while ends:
        pages = _pages(
            store, [("xrevrange", key, end, wanted.since_ms, page) for key, end in ends.items()]
        )
        further: dict[str, str] = {}
        for key, entries in pages.items():
            found[key] += _wanted(_name(key), entries, wanted, now)
            if len(entries) == page and len(found[key]) < limit:
                further[key] = f"({entries[-1][0].decode()}"
        ends = further
    return sorted(
        (event for some in found.values() for event in some), key=lambda event: event.order
    )[-limit:]


class Follower:
    """Tells the events that come. wanted: which ones."""

    def __init__(self, store: Store, wanted: Wanted) -> None:
        self._store = store
        self._wanted = wanted
        self._last: dict[str, str] = {}
        self._streams: list[str] = []
        self._away: set[str] = set()

    def begin(self, limit: int) -> list[Event]:
        """Return the newest events, as `read_events` does; `poll` goes on behind them."""
        self._streams = _streams(self._store, self._wanted)
        newest = _pages(
            self._store, [("xrevrange", key, "+", "-", 1) for key in self._streams], self._away
        )
        later = f"{now_ms(self._store)}-0"  # for streams whose server is away
        self._last = {_name(key): later for key in self._streams if key not in newest}
        self._last |= {
            _name(key): entries[0][0].decode() for key, entries in newest.items() if entries
        }
        found = read_events(self._store, self._wanted, limit) if limit else []
        for event in found:  # it may have come since
            self._last[event.stream] = max(
                event.entry, self._last.get(event.stream, "0-0"), key=_order
            )
        return found

    def poll(self) -> list[Event]:
        """Return the events that have come since, by time; at most PAGE of each stream.

        Raises ServerUnreachable.
        """
        now = now_ms(self._store)
        with suppress(ServerUnreachable):  # then there are as many partitions as before
            self._streams = _streams(self._store, self._wanted)
        starts: dict[str, str] = {}
        for key in self._streams:
            last = self._last.get(_name(key), "0-0")
            # the clock was set back, and the stream begins anew
            if _order(last)[0] > now + MAX_MS_AHEAD:
                last = f"{now}-0"
            starts[key] = f"({last}"
        pages = _pages(
            self._store,
            [("xrange", key, start, "+", PAGE) for key, start in starts.items()],
            self._away,
        )
        found: list[Event] = []
        for key, entries in pages.items():
            name = _name(key)
            for entry, _ in entries:
                # one of a later year would hide those that come
                if int(entry.partition(b"-")[0]) <= now + MAX_MS_AHEAD:
                    self._last[name] = entry.decode()
            found += _wanted(name, entries, self._wanted, now)
        return sorted(found, key=lambda event: event.order)


def _streams(store: Store, wanted: Wanted) -> list[str]:
    """Return the keys of the streams that may have what is wanted."""
    partitions = partitions_of(store.config())
    if wanted.task:
        return [
            store.keys.shared("events"),
            store.keys.in_shard_of("events", encode_id(wanted.task)),
        ]
    return store.keys.events(partitions)


def _order(entry: str) -> tuple[int, int]:
    """Return what entries of one stream are ordered by."""
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


def _name(key: str) -> str:
    """Return the name of a stream: q0, p3, or c, the cluster's own."""
    tag = key[key.index("{") + 1 : key.index("}")]
    return tag.rpartition(":")[2] if ":" in tag else "c"


def _wanted(stream: str, entries: Sequence[Entry], wanted: Wanted, now: int) -> list[Event]:
    read = (Event.read(stream, entry, fields, now) for entry, fields in entries)
    return [event for event in read if event is not None and wanted.has(event)]


def _pages(
    store: Store, commands: Sequence[tuple[Any, ...]], told: set[str] | None = None
) -> dict[str, Sequence[Entry]]:
    """Return the entries of each stream whose server answers; none of one that has another type.

    The log names the others, but not those in `told`, where it notes them.
    """
    found: dict[str, Sequence[Entry]] = {}
    trouble: dict[str, Exception] = {}
    for (_, key, *_), reply in zip(commands, store.pipe_each(commands), strict=True):
        if isinstance(reply, AWAY):
            trouble[key] = reply
        elif isinstance(reply, Exception) and not is_damage(reply):
            raise translate(store.address, reply)
        else:
            found[key] = [] if isinstance(reply, Exception) else reply
    told = set() if told is None else told
    told -= found.keys()
    for key, error in trouble.items():
        if not found:
            raise error
        if key not in told:
            log.warning("%s is left out: %s", key, error)
            told.add(key)
    return found

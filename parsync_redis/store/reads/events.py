"""Read the streams of events, merged by time: the newest events once, or new events as they come.

A cluster's streams are in many hash slots, so one blocking XREAD cannot wait for all streams. A
reader polls the streams instead, with one request to each server. The code is the same for one
server and for several.
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

FOLLOW_POLL_S: Final = 0.25
"""Seconds between two polls of a reader that follows the events."""

ENTRIES_PER_READ: Final = 1000
"""Entries of one stream that are read at a time."""

StreamEntry = tuple[bytes, Mapping[bytes, bytes]]


def read_events(store: Store, query: Wanted, limit: int) -> list[Event]:
    """Return the newest `limit` events that `query` selects, the oldest first.

    Streams whose server is away are left out, and the log names them. Raises ServerUnreachable if
    all are away.
    """
    until = "+" if query.until_ms is None else str(query.until_ms)
    page = max(100, min(ENTRIES_PER_READ, limit))
    ends = dict.fromkeys(_streams(store, query), until)
    now = now_ms(store)
    events_by_stream: dict[str, list[Event]] = {key: [] for key in ends}
    while ends:
        pages = _pages(
            store, [("xrevrange", key, end, query.since_ms, page) for key, end in ends.items()]
        )
        further: dict[str, str] = {}
        for key, entries in pages.items():
            events_by_stream[key] += _select(_name(key), entries, query, now)
            if len(entries) == page and len(events_by_stream[key]) < limit:
                further[key] = f"({entries[-1][0].decode()}"
        ends = further
    return sorted(
        (event for events in events_by_stream.values() for event in events),
        key=lambda event: event.order,
    )[-limit:]


class Follower:
    """Follows the events. wanted: selects the events."""

    def __init__(self, store: Store, query: Wanted) -> None:
        self._store = store
        self._query = query
        self._last: dict[str, str] = {}
        self._streams: list[str] = []
        self._away: set[str] = set()

    def begin(self, limit: int) -> list[Event]:
        """Return the newest `limit` events, as `read_events` does; `poll` goes on behind them."""
        self._streams = _streams(self._store, self._query)
        newest = _pages(
            self._store, [("xrevrange", key, "+", "-", 1) for key in self._streams], self._away
        )
        later = f"{now_ms(self._store)}-0"  # the start for streams whose server is away
        self._last = {_name(key): later for key in self._streams if key not in newest}
        self._last |= {
            _name(key): entries[0][0].decode() for key, entries in newest.items() if entries
        }
        newest_events = read_events(self._store, self._query, limit) if limit else []
        for event in newest_events:  # An event may have come since `newest` was read.
            self._last[event.stream] = max(
                event.entry, self._last.get(event.stream, "0-0"), key=_order
            )
        return newest_events

    def poll(self) -> list[Event]:
        """Return the events that have come since the last call, by time.

        At most ENTRIES_PER_READ entries of each stream are read. Raises ServerUnreachable.
        """
        now = now_ms(self._store)
        with suppress(ServerUnreachable):  # then the streams stay as they are
            self._streams = _streams(self._store, self._query)
        starts: dict[str, str] = {}
        for key in self._streams:
            last = self._last.get(_name(key), "0-0")
            # Such a `last` means that the clock was set back and the stream began anew.
            if _order(last)[0] > now + MAX_MS_AHEAD:
                last = f"{now}-0"
            starts[key] = f"({last}"
        pages = _pages(
            self._store,
            [("xrange", key, start, "+", ENTRIES_PER_READ) for key, start in starts.items()],
            self._away,
        )
        events: list[Event] = []
        for key, entries in pages.items():
            name = _name(key)
            for entry, _ in entries:
                # An entry from the far future would hide the entries that come.
                if int(entry.partition(b"-")[0]) <= now + MAX_MS_AHEAD:
                    self._last[name] = entry.decode()
            events += _select(name, entries, self._query, now)
        return sorted(events, key=lambda event: event.order)


def _streams(store: Store, query: Wanted) -> list[str]:
    """Return the keys of the streams that may have selected events."""
    partitions = partitions_of(store.config())
    if query.task:
        return [
            store.keys.shared("events"),
            store.keys.in_shard_of("events", encode_id(query.task)),
        ]
    return store.keys.events(partitions)


def _order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry within its stream: (ms, number)."""
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


def _name(key: str) -> str:
    """Return the name of a stream: q0 for a shard, p3 for a partition, c for the cluster."""
    tag = key[key.index("{") + 1 : key.index("}")]
    return tag.rpartition(":")[2] if ":" in tag else "c"


def _select(stream: str, entries: Sequence[StreamEntry], query: Wanted, now: int) -> list[Event]:
    """Return the events of a stream's entries that `query` selects."""
    read = (Event.read(stream, entry, fields, now) for entry, fields in entries)
    return [event for event in read if event is not None and query.has(event)]


def _pages(
    store: Store, commands: Sequence[tuple[Any, ...]], logged: set[str] | None = None
) -> dict[str, Sequence[StreamEntry]]:
    """Return the entries of each stream whose server answers; [] for a stream of another type.

    The log names each stream that is left out once: `logged` has the streams that it named before.
    """
    pages: dict[str, Sequence[StreamEntry]] = {}
    unreachable: dict[str, Exception] = {}
    for (_, key, *_), reply in zip(commands, store.pipe_each(commands), strict=True):
        if isinstance(reply, AWAY):
            unreachable[key] = reply
        elif isinstance(reply, Exception) and not is_damage(reply):
            raise translate(store.address, reply)
        else:
            pages[key] = [] if isinstance(reply, Exception) else reply
    logged = set() if logged is None else logged
    logged -= pages.keys()
    for key, error in unreachable.items():
        if not pages:
            raise error
        if key not in logged:
            log.warning("%s is left out: %s", key, error)
            logged.add(key)
    return pages

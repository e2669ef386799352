"""The thread that follows the events of the cluster, and the viewers that get the events."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from redis.exceptions import RedisError
from starlette.exceptions import HTTPException

from ..client import ParsyncClient
from ..errors import ParsyncError
from ..model.events import Event, Wanted
from ..store.reads.events import FOLLOW_POLL_S, Follower
from .shares import OWNER, Shares

log = logging.getLogger("parsync.serve")

MOST_RECENT_EVENTS: Final = 2000
"""Maximum number of events that are kept for viewers who come, or come back."""

MOST_VIEWERS: Final = 200
"""Maximum number of viewers at a time; one address gets at most half of the places."""

MOST_EVENTS_BEHIND: Final = 1000
"""Maximum number of events that wait for a viewer; beyond, the viewer is dropped."""

KEEP_ALIVE_S: Final = 15.0
"""Seconds without an event after which a stream shows that it lives."""

SLACK_MS: Final = 2000
"""Events of several servers may come out of order by so much time."""

TRIES_PER_WARNING: Final = 40
"""While reading fails, the log warns once in so many tries."""


class Viewer:
    """The events that wait for one viewer. Used in the event loop only.

    event_filter: what the viewer wants to see.
    first: the events that the viewer gets first.
    from_number: the number of the first event to come.
    """

    def __init__(self, event_filter: Wanted, first: Sequence[Event], from_number: int) -> None:
        self._event_filter = event_filter
        self._from = from_number
        self._waiting = deque(event for event in first if event_filter.has(event))
        self._changed = asyncio.Event()
        self.over = False

    def tell(self, number: int, events: Sequence[Event]) -> None:
        """Let events wait for the viewer; drop a viewer who does not read.

        number: the number of the first of these events.
        """
        new = events[max(0, self._from - number) :]
        self._waiting.extend(event for event in new if self._event_filter.has(event))
        if len(self._waiting) > MOST_EVENTS_BEHIND:
            self.end()
        self._changed.set()

    def end(self) -> None:
        """Let the stream of the viewer end, without the events that wait."""
        self.over = True
        self._waiting.clear()
        self._changed.set()

    async def events(self) -> AsyncIterator[Event | None]:
        """Yield the events as they come; yield None every KEEP_ALIVE_S without an event."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self.over:
                return
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), KEEP_ALIVE_S)
            except TimeoutError:
                yield None


def events_after(events: Sequence[Event], id: str) -> Sequence[Event]:
    """Return the events after the event with this id.

    If that event is not there, return the events of its time and later. '' stands for all events.
    """
    position = next((index for index, event in enumerate(events) if event.id == id), None)
    if position is not None:
        return events[position + 1 :]
    ms = id.partition("/")[2].partition("-")[0]
    since_ms = int(ms) - SLACK_MS if ms.isascii() and ms.isdecimal() and len(ms) < 16 else 0
    return [event for event in events if event.at_ms >= since_ms]


@dataclass(frozen=True, slots=True)
class RecentEvents:
    """The newest events, in the order in which they came. end: the number of all events so far."""

    end: int = 0
    events: Sequence[Event] = ()


class EventFeed(threading.Thread):
    """Follows the events until stopped, with one reader for all viewers. Survives outages.

    recent: replaced whole, so any thread may read it.
    failed: the number of tasks that failed since the feed began.
    """

    def __init__(self, client: ParsyncClient) -> None:
        super().__init__(name="events", daemon=True)
        self._client = client
        self._follower: Follower | None = None
        self._stop_asked = threading.Event()
        self._viewers: dict[Viewer, str] = {}
        self._shares = Shares(MOST_VIEWERS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fails = 0
        self.recent = RecentEvents()
        self.failed = 0

    # -- the thread --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()
        if self.ident is not None:
            self.join(timeout=10)

    def run(self) -> None:
        """Read new events four times a second."""
        while not self._stop_asked.wait(FOLLOW_POLL_S):
            self.look()

    def look(self) -> None:
        """Read new events for the viewers. After a failure the next call reads the events."""
        try:
            events = self._client.requests.do(self._read)
        except (ParsyncError, RedisError, OSError) as error:
            if self._fails % TRIES_PER_WARNING == 0:
                log.warning("events cannot be read: %s", error)
            self._fails += 1
            return
        self._fails = 0
        if events:
            number = self.recent.end
            self.recent = RecentEvents(
                number + len(events), [*self.recent.events, *events][-MOST_RECENT_EVENTS:]
            )
            if (loop := self._loop) is not None:
                with suppress(RuntimeError):  # the loop is closed: the process stops
                    loop.call_soon_threadsafe(self._tell, number, events)

    def _read(self) -> list[Event]:
        if self._follower is None:
            follower = Follower(self._client.store, Wanted())
            events = follower.begin(MOST_RECENT_EVENTS)
            self._follower = follower
            return events
        events = self._follower.poll()
        self.failed += sum(event.event == "failed" for event in events)
        return events

    # -- the event loop ----------------------------------------------------------------------------

    def _tell(self, number: int, events: Sequence[Event]) -> None:
        for viewer in self._viewers:
            viewer.tell(number, events)

    def enter(self, event_filter: Wanted, after: str | None) -> Viewer:
        """Return a viewer of the events to come. `leave` must follow.

        after: the id of an event; the viewer gets the events after it first (see `events_after`).
        None: only events to come.

        Raises HTTPException 503 if there are too many viewers.
        """
        owner = OWNER.get()
        if not self._shares.take(owner):
            raise HTTPException(
                503, "too many viewers follow the events already", {"Retry-After": "10"}
            )
        self._loop = asyncio.get_running_loop()
        recent = self.recent
        viewer = Viewer(
            event_filter, () if after is None else events_after(recent.events, after), recent.end
        )
        self._viewers[viewer] = owner
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._shares.give_back(self._viewers.pop(viewer))

    def end_all(self) -> None:
        """End the streams of all viewers, because the process stops."""
        for viewer in self._viewers:
            viewer.end()

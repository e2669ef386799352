"""The thread that follows the events of the cluster, and the viewers to whom it hands them."""

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
from .shares import ADDRESS, Shares

log = logging.getLogger("parsync.serve")

KEPT: Final = 2000
"""Events that are kept for viewers who come, or come back."""

MOST_VIEWERS: Final = 200
"""Viewers at a time; one address gets half of the places at most."""

MOST_BEHIND: Final = 1000
"""Events that wait for a viewer; one who is further behind is dropped."""

KEEP_ALIVE_S: Final = 15.0
SLACK_MS: Final = 2000
"""Events of several servers may come in another order than that of their times."""

SAY_EVERY: Final = 40
"""While reading fails, the log says so once in so many tries."""


class Viewer:
    """Somebody who looks on: the events that wait for him. Used in the event loop only."""

    def __init__(self, wanted: Wanted, first: Sequence[Event], from_number: int) -> None:
        self._wanted = wanted
        self._from = from_number
        self._waiting = deque(event for event in first if wanted.has(event))
        self._came = asyncio.Event()
        self.over = False

    def tell(self, number: int, events: Sequence[Event]) -> None:
        """Let events wait for him, or drop him if he does not read.

        number: that of the first of them.
        """
        new = events[max(0, self._from - number) :]
        self._waiting.extend(event for event in new if self._wanted.has(event))
        if len(self._waiting) > MOST_BEHIND:
            self.end()
        self._came.set()

    def end(self) -> None:
        """Let his stream end, without what waits."""
        self.over = True
        self._waiting.clear()
        self._came.set()

    async def events(self) -> AsyncIterator[Event | None]:
        """Give the events as they come, and None from time to time to show that the
        stream lives.
        """
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self.over:
                return
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), KEEP_ALIVE_S)
            except TimeoutError:
                yield None


def behind(events: Sequence[Event], id: str) -> Sequence[Event]:
    """Return the events behind the one with this id; if it is not there, those of its time and
    later; all behind ''.
    """
    at = next((at for at, event in enumerate(events) if event.id == id), None)
    if at is not None:
        return events[at + 1 :]
    ms = id.partition("/")[2].partition("-")[0]
    since_ms = int(ms) - SLACK_MS if ms.isascii() and ms.isdecimal() and len(ms) < 16 else 0
    return [event for event in events if event.at_ms >= since_ms]


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest events, in the order in which they came. end: how many there have been."""

    end: int = 0
    events: Sequence[Event] = ()


class EventFeed(threading.Thread):
    """Follows the events until stopped: one reader, whatever the number of viewers.

    It survives outages.

    kept: replaced whole, so that any thread may read it. failed: tasks that failed since it began.
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
        self.kept = Kept()
        self.failed = 0

    # -- the thread --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()
        if self.ident is not None:
            self.join(timeout=10)

    def run(self) -> None:
        """Look four times a second."""
        while not self._stop_asked.wait(FOLLOW_POLL_S):
            self.look()

    def look(self) -> None:
        """Read what has come, and hand it to the viewers. If that fails, the next look reads it."""
        try:
            found = self._client.requests.do(self._read)
        except (ParsyncError, RedisError, OSError) as error:
            if self._fails % SAY_EVERY == 0:
                log.warning("events cannot be read: %s", error)
            self._fails += 1
            return
        self._fails = 0
        if found:
            number = self.kept.end
            self.kept = Kept(number + len(found), [*self.kept.events, *found][-KEPT:])
            if (loop := self._loop) is not None:
                with suppress(RuntimeError):  # it is closed: the process stops
                    loop.call_soon_threadsafe(self._tell, number, found)

    def _read(self) -> list[Event]:
        if self._follower is None:
            follower = Follower(self._client.store, Wanted())
            found = follower.begin(KEPT)
            self._follower = follower
            return found
        events = self._follower.poll()
        self.failed += sum(event.event == "failed" for event in events)
        return events

    # -- the event loop ----------------------------------------------------------------------------

    def _tell(self, number: int, events: Sequence[Event]) -> None:
        for viewer in self._viewers:
            viewer.tell(number, events)

    def enter(self, wanted: Wanted, after: str | None) -> Viewer:
        """Return a viewer of what comes, or of all that came after an event; leave() is to follow.

        after: the id of an event, None for now. See `behind`.
        """
        owner = ADDRESS.get()
        if not self._shares.take(owner):
            raise HTTPException(
                503, "too many viewers follow the events already", {"Retry-After": "10"}
            )
        self._loop = asyncio.get_running_loop()
        kept = self.kept
        viewer = Viewer(wanted, () if after is None else behind(kept.events, after), kept.end)
        self._viewers[viewer] = owner
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._shares.give_back(self._viewers.pop(viewer))

    def end_all(self) -> None:
        """Let the streams of all viewers end: the process stops."""
        for viewer in self._viewers:
            viewer.end()

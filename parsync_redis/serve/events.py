"""Events over HTTP: a list, and a stream of server-sent events.

The list is asked of Redis. The stream comes from memory.
"""

from collections.abc import AsyncIterator
from datetime import UTC
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..cli.common import plain
from ..client import ParsyncClient
from ..model.events import EVENT_IN_WORDS, Event, Wanted
from ..model.human import read_moment
from ..store.repair.lost_leases import now_ms
from . import answers
from .asker import Asker
from .feed import EventFeed, Viewer
from .operation import Operation
from .query import LIMIT, Param, Query
from .replies import BEGIN, KEEP_ALIVE, MEDIA_TYPE, STREAM_HEADERS, Stream, encode, reply

SINCE: Final = Param(
    "since", "10m", "Only later events: 10m (ago), 14:02 (UTC) or 2026-11-25T14:02."
)
UNTIL: Final = Param("until", "1m", "Only earlier events, written like `since`.")
AFTER: Final = Param(
    "after", "p0/1795631558018-0", "The id of the event behind which the stream begins."
)
FILTER_PARAMS: Final = (
    Param("task", "a81f", "Only events of this task."),
    Param("node", "n1", "Only events of this node."),
    Param("event", "failed", "Only such events.", words=tuple(EVENT_IN_WORDS), repeated=True),
)


class EventsApi:
    """The routes of events."""

    def __init__(self, feed: EventFeed, asker: Asker) -> None:
        self._feed = feed
        self._asker = asker

    def routes(self) -> list[Route]:
        """Return the routes."""
        list_answers: dict[int, Any] = {
            200: answers.EventList,
            400: answers.Error,
            503: answers.Error,
        }
        return [
            Route("/events", self.stream),
            Operation(
                "/events",
                self.list,
                list_answers,
                (SINCE, UNTIL, *FILTER_PARAMS[:2], LIMIT, *FILTER_PARAMS[2:]),
            ),
        ]

    async def list(self, request: Request, query: Query) -> Response:
        """List the newest events, the oldest first.

        ?since=10m&until=...&task=ID&node=NODE&event=failed
        """
        since = query.text("since")
        until = query.text("until")
        limit = query.limit()
        event_filter = _event_filter(query)
        key = ("events", since, until, event_filter, limit)

        def look(client: ParsyncClient) -> bytes:
            client.check()
            now = now_ms(client.store)
            since_ms = read_moment("since", since, now, UTC) if since else None
            until_ms = read_moment("until", until, now, UTC, since_ms) if until else None
            events = client.events(
                since_ms=since_ms,
                until_ms=until_ms,
                task=event_filter.task or None,
                node=event_filter.node or None,
                events=event_filter.events,
                limit=limit,
            )
            return encode(
                {"limit": limit, "now_ms": now, "items": [as_json(event) for event in events]}
            )

        return reply(await self._asker.ask(key, look))

    async def stream(self, request: Request) -> Response:
        """Send events as they come, after the event that Last-Event-ID or ?after= names."""
        query = Query(request, (*FILTER_PARAMS, AFTER))
        after = query.text("after") if "after" in request.query_params else None
        event_filter = _event_filter(query)
        if request.method == "HEAD":  # a HEAD request follows no events
            return StreamingResponse((), headers=STREAM_HEADERS, media_type=MEDIA_TYPE)
        viewer = self._feed.enter(event_filter, request.headers.get("last-event-id", after))
        return Stream(_chunks(viewer), lambda: self._feed.leave(viewer))


async def _chunks(viewer: Viewer) -> AsyncIterator[bytes]:
    yield BEGIN
    async for event in viewer.events():
        yield KEEP_ALIVE if event is None else chunk_of(event)


def chunk_of(event: Event) -> bytes:
    """Return an event as a message of a stream. JSON has no line breaks of its own."""
    return b"id: %s\ndata: %s\n\n" % (event.id.encode(), encode(as_json(event)))


def as_json(event: Event) -> dict[str, Any]:
    """Return the fields of an event, and its sentence for people, for JSON."""
    fields: dict[str, Any] = plain(event)
    return {**fields, "text": event.text}


def _event_filter(query: Query) -> Wanted:
    """Read the filters of a query. Raises InvalidInput."""
    return Wanted.of(
        None, None, query.text("task") or None, query.text("node") or None, query.all("event")
    )

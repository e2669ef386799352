"""Events over HTTP: a list, asked of Redis, and a stream of server-sent events, from memory."""

from collections.abc import AsyncIterator
from datetime import UTC
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.common import plain
from ..client import ParsyncClient
from ..model.events import Event, Wanted
from ..model.moments import read_moment
from ..store.places import now_ms
from .asker import Asker
from .feed import EventFeed, Viewer
from .query import Query
from .replies import encode, reply
from .stream import BEGIN, KEEP_ALIVE, Stream


class Events:
    """The paths of events."""

    def __init__(self, feed: EventFeed, asker: Asker) -> None:
        self._feed, self._asker = feed, asker

    def routes(self, root: str) -> list[Route]:
        """Return the routes."""
        return [Route("/events", self.stream), Route(f"{root}/events", self.list)]

    async def list(self, request: Request) -> Response:
        """List the newest events, the oldest first: ?since=10m&until=...&task=ID&node=NODE&event=failed."""
        query = Query(request, ("since", "until", "task", "node", "limit"), ("event",))
        since, until, limit = query.text("since"), query.text("until"), query.limit()
        wanted = _wanted(query)
        key = ("events", since, until, wanted, limit)

        def look(client: ParsyncClient) -> bytes:
            client.check()
            now = now_ms(client.store)
            since_ms = read_moment("since", since, now, UTC) if since else None
            until_ms = read_moment("until", until, now, UTC, since_ms) if until else None
            found = client.events(
                since_ms=since_ms,
                until_ms=until_ms,
                task=wanted.task or None,
                node=wanted.node or None,
                events=wanted.events,
                limit=limit,
            )
            return encode({"limit": limit, "now_ms": now, "items": [as_json(event) for event in found]})

        return reply(await self._asker.ask(key, look))

    async def stream(self, request: Request) -> Response:
        """Send events as they come, behind the one that the header Last-Event-ID or ?after= names."""
        query = Query(request, ("task", "node", "after"), ("event",))
        after = query.text("after") if "after" in request.query_params else None
        viewer = self._feed.enter(_wanted(query), request.headers.get("last-event-id", after))
        return Stream(_chunks(viewer), lambda: self._feed.leave(viewer))


async def _chunks(viewer: Viewer) -> AsyncIterator[bytes]:
    yield BEGIN
    async for event in viewer.events():
        yield KEEP_ALIVE if event is None else chunk_of(event)


def chunk_of(event: Event) -> bytes:
    """Return an event as a message of a stream: JSON has no line breaks of its own."""
    return b"id: %s\ndata: %s\n\n" % (event.id.encode(), encode(as_json(event)))


def as_json(event: Event) -> dict[str, Any]:
    """Return what JSON has of an event: its fields, and the sentence for people."""
    found: dict[str, Any] = plain(event)
    return {**found, "text": event.text}


def _wanted(query: Query) -> Wanted:
    """Read the filters; raises InvalidInput."""
    return Wanted.of(None, None, query.text("task") or None, query.text("node") or None, query.all("event"))

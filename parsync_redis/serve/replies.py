"""The replies of the service: JSON, errors as JSON, and streams of server-sent events."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ..cli.common import plain
from ..errors import InvalidInput, ParsyncError

log = logging.getLogger("parsync.serve")

JSON_MEDIA_TYPE: Final = "application/json"

SLOW_S: Final = 10.0
"""Seconds after which a viewer who takes nothing is dropped."""

STREAM_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}
MEDIA_TYPE: Final = "text/event-stream"
BEGIN: Final = b"retry: 2000\n\n"
KEEP_ALIVE: Final = b": nothing happened\n\n"


def encode(value: Any) -> bytes:
    """Return dataclasses, mappings and sequences as JSON."""
    return json.dumps(value, default=plain, separators=(",", ":")).encode()


def reply(value: Any, status: int = 200) -> Response:
    """Reply with JSON that no cache keeps."""
    body = value if isinstance(value, bytes) else encode(value)
    return Response(body, status, {"Cache-Control": "no-store"}, media_type=JSON_MEDIA_TYPE)


def refuse(status: int, error: str) -> Response:
    """Reply with an error: its status, and one sentence."""
    return reply({"error": error, "status": status}, status)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Reply to an unknown path or a wrong method."""
    assert isinstance(error, HTTPException)
    sentences = {
        "Not Found": f"there is no {request.scope['path']}: see /api/v1",
        "Method Not Allowed": _not_allowed(request, error),
    }
    answer = refuse(error.status_code, sentences.get(error.detail, error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _not_allowed(request: Request, error: HTTPException) -> str:
    allowed = sorted({*(error.headers or {}).get("Allow", "").split(", ")} - {"HEAD"})
    return (
        f"{request.method} is not allowed: only {' and '.join(allowed)} "
        f"{'are' if len(allowed) > 1 else 'is'}"
    )


async def on_parsync_error(request: Request, error: Exception) -> Response:
    """Reply with 400 to wrong input, and with 503 to other errors of parsync.

    Such an error is a Redis server that does not answer or does not allow the request.
    """
    assert isinstance(error, ParsyncError)
    return refuse(400 if isinstance(error, InvalidInput) else 503, str(error))


async def on_bug(request: Request, error: Exception) -> Response:
    """Reply to an unexpected error with 500. The log has the error."""
    return refuse(500, f"unexpected: {type(error).__name__}; see the log of parsync serve")


class Stream(StreamingResponse):
    """The stream of one viewer.

    leave: forgets the viewer; it is called however the stream ends.
    """

    def __init__(self, chunks: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(chunks, headers=STREAM_HEADERS, media_type=MEDIA_TYPE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and forget the viewer at the end."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()

    async def stream_response(self, send: Send) -> None:
        """Send the chunks, and drop a viewer who takes nothing."""

        async def in_time(message: Message) -> None:
            async with asyncio.timeout(SLOW_S):
                await send(message)

        try:
            await super().stream_response(in_time)
        except TimeoutError:
            log.info("a viewer took nothing for %.0f s, and is dropped", SLOW_S)

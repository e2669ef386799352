"""A stream of server-sent events to one viewer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger("parsync.serve")

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

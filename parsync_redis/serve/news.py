"""Lets the streams of pages wait for the next survey."""

import asyncio
from contextlib import suppress


class News:
    """Says that there is a new survey.

    number: how many there have been. over: the process stops. `tell` is for any thread, the rest
    for the event loop.
    """

    def __init__(self) -> None:
        self.number = 0
        self.over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coming = asyncio.Event()

    def tell(self) -> None:
        """Say that there is one."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # it is closed: the process stops
                loop.call_soon_threadsafe(self._ring)

    def end(self) -> None:
        """Let all streams end: the process stops."""
        self.over = True
        self._ring()

    def _ring(self) -> None:
        self.number += 1
        came = self._coming
        self._coming = asyncio.Event()
        came.set()

    async def after(self, number: int, most_s: float) -> None:
        """Wait until there have been more than `number`, at most so long."""
        self._loop = asyncio.get_running_loop()
        if self.number == number:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._coming.wait()

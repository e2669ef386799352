"""The announcement of new surveys, for which the streams of pages wait."""

import asyncio
from contextlib import suppress


class SurveyAnnouncer:
    """Announces new surveys.

    number: how many surveys were announced. over: whether the process stops. Any thread may call
    `tell`; only the event loop may call the other methods.
    """

    def __init__(self) -> None:
        self.number = 0
        self.over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coming = asyncio.Event()

    def tell(self) -> None:
        """Announce a new survey."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop is closed: the process stops
                loop.call_soon_threadsafe(self._ring)

    def end(self) -> None:
        """Let all streams end, because the process stops."""
        self.over = True
        self._ring()

    def _ring(self) -> None:
        self.number += 1
        current = self._coming
        self._coming = asyncio.Event()
        current.set()

    async def after(self, number: int, most_s: float) -> None:
        """Wait for a survey after the survey `number`, for at most `most_s` seconds."""
        self._loop = asyncio.get_running_loop()
        if self.number == number:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._coming.wait()

"""One thread that changes the cluster for submitters and operators, one request at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")

MOST: Final = 100
"""Requests that wait for the thread; more are told to come again."""


class Writer:
    """Does one thing after the other. Call it from the event loop only."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._waiting = 0

    async def do(self, work: Callable[[], T]) -> T:
        """Do it and return what it returns.

        It is done even if whoever asked has gone. Raises what it raises.
        """
        if self._waiting >= MOST:
            raise HTTPException(
                503, "too many requests at a time: come again in a second", {"Retry-After": "1"}
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread, after what it has begun; what waits is not done."""
        self._thread.shutdown(cancel_futures=True)

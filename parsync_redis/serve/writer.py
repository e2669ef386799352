"""The thread that changes the cluster for submitters and operators, one request at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")

MOST_WAITING_REQUESTS: Final = 100
"""Maximum number of requests that wait for the thread; further requests get 503."""


class Writer:
    """Does one request after the other. Call its methods only from the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._waiting = 0

    async def do(self, work: Callable[[], T]) -> T:
        """Do the work, and return what the work returns.

        The work is done even if the client has gone. Raises what the work raises, and HTTPException
        503 if too many requests wait.
        """
        if self._waiting >= MOST_WAITING_REQUESTS:
            raise HTTPException(
                503, "too many requests at a time: come again in a second", {"Retry-After": "1"}
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread after the work that it has begun. Waiting work is not done."""
        self._thread.shutdown(cancel_futures=True)

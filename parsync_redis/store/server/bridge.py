"""Call code that waits for a server from an event loop, without a thread: the code runs in a
greenlet of its own.

The store is written once, as functions that wait for replies. In an event loop `call` runs such a
function in a greenlet. Where the function waits, `wait` switches to the event loop, which awaits
the reply and switches back. So the event loop never blocks, and a cancelled call gets the
CancelledError at the place where it waits.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from ...errors import InvalidInput

try:
    from greenlet import getcurrent, greenlet
except ImportError:
    raise InvalidInput(
        "AsyncParsyncClient needs greenlet: pip install 'parsync-redis[asyncio]'"
    ) from None

P = ParamSpec("P")
T = TypeVar("T")


async def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a function returns that may `wait`, or raise what it raises."""
    started = greenlet(function)  # its parent is the greenlet in which the event loop runs
    started.gr_context = getcurrent().gr_context  # it sees the context variables of its caller
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    result: Any = started.switch(*args, **kwargs)
    while not started.dead:
        try:
            reply = await result
            if (
                task.cancelling() > cancels
            ):  # asyncio.wait_for of Python 3.11, in redis-py, may swallow a CancelledError
                raise asyncio.CancelledError
        except BaseException:  # also CancelledError: the function cleans up, and raises it
            cancels = task.cancelling()  # it is told once: to clean up may take further waits
            result = started.throw(*sys.exc_info())
        else:
            result = started.switch(reply)
    found: T = result
    return found


def wait(awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable, while the event loop goes on.

    Only a function inside `call` may do this.
    """
    loop = getcurrent().parent
    assert loop is not None, "only code inside `call` may wait"
    found: T = loop.switch(awaitable)
    return found


def sleep(seconds: float) -> None:
    """Sleep as `time.sleep` does; the event loop goes on meanwhile."""
    wait(asyncio.sleep(seconds))

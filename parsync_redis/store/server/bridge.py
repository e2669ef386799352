"""Run code that waits for a server inside an event loop, without a thread.

The store is written once, as functions that wait for replies. In an event loop, `call` runs such a
function in a greenlet. Where the function waits, `wait` switches to the event loop. The event loop
awaits the reply and switches back. So the event loop never blocks. A cancelled call gets the
CancelledError at the place where the call waits.
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
    """Run a function that may `wait`; return what the function returns, or raise what it raises."""
    running = greenlet(function)  # Its parent is the greenlet of the event loop.
    running.gr_context = getcurrent().gr_context  # the caller's context variables
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    awaited: Any = running.switch(*args, **kwargs)
    while not running.dead:
        try:
            reply = await awaited
            # redis-py uses asyncio.wait_for, which may swallow a CancelledError in Python 3.11.
            if task.cancelling() > cancels:
                raise asyncio.CancelledError
        except BaseException:  # also CancelledError: the function cleans up, and raises it
            cancels = task.cancelling()  # The function gets it once: a clean-up may wait again.
            awaited = running.throw(*sys.exc_info())
        else:
            awaited = running.switch(reply)
    returned: T = awaited
    return returned


def wait(awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable, while the event loop goes on.

    Only a function that `call` runs may call `wait`.
    """
    loop = getcurrent().parent
    assert loop is not None, "only code inside `call` may wait"
    reply: T = loop.switch(awaitable)
    return reply


def sleep(seconds: float) -> None:
    """Sleep as `time.sleep` does, while the event loop goes on."""
    wait(asyncio.sleep(seconds))

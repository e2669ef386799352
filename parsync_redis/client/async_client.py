"""AsyncParsyncClient: what ParsyncClient does, for an event loop.

ParsyncClient's own code does the work, inside `store/server/bridge.py`. So both clients have one
logic, and tests/unit checks that both have the same methods with the same arguments.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import update_wrapper
from importlib import import_module
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from ..errors import InvalidInput
from ..inspect import explanation, outlook, tenancy, waiting
from ..model.events import Event
from ..settings import Settings
from ..store.reads import events as stored_events
from ..store.server.bridge import call
from ..store.server.loop_client import ON_LOOP
from ..submission import make_submission
from .client import ParsyncClient
from .requests import CLIENT_RETRY_FOR_S

P = ParamSpec("P")
T = TypeVar("T")


EARLY = (explanation, outlook, tenancy, waiting, stored_events)
"""The modules that ParsyncClient imports on first use, which would block the event loop."""


RANKED_NODES: Final = "parsync_redis.placement.ranked_nodes"
"""The module that explanations import on first use, because numpy is slow to import."""

CLIENT_VERBS: Final = (
    "submit",
    "cancel",
    "read_tasks",
    "purge",
    "revive",
    "set_node",
    "set_policy",
    "write_policy",
)
"""The scripts that the methods of a client call."""


class _Inner(ParsyncClient):
    """A ParsyncClient for an event loop: each method runs inside `bridge.call`."""

    _kit = ON_LOOP

    def __init__(self, settings: Settings | None, retry_for_s: float) -> None:
        super().__init__(settings, retry_for_s)
        # now: files and imports would block the event loop later
        import_module(RANKED_NODES)
        self.store.read_scripts(CLIENT_VERBS)
        make_submission({"name": "parsync", "args": [[]], "expires": 1})


def _awaited(
    method: Callable[Concatenate[ParsyncClient, P], T],
) -> Callable[Concatenate["AsyncParsyncClient", P], Coroutine[Any, Any, T]]:
    """Return a method of ParsyncClient as a coroutine function with the same arguments."""

    async def awaited(self: "AsyncParsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._do(method, self._client, *args, **kwargs)

    return update_wrapper(awaited, method)  # a decorator would lose the arguments' names for mypy


class AsyncParsyncClient:
    """ParsyncClient on asyncio: its methods, arguments, return values and errors, awaited.

    settings, retry_for_s: as of ParsyncClient. Any number of tasks of an event loop may use the
    client at a time. Use the client in an `async with`, or await `close()`. A cancelled call closes
    its connection. The server may have executed the request, or not: submit again with the same
    `id`, or ask for the status. Needs `pip install '.[asyncio]'` in a checkout.
    """

    def __init__(
        self, settings: Settings | None = None, retry_for_s: float = CLIENT_RETRY_FOR_S
    ) -> None:
        self._client = _Inner(settings, retry_for_s)
        self.settings = self._client.settings
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def from_url(cls, url: str, cluster: str = "parsync", **settings: Any) -> "AsyncParsyncClient":
        """Return a client of `cluster` on the server at `url`; it connects at first use.

        settings: as of Settings.
        """
        return cls(Settings.load(url=url, cluster=cluster, **settings))

    async def _do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise InvalidInput(
                "this AsyncParsyncClient was used in another event loop: make one for each loop"
            )
        self._loop = loop
        return await call(function, *args, **kwargs)

    # -- submit ------------------------------------------------------------------------------------

    check = _awaited(ParsyncClient.check)
    submit = _awaited(ParsyncClient.submit)
    submit_many = _awaited(ParsyncClient.submit_many)
    declared = _awaited(ParsyncClient.declared)
    send = _awaited(ParsyncClient.send)

    # -- ask ---------------------------------------------------------------------------------------

    status = _awaited(ParsyncClient.status)
    statuses = _awaited(ParsyncClient.statuses)
    wait = _awaited(ParsyncClient.wait)
    explain = _awaited(ParsyncClient.explain)
    plan = _awaited(ParsyncClient.plan)
    with_reasons = _awaited(ParsyncClient.with_reasons)
    cancel = _awaited(ParsyncClient.cancel)
    cancel_many = _awaited(ParsyncClient.cancel_many)
    cancel_where = _awaited(ParsyncClient.cancel_where)
    demand = _awaited(ParsyncClient.demand)
    names = _awaited(ParsyncClient.names)

    # -- who goes first ----------------------------------------------------------------------------

    policy = _awaited(ParsyncClient.policy)
    apply_policy = _awaited(ParsyncClient.apply_policy)
    set_policy = _awaited(ParsyncClient.set_policy)
    limits = _awaited(ParsyncClient.limits)
    limit_holders = _awaited(ParsyncClient.limit_holders)
    tenants = _awaited(ParsyncClient.tenants)

    # -- dead tasks --------------------------------------------------------------------------------

    dead = _awaited(ParsyncClient.dead)
    requeue = _awaited(ParsyncClient.requeue)
    requeue_dead = requeue
    purge = _awaited(ParsyncClient.purge)

    # -- the cluster -------------------------------------------------------------------------------

    nodes = _awaited(ParsyncClient.nodes)
    partitions = _awaited(ParsyncClient.partitions)
    evenness = _awaited(ParsyncClient.evenness)
    drain = _awaited(ParsyncClient.drain)
    undrain = _awaited(ParsyncClient.undrain)

    def events(
        self,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        task: str | None = None,
        node: str | None = None,
        events: Iterable[str] = (),
        limit: int = 100,
        follow: bool = False,
    ) -> AsyncIterator[Event]:
        """See ParsyncClient.events; iterate with `async for`."""
        when = {"since_ms": since_ms, "until_ms": until_ms}
        events_iterator = self._client.events(
            **when, task=task, node=node, events=events, limit=limit, follow=follow
        )
        return self._each(events_iterator)

    async def _each(self, iterator: Iterator[T]) -> AsyncIterator[T]:
        end = object()
        while (item := await self._do(next, iterator, end)) is not end:
            yield cast(T, item)

    # -- life --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """See ParsyncClient.close."""
        await self._do(self._client.close)

    async def __aenter__(self) -> "AsyncParsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

"""AsyncParsyncClient: what ParsyncClient does, for an event loop.

ParsyncClient's own code does the work, inside `store/server/bridge.py`. So both clients have one
logic, and tests/unit checks that both have the same methods with the same arguments.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from ..errors import InvalidInput
from ..inspect import explanation, outlook, waiting
from ..model.events import Event
from ..model.explanation import Explanation
from ..model.status import TaskStatus
from ..model.task import Submission
from ..model.views import Evenness, KindView, NameView, NodeView, PartitionView
from ..settings import Settings
from ..store.reads import events as stored_events
from ..store.reads import purge
from ..store.server.bridge import call
from ..store.server.loop_client import ON_LOOP
from ..submission import Declared, Item, make_submission
from .client import ParsyncClient
from .requests import RETRY_FOR_S

P = ParamSpec("P")
T = TypeVar("T")


EARLY = (explanation, outlook, waiting, purge, stored_events)
"""What ParsyncClient imports when it first needs it: here that would block the event loop."""


class _Inner(ParsyncClient):
    """A ParsyncClient whose requests wait in an event loop; each of its methods runs inside
    `bridge.call`.
    """

    _kit = ON_LOOP

    def __init__(self, settings: Settings | None, retry_for_s: float) -> None:
        super().__init__(settings, retry_for_s)
        self.store.read_scripts()  # now: to read files would block the event loop
        # and so would what Celery imports for it
        make_submission({"name": "parsync", "args": [[]], "expires": 1})


class AsyncParsyncClient:
    """ParsyncClient on asyncio: its methods, arguments, return values and errors, awaited.

    settings, retry_for_s: as of ParsyncClient. Any number of tasks of one event loop may use it at
    a time; use it in an `async with`, or await `close()`. A cancelled call closes its connection.
    Whether the server has executed its request is not known then: submit again with the same `id`,
    or ask for the status. Needs `pip install '.[asyncio]'` in a checkout.
    """

    def __init__(self, settings: Settings | None = None, retry_for_s: float = RETRY_FOR_S) -> None:
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

    async def check(self) -> None:
        """See ParsyncClient.check."""
        await self._do(self._client.check)

    # -- submit ------------------------------------------------------------------------------------

    async def submit(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        countdown: float | None = None,
        expires: Any = None,
        **options: Any,
    ) -> str:
        """See ParsyncClient.submit."""
        when = {"countdown": countdown, "expires": expires}
        return await self._do(self._client.submit, name, args, kwargs, id=id, **when, **options)

    async def submit_many(self, tasks: Iterable[Item | Sequence[Any]]) -> list[str]:
        """See ParsyncClient.submit_many."""
        return await self._do(self._client.submit_many, tasks)

    async def declared(
        self, names: Iterable[str], pauses: Iterator[float] | None = None
    ) -> Declared:
        """See ParsyncClient.declared."""
        return await self._do(self._client.declared, names, pauses)

    async def send(
        self, tasks: Sequence[Submission], pauses: Iterator[float] | None = None
    ) -> list[str]:
        """See ParsyncClient.send."""
        return await self._do(self._client.send, tasks, pauses)

    # -- ask ---------------------------------------------------------------------------------------

    async def status(self, id: str) -> TaskStatus:
        """See ParsyncClient.status."""
        return await self._do(self._client.status, id)

    async def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """See ParsyncClient.statuses."""
        return await self._do(self._client.statuses, ids)

    async def wait(self, ids: Iterable[str], timeout: float | None = None) -> dict[str, TaskStatus]:
        """See ParsyncClient.wait."""
        return await self._do(self._client.wait, ids, timeout)

    async def explain(self, id: str) -> Explanation:
        """See ParsyncClient.explain."""
        return await self._do(self._client.explain, id)

    async def plan(self, name: str, *, queue: str | None = None, **options: Any) -> Explanation:
        """See ParsyncClient.plan."""
        return await self._do(self._client.plan, name, queue=queue, **options)

    async def with_reasons(self, tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
        """See ParsyncClient.with_reasons."""
        return await self._do(self._client.with_reasons, tasks)

    async def cancel(self, id: str) -> str:
        """See ParsyncClient.cancel."""
        return await self._do(self._client.cancel, id)

    async def cancel_many(self, ids: Iterable[str]) -> dict[str, str]:
        """See ParsyncClient.cancel_many."""
        return await self._do(self._client.cancel_many, ids)

    async def cancel_where(
        self, kind: str | None = None, name: str = "*", state: str = "waiting"
    ) -> dict[str, int]:
        """See ParsyncClient.cancel_where."""
        return await self._do(self._client.cancel_where, kind, name, state)

    async def demand(self) -> list[KindView]:
        """See ParsyncClient.demand."""
        return await self._do(self._client.demand)

    async def names(self) -> list[NameView]:
        """See ParsyncClient.names."""
        return await self._do(self._client.names)

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
        wanted = self._client.events(
            **when, task=task, node=node, events=events, limit=limit, follow=follow
        )
        return self._each(wanted)

    async def _each(self, found: Iterator[T]) -> AsyncIterator[T]:
        end = object()
        while (one := await self._do(next, found, end)) is not end:
            yield cast(T, one)

    # -- dead tasks --------------------------------------------------------------------------------

    async def dead(self, limit: int = 100) -> list[TaskStatus]:
        """See ParsyncClient.dead."""
        return await self._do(self._client.dead, limit)

    async def requeue_dead(self, ids: Iterable[str]) -> dict[str, str]:
        """See ParsyncClient.requeue_dead."""
        return await self._do(self._client.requeue_dead, ids)

    async def purge(
        self, state: str = "waiting", name: str = "*", older_than_s: float = 0.0
    ) -> int:
        """See ParsyncClient.purge."""
        return await self._do(self._client.purge, state, name, older_than_s)

    # -- the cluster -------------------------------------------------------------------------------

    async def nodes(self) -> list[NodeView]:
        """See ParsyncClient.nodes."""
        return await self._do(self._client.nodes)

    async def partitions(self) -> list[PartitionView]:
        """See ParsyncClient.partitions."""
        return await self._do(self._client.partitions)

    async def evenness(self) -> Evenness:
        """See ParsyncClient.evenness."""
        return await self._do(self._client.evenness)

    async def drain(self, node: str, deadline_s: float | None = None, reason: str = "") -> NodeView:
        """See ParsyncClient.drain."""
        return await self._do(self._client.drain, node, deadline_s, reason)

    async def undrain(self, node: str) -> NodeView:
        """See ParsyncClient.undrain."""
        return await self._do(self._client.undrain, node)

    # -- life --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """See ParsyncClient.close."""
        await self._do(self._client.close)

    async def __aenter__(self) -> "AsyncParsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

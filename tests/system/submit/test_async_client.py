"""AsyncParsyncClient on a real server: it answers as ParsyncClient does, blocks nothing, and can be
cancelled.
"""

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio

from parsync_redis import (
    AsyncParsyncClient,
    InvalidInput,
    ParsyncClient,
    ServerUnreachable,
    Settings,
)
from parsync_redis.model.explanation import Explanation
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.bridge import call
from parsync_redis.store.server.loop_client import LoopClient
from tests.kit import waiting
from tests.kit.gate import gate
from tests.kit.unblocked import ASKED

pytestmark = pytest.mark.one_server(0)

CLUSTER = "asked"


def run(main):
    """Run a test's coroutine within a limit."""
    return asyncio.run(asyncio.wait_for(main, waiting.PATIENCE_S))


@pytest.fixture
def url(server):
    """Return the address of a server with a cluster that has a node, and no scheduler."""
    store = Store.from_url(server.url, CLUSTER)
    join_cluster(store, Settings(partitions=1), create=True)
    commands = store.commands
    store.run(commands.register_node(0, "n1", 0, 1.0, "slots=4 mem=8000", 0))
    store.run(commands.offer("n1", "slots=4 mem=8000"))
    store.disconnect()
    return server.url


def aio(url, **settings):
    return AsyncParsyncClient.from_url(url, cluster=CLUSTER, **settings)


# -- as the other one ------------------------------------------------------------------------------


def without_now(answer):
    """Return an answer without the time at which it was asked for."""
    return replace(answer, now_ms=0) if isinstance(answer, Explanation) else answer


def test_the_async_client_answers_like_the_client_of_threads(url):
    async def main(other):
        async with aio(url) as client:
            assert await client.submit("proj.render", [1], id="a", slots=2) == "a"
            ids = await client.submit_many([("proj.render",), {"name": "proj.render", "id": "b"}])
            assert (len(ids), ids[1]) == (2, "b")
            for method, args in ASKED.items():
                mine = await getattr(client, method)(*args)
                its = getattr(other, method)(*args)
                assert without_now(mine) == without_now(its), method
            found = other.statuses(["a"])
            assert await client.with_reasons(found) == other.with_reasons(found)
            assert (await client.drain("n1", reason="repair")).draining
            assert not (await client.undrain("n1")).draining
            assert await client.cancel("a") == "cancelled"
            assert await client.cancel_many(["a", "b"]) == {"a": "cancelled", "b": "cancelled"}
            assert await client.cancel_where(name="proj.*") == {"cancelled": 1}
            assert set(await client.wait(["a", "b"], 60)) == {"a", "b"}
            assert await client.requeue(["a"]) == {"a": "cancelled"}
            assert await client.purge("cancelled") == 3

    with ParsyncClient.from_url(url, cluster=CLUSTER) as other:
        run(main(other))


def test_a_reply_that_does_not_come_in_time_is_an_error_and_closes_its_connection(url):
    async def main():
        client = LoopClient(redis.asyncio.Redis.from_url(url))

        def ask():
            connection = client.connection_pool.get_connection()
            connection.send_packed_command(connection.own.pack_command("BLPOP", "none", "2"))
            connection.timeout_s = 0.01
            with pytest.raises(redis.TimeoutError):
                connection.read_response()
            assert not connection.own.is_connected, "the reply would be that of the next request"
            client.connection_pool.release(connection)

        await call(ask)
        await call(client.close)

    run(main())


def test_the_async_client_gives_past_and_coming_events_like_the_client_of_threads(url):
    async def main(other):
        async with aio(url) as client:
            await client.drain("n1", reason="a disk")
            assert [event async for event in client.events()] == list(other.events())
            coming = client.events(node="n1", limit=1, follow=True)
            assert (await anext(coming)).event == "drained"
            await client.undrain("n1")
            assert (await anext(coming)).event == "undrained"

    with ParsyncClient.from_url(url, cluster=CLUSTER) as other:
        run(main(other))


BAD: list[tuple[str, Any, dict[str, Any]]] = [
    ("submit", ("proj.render",), {"slots": -1}),
    ("submit", ("proj.render",), {"slots": 5}),
    ("submit", ("proj.render",), {"slot": 1}),
    ("submit_many", ([("proj.render",), ("proj.render", 7)],), {}),
    ("cancel_where", (), {"state": "ended"}),
    ("drain", ("n7",), {}),
    ("purge", ("running",), {}),
]


def test_the_async_client_raises_like_the_client_of_threads(url):
    async def main(other):
        async with aio(url) as client:
            for method, args, options in BAD:
                with pytest.raises(Exception, match=r"\w") as its:
                    getattr(other, method)(*args, **options)
                with pytest.raises(type(its.value)) as mine:
                    await getattr(client, method)(*args, **options)
                assert str(mine.value) == str(its.value)

    with ParsyncClient.from_url(url, cluster=CLUSTER) as other:
        run(main(other))


def test_a_server_that_is_away_is_the_same_error():
    settings = Settings.load(url="redis://127.0.0.1:1/0", cluster=CLUSTER)

    async def main():
        async with AsyncParsyncClient(settings, retry_for_s=0.2) as client:
            await client.check()

    with pytest.raises(ServerUnreachable) as mine:
        run(main())
    with pytest.raises(ServerUnreachable) as its:
        ParsyncClient(settings, retry_for_s=0.0).check()
    assert str(mine.value)[:60] == str(its.value)[:60]


# -- nothing blocks the event loop -----------------------------------------------------------------


def test_an_async_call_opens_no_file_imports_no_module_and_starts_no_thread(url):
    """The test runs in a new interpreter, which has read and imported nothing before."""
    done = waiting.run(
        [sys.executable, "-m", "tests.kit.unblocked", url, CLUSTER],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "blocked by []\n"), done.stderr


def test_waits_go_on_beside_each_other(url):
    async def main():
        async with aio(url) as client:
            await client.submit_many([{"name": "proj.render", "id": id} for id in "ab"])
            ended = []

            async def wait(id):
                await client.wait([id])
                ended.append(id)

            waits = [asyncio.create_task(wait(id)) for id in "ab"]
            await client.cancel("b")
            await waits[1]
            assert ended == ["b"]
            await client.cancel("a")
            await waits[0]
            assert ended == ["b", "a"]

    run(main())


# -- cancelled calls -------------------------------------------------------------------------------


def pool(client):
    return client._client.store.client.connection_pool.own


@pytest.mark.parametrize(
    ("method", "args"), [("status", ("a",)), ("submit", ("proj.render",)), ("nodes", ())]
)
def test_a_cancelled_call_leaves_no_connection_with_a_reply_to_come(url, method, args):
    async def main():
        async with gate(url) as proxy, aio(proxy.url) as client:
            await client.submit("proj.render", id="a")
            await client.submit("proj.other", id="b")
            proxy.shut()
            call = asyncio.create_task(getattr(client, method)(*args))
            await proxy.asked.wait()  # limit: run has one
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not pool(client)._in_use_connections
            assert not any(
                connection.is_connected for connection in pool(client)._available_connections
            )
            before = proxy.connections
            proxy.open()
            assert (await client.status("b")).name == "proj.other"
            assert proxy.connections == before + 1

    run(main())


def test_a_connection_is_given_back_if_a_timeout_in_redis_py_swallows_the_cancel(url):
    async def main():
        async with aio(url) as client:
            assert (await client.status("a")).state == "gone"
            own = pool(client)

            async def swallow(connection):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)

            own.ensure_connection = swallow
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(client.status("a"))
            assert not own._in_use_connections

    run(main())


def test_a_call_beside_a_cancelled_one_gets_its_own_reply(url):
    async def main():
        async with gate(url) as proxy, aio(proxy.url) as client:
            await client.submit_many([{"name": f"proj.{id}", "id": id} for id in "abc"])
            proxy.shut()
            calls = [asyncio.create_task(client.status(id)) for id in "abc"]
            await proxy.asked.wait()  # limit: run has one
            calls[1].cancel()
            proxy.open()
            found: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(found[1], asyncio.CancelledError)
            assert [task.name for task in (found[0], found[2])] == ["proj.a", "proj.c"]

    run(main())


def test_a_time_limit_around_a_call_ends_it(url):
    async def main():
        async with gate(url) as proxy, aio(proxy.url) as client:
            await client.submit("proj.render", id="a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.wait(["a"])
            assert not pool(client)._in_use_connections
            assert (await client.status("a")).name == "proj.render"

    run(main())


# -- life ------------------------------------------------------------------------------------------


def test_a_client_belongs_to_one_event_loop(url):
    client = aio(url)
    run(client.check())
    with pytest.raises(InvalidInput, match="make one for each loop"):
        run(client.check())


def test_a_closed_client_connects_again(url):
    async def main():
        client = aio(url)
        await client.submit("proj.render", id="a")
        await client.close()
        assert not any(
            connection.is_connected for connection in pool(client)._available_connections
        )
        assert (await client.status("a")).name == "proj.render"
        await client.close()

    run(main())

"""AsyncParsyncClient on a Redis Cluster."""

import asyncio

from parsync_redis import AsyncParsyncClient
from tests.kit.waiting import PATIENCE_S


def test_an_event_loop_asks_all_primaries_and_looks_again_for_one_that_was_away(cluster):
    async def main():
        async with AsyncParsyncClient.from_url(cluster.url, cluster="loops") as client:
            ids = await client.submit_many([("proj.render", [n]) for n in range(40)])
            one = await client.submit("proj.render", id="one")
            found = await asyncio.gather(*(client.status(id) for id in [*ids, one]))
            assert {task.state for task in found} == {"waiting"}
            assert sum(kind.waiting for kind in await client.demand()) == 41
            servers = client._client.store.client.servers  # type: ignore[attr-defined]
            assert len(servers.slots.primaries) == 3
            away = servers.slots.primaries[0]
            servers._away[away] = None
            servers._start_watch()
            while servers.is_away(away):
                await asyncio.sleep(0)
            assert set((await client.cancel_many(ids)).values()) == {"cancelled"}
            assert await client.cancel_where() == {"cancelled": 1}
            assert await client.purge("cancelled") == 41
        assert servers._task.cancelled() or servers._task.done()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))

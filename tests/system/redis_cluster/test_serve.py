"""`parsync serve` on a Redis Cluster: it adds up the shards, and goes on without a primary that is
away.
"""

import pytest

from parsync_redis.model.task import TaskState
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.driver import Driver
from tests.kit.servers import server_programs
from tests.kit.serving import serving

pytestmark = pytest.mark.serial
TASKS = 40
DEAD = 12
OPTIONS: dict[str, object] = {"cluster-require-full-coverage": "no"}


def test_the_service_adds_up_the_shards_and_goes_on_without_a_primary():
    program = next(iter(server_programs().values()))
    with EmbeddedCluster(3, program=program, options=OPTIONS) as cluster:
        store = Store.from_url(cluster.url, "demo")
        join_cluster(
            store,
            Settings.load(url=cluster.url, cluster="demo", partitions=6, shards=8),
            create=True,
        )
        driver = Driver(store)
        for p in range(6):
            driver.node(f"n{p}", 1 + p, p=p)
        for at in range(DEAD):
            driver.bring(TaskState.DEAD, f"d{at}")
        for at in range(TASKS):
            driver.submit(f"t{at}", name="proj.work")
        home = store.place_of(store.keys.shared("config"))
        away = next(place for place in store.servers() if place != home)
        (gone,) = [server for server in cluster.servers if away.endswith(f":{server.port}")]
        left = [p for p in range(6) if store.place_of(store.keys.partition(p, "meta")) != away]
        with serving(cluster.url, "demo") as serve:
            serve.until_json("/healthz", lambda found: found["ok"])
            assert serve.json("/api/v1/nodes")[1]["total"] == 6
            assert serve.json("/api/v1/demand")[1]["waiting_tasks"] == TASKS
            assert (
                'parsync_oldest_waiting_by_name_seconds{name="proj.work"}'
                in serve.get("/metrics")[1]
            )
            assert f"parsync_died_tasks_total {DEAD}.0" in serve.get("/metrics")[1]
            assert 0 < len(left) < 6
            gone.process.kill()
            gone.process.wait(timeout=30)
            found = serve.until_json("/api/v1/nodes", lambda found: found["total"] == len(left))
            assert [node["name"] for node in found["items"]] == [f"n{p}" for p in left]
            serve.until_json("/healthz", lambda found: found["ok"])
            assert 0 < serve.json("/api/v1/demand")[1]["waiting_tasks"] < TASKS
            metrics = serve.get("/metrics")[1]
            assert f"parsync_dead_tasks {DEAD}.0" not in metrics
            assert f"parsync_died_tasks_total {DEAD}.0" in metrics, "a counter does not fall"
        store.client.close()

"""A node whose bits and leases contradict each other: the scheduler stops to claim there, and says
why.
"""

import time
from typing import Any, cast

import pytest

from parsync_redis.model.needs import Resources
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.repair.repair import repair_partition
from parsync_redis.store.server.embedded import EmbeddedServer

LIMIT_S = 60


@pytest.mark.one_server(0)
def test_a_node_that_refuses_claims_which_look_right_becomes_suspect(server: EmbeddedServer):
    settings = Settings(url=server.url, cluster="refusing", partitions=1, gap_s=0.1, lease_s=60)
    store = Store.from_url(server.url, "refusing")
    config = join_cluster(store, settings, create=True)
    client = cast(Any, store.client)
    assert config is not None
    store.run(store.commands.register_node(0, "n1", 0, 1.0, Resources.of(1).text))
    slots = store.keys.partition(0, "slots")
    # the bit says that the slot is free
    client.hset(slots, "n1/0", "ghost 1@1.s1.0 p0 n1/0 inc=1 since=1")
    scheduler = Scheduler(store.with_own_connections(), config, settings, "s1")
    assert scheduler.enter()
    store.run(store.commands.submit([Submission("a", "job", b"{}")]))
    deadline = time.monotonic() + LIMIT_S
    while (found := store.nodes(0)["n1"]).state == "up":
        scheduler.turn()
        assert time.monotonic() < deadline, "n1 refuses claims and is up"
    assert found.state == "suspect"
    note = client.hget(store.keys.partition(0, "notes"), "n1").decode()
    assert (
        note
        == "5 claims in a row were refused although it looks free; the last: task ghost has the slot"
    )
    assert scheduler.core.counters.conflicts < 20
    client.hdel(slots, "n1/0")
    repair_partition(store, 0, "shut")
    store.run(store.commands.set_node(0, "n1", "trust"))
    while store.states(["a"]) != ["placed"]:
        scheduler.turn()
        scheduler.core.won.confirmed(0)
        assert time.monotonic() < deadline, "the task waits although n1 is sound again"
    scheduler.leave()
    scheduler.listener.close()

"""Priority over four shards, as the README promises it: ten thousand tasks of two priorities, two
schedulers.
"""

from collections.abc import Iterator
from itertools import cycle

import pytest

from parsync_redis.model.ids import id_in_shard
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.order import ORDERS_OF_PRIORITY
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig, join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.oracle.audit import audit

pytestmark = [pytest.mark.serial, pytest.mark.one_server(0)]
SHARDS = 4
MANY = 5000
NODES = 2
SLOTS = 5000
LOW = 0
HIGH = 5


@pytest.fixture
def opened(server: EmbeddedServer) -> Iterator[tuple[Store, ClusterConfig, Settings]]:
    settings = Settings(
        url=server.url, cluster="prio", partitions=2, shards=SHARDS, gap_s=0.2, lease_s=60
    )
    store = Store.from_url(server.url, "prio")
    config = join_cluster(store, settings, create=True)
    assert config is not None
    for p in range(NODES):
        store.run(store.commands.register_node(p, f"n{p}", 0, 1.0, Resources.of(SLOTS).text))
    yield store, config, settings
    assert not audit(store)
    store.client.flushall()


def submit(store: Store, priority: int, shards: list[int]) -> None:
    """Submit MANY tasks of one kind, batch by batch, to these shards by turns."""
    for shard, _ in zip(cycle(shards), range(MANY // MAX_BATCH), strict=False):
        some = [id_in_shard(shard, SHARDS) for _ in range(MAX_BATCH)]
        options = TaskOptions.of({"priority": priority})
        words = store.run(
            store.commands.submit([Submission(id, "job", b"{}", options) for id in some])
        )
        assert set(words) == {"submitted"}


def waiting(store: Store, priority: int) -> int:
    first = (9 - priority) * ORDERS_OF_PRIORITY
    queues = [store.keys.pending("job slots=1", shard) for shard in range(SHARDS)]
    return sum(
        store.pipe([("zcount", queue, first, first + ORDERS_OF_PRIORITY - 1) for queue in queues])
    )


@pytest.mark.parametrize("shards", [[0, 1, 2, 3], [2]], ids=["in_all_shards", "in_one_shard"])
def test_at_most_one_turn_of_each_scheduler_goes_before_tasks_of_a_higher_priority(
    opened: tuple[Store, ClusterConfig, Settings], shards: list[int]
) -> None:
    store, config, settings = opened
    submit(store, LOW, [0, 1, 2, 3])
    schedulers = [
        Scheduler(store.with_own_connections(), config, settings, name) for name in ("s1", "s2")
    ]
    for scheduler in schedulers:
        assert scheduler.enter()
    while waiting(store, LOW) > MANY - 3 * MAX_BATCH:
        for scheduler in schedulers:
            scheduler.turn()
    submit(store, HIGH, shards)
    before = after = waiting(store, LOW)
    turns = 0
    while waiting(store, HIGH):
        after = waiting(store, LOW)
        for scheduler in schedulers:
            scheduler.turn()
        turns += 1
        assert turns < 1000
    print(f"{before - after} of low priority went before {MANY} of high priority, in {turns} turns")
    assert before - after <= len(schedulers) * MAX_BATCH
    assert waiting(store, LOW), "they went after them"
    for scheduler in schedulers:
        scheduler.leave()
        scheduler.listener.close()

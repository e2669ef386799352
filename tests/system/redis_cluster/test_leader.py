"""The leader while a primary is away: it judges nodes of other primaries now, and nodes of this primary later."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from parsync_redis.errors import ServerUnreachable
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.waiting import ended, joined, until
from tests.system.redis_cluster.conftest import SLOW
from tests.system.redis_cluster.test_failures import of_server, reads

LEASE_S = 3.0


def placed_well(cluster: EmbeddedCluster, of: str) -> tuple[Store, EmbeddedServer, set[int]]:
    """Return a store, a primary and the partitions that this primary has.

    Other primaries have the settings and the remaining partitions.
    """
    for number in range(100):
        store = Store.from_url(cluster.url, f"{of}{number}")
        home = cluster.primary_of(store.keys.shared("config"))
        for server in cluster.servers[:3]:
            if server is not home and 0 < len(mine := of_server(cluster, store, server)) < 8:
                return store, server, mine
    raise AssertionError("no name will do")


def is_down(store: Store, p: int, node: str) -> bool:
    """Return whether a node is known to be down; nobody knows while its primary is away."""
    try:
        return store.nodes(p)[node].state == "down"
    except ServerUnreachable:
        return False


@pytest.fixture
def durable() -> Iterator[EmbeddedCluster]:
    """Return three primaries that keep their data when they are killed."""
    with EmbeddedCluster(3, aof=True, options={**SLOW, "appendfsync": "always"}) as cluster:
        yield cluster


def test_a_lost_node_is_found_while_the_primary_of_other_nodes_is_away(durable: EmbeddedCluster):
    store, server, away = placed_well(durable, "leader")
    settings = Settings(
        url=durable.url, cluster=store.keys.cluster, partitions=8, lease_s=LEASE_S, gap_s=0.1
    )
    config = join_cluster(store, settings, create=True)
    assert config is not None
    stop = threading.Event()
    scheduler = Scheduler(Store.from_url(durable.url, store.keys.cluster), config, settings, "s1")
    thread = threading.Thread(target=scheduler.run, args=(stop,))
    thread.start()
    try:
        here = min(set(range(8)) - away)
        beyond = min(away)
        for p, node in ((here, "here"), (beyond, "beyond")):
            store.run(store.commands.register_node(p, node, 0, 1.0, "slots=2"))
        until(lambda: scheduler.membership.leads)
        os.kill(server.process.pid, signal.SIGKILL)
        ended(server.process)
        until(lambda: is_down(store, here, "here"))
        server.process = server._start()
        back_s = time.monotonic()
        until(lambda: is_down(store, beyond, "beyond"))
        assert time.monotonic() - back_s >= LEASE_S, "it was judged by what was seen before"
        until(lambda: not scheduler.membership._restarted)
        assert store.hash(store.keys.shared("losses")) == {}
    finally:
        stop.set()
        joined(thread)


def test_the_partitions_of_a_primary_report_its_lost_writes(cluster: EmbeddedCluster):
    store, server, away = placed_well(cluster, "losing")
    settings = Settings(
        url=cluster.url, cluster=store.keys.cluster, partitions=8, lease_s=LEASE_S, gap_s=0.1
    )
    config = join_cluster(store, settings, create=True)
    assert config is not None
    for p in range(8):
        store.run(store.commands.register_node(p, f"n{p}", 0, 1.0, "slots=2"))
    scheduler = Scheduler(Store.from_url(cluster.url, store.keys.cluster), config, settings, "s1")
    member = scheduler.membership
    member.beat()
    member.beat()
    assert member.leads or not member._restarted
    server.restart(kill=True)  # nothing was written to its disk
    member.beat()  # the server may be away still
    cluster.wait_until_well()
    until(lambda: not any(isinstance(answer, Exception) for answer in reads(store)))
    member.beat()
    assert not member._unkept
    (loss,) = store.hash(store.keys.shared("losses"))
    words = loss.split()[1:]
    assert {int(word[1:].partition("=")[0]) for word in words if word.startswith("p")} == away
    member.leave()
    store.client.flushall()
    cluster.wait_until_well()

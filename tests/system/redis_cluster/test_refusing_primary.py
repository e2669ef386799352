"""A primary answers, but takes no writes: the leader serves the other primaries, and people read its name."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from parsync_redis.inspect.checkup import check_up
from parsync_redis.inspect.outlook import find_missing
from parsync_redis.inspect.waiting import explain_tasks
from parsync_redis.model.claim import Claim
from parsync_redis.model.ids import id_in_shard
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.serve.health import judge_readiness
from parsync_redis.serve.survey import read_survey
from parsync_redis.serve.surveyor import LatestSurvey
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.schedulers import STATS_KEPT_MS, holdings_of
from parsync_redis.store.reads.views import ViewReader
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.driver import Driver

LEASE_S = 10.0
SHARDS = 16
FEW = "it has fewer replicas in step than min-replicas-to-write asks for"


@contextmanager
def refusing(server: EmbeddedServer) -> Iterator[None]:
    """Let a primary take no writes: it requires a replica and has none."""
    admin = connect(server.url)
    admin.config_set("min-replicas-to-write", 1)
    try:
        yield
    finally:
        admin.config_set("min-replicas-to-write", 0)
        admin.close()


@pytest.fixture
def sharded(cluster: EmbeddedCluster) -> Iterator[Store]:
    """Yield a store of 16 shards and 8 partitions."""
    store = Store(connect(cluster.url), "refusing")
    store.keys.shards = SHARDS
    store.load_scripts()
    yield store
    store.client.flushall()
    store.disconnect()


def divide(cluster: EmbeddedCluster, store: Store) -> tuple[EmbeddedServer, int, int, int]:
    """Return a primary without the cluster's own keys, a shard of it, and a shard and a partition
    of others.
    """
    home = cluster.primary_of(store.keys.shared("config"))
    homes = [cluster.primary_of(key) for key in store.keys.queues("meta")]
    server = next(one for one in homes if one is not home)
    other = next(shard for shard in range(SHARDS) if homes[shard] is not server)
    p = next(
        p for p in range(8) if cluster.primary_of(store.keys.partition(p, "meta")) is not server
    )
    return server, homes.index(server), other, p


class Leader:
    """A leader, while no node renews."""

    def __init__(self, store: Store) -> None:
        self.janitor = Janitor(store, 8, LEASE_S, forget_s=LEASE_S)
        self.now_s = 0.0

    def work(self, seconds: float) -> None:
        """Do passes for longer than that."""
        for _ in range(5):
            self.janitor.work(lambda: self.now_s, {})
            self.now_s += seconds / 3


def run_on(store: Store, p: int, ids: list[str]) -> None:
    """Let a new node n run these tasks, one a slot."""
    commands = store.commands
    inc = int(store.run(commands.register_node(p, "n", 0, 1.0, f"slots={len(ids)}"))[0])
    epoch = int(store.hash(store.keys.partition(p, "meta"))["epoch"])
    store.run(commands.submit([Submission(id, "work", b"{}") for id in ids]))
    for slot, id in enumerate(ids):
        kind = "work slots=1"
        shard = store.keys.shard_of(id)
        (task,) = store.run(commands.take("s1", [(kind, 1)], "0", 9, ".1", "", shard)).tasks
        claim = Claim(task.id, task.attempt, p, "n", (slot,), inc, "", 0, epoch)
        (verdict,) = store.run(commands.commit(p, [claim])).verdicts
        assert verdict.won
        store.run(commands.start([claim.won(int(verdict.detail))]))


class Asked:
    """A cluster of 16 shards and 8 partitions with room on a node, and the answers of all who judge its schedulers."""

    def __init__(self, store: Store, url: str, p: int) -> None:
        self.store = store
        self.settings = Settings.load(url=url, cluster="refusing", partitions=8, shards=SHARDS)
        join_cluster(store, self.settings, create=True)
        self.drive = Driver(store)
        self.drive.node("n1", 2, p=p)
        self.drive.run(self.drive.commands.renew_scheduler("s1", stats={"placed": 0}))

    def silence(self) -> None:
        """Let the scheduler be silent for a minute."""
        self.store.client.pexpire(self.store.keys.stats("s1"), STATS_KEPT_MS - 60_000)

    def failures(self) -> dict[str, str]:
        """Return what `parsync doctor` calls a failure, by its subject."""
        return {
            check.name: check.text
            for check in check_up(self.store, self.settings)
            if check.level == "fail"
        }

    def readiness(self) -> tuple[bool, str]:
        """Return whether /readyz is well, and its reasons and warnings."""
        ready, answer = judge_readiness(
            LatestSurvey(read_survey(self.store, ViewReader()), time.monotonic(), 0.1, "")
        )
        return ready, " ".join(check["text"] for check in (*answer["reasons"], *answer["warnings"]))


def test_a_primary_without_the_keys_of_schedulers_is_named_with_what_it_holds(
    cluster: EmbeddedCluster, sharded: Store
) -> None:
    server, refused, other, p = divide(cluster, sharded)
    asked = Asked(sharded, cluster.url, p)
    here = id_in_shard(other, SHARDS)
    beyond = id_in_shard(refused, SHARDS)
    for id in (here, beyond):
        asked.drive.submit(id)
    address = sharded.place_of(sharded.keys.queue("meta", refused))
    named = (
        f"the server at {address} takes no writes: {FEW}: {holdings_of(sharded, address)} stand "
        "still"
    )
    assert f"shards {refused}" in named
    with refusing(server):
        assert asked.failures() == {"writes": named}
        ready, text = asked.readiness()
        assert (ready, named in text) == (True, True)
        near, far = explain_tasks(sharded, sharded.statuses([here, beyond]))
        assert near.why.startswith("node n1 has room")
        assert f"; besides, {named}: " in near.why
        assert far.why.startswith(f"{named}: ")
        asked.silence()
        assert "none is alive" in asked.failures()["schedulers"]
        ready, text = asked.readiness()
        assert (ready, named in text, "none is alive" in text) == (False, True, True)
        missing = find_missing(sharded)
        assert missing.startswith("no scheduler of cluster 'refusing' on ")
        assert f"; and {named}: " in missing


def test_the_primary_with_the_keys_of_schedulers_silences_them(
    cluster: EmbeddedCluster, sharded: Store
) -> None:
    home = cluster.primary_of(sharded.keys.shared("schedulers"))
    address = sharded.place_of(sharded.keys.shared("schedulers"))
    p = next(p for p in range(8) if sharded.place_of(sharded.keys.partition(p, "meta")) != address)
    asked = Asked(sharded, cluster.url, p)
    asked.silence()
    with refusing(home):
        failures = asked.failures()
        assert set(failures) == {"writes"}
        assert "config, leader stand still" in failures["writes"]
        assert find_missing(sharded).startswith(f"the server at {address} takes no writes: ")
        assert "no scheduler" not in find_missing(sharded)
        assert asked.readiness()[0], (
            "tasks are placed as long as schedulers live, and nobody knows that they do not"
        )


def test_nodes_are_judged_and_tasks_of_other_shards_go_back(
    cluster: EmbeddedCluster, sharded: Store
) -> None:
    server, refused, other, p = divide(cluster, sharded)
    here = id_in_shard(other, SHARDS)
    beyond = id_in_shard(refused, SHARDS)
    run_on(sharded, p, [beyond, here])
    leader = Leader(sharded)
    with refusing(server):
        leader.work(LEASE_S)
        assert sharded.nodes(p)["n"].state == "down"
        assert sharded.states([here, beyond]) == ["pending", "running"]
        assert [
            text.split()[0] for text in sharded.hash(sharded.keys.partition(p, "slots")).values()
        ] == [beyond]
    leader.work(LEASE_S)
    assert sharded.states([here, beyond]) == ["pending", "pending"]
    assert not sharded.hash(sharded.keys.partition(p, "slots"))


def test_a_node_is_forgotten_when_every_shard_has_forgotten_it(
    cluster: EmbeddedCluster, sharded: Store
) -> None:
    server, *_, p = divide(cluster, sharded)
    inc = int(sharded.run(sharded.commands.register_node(p, "n", 0, 1.0, "slots=1"))[0])
    sharded.run(sharded.commands.offer("n", "slots=1"))
    sharded.run(sharded.commands.reclaim(p, "n", inc, 0))
    leader = Leader(sharded)
    with refusing(server):
        leader.work(LEASE_S)
        assert not sharded.nodes(p)
        assert any(map(sharded.hash, sharded.keys.queues("shapes"))), (
            "a later pass knows of it by what it offered"
        )
    leader.work(LEASE_S)
    assert not any(map(sharded.hash, sharded.keys.queues("shapes")))

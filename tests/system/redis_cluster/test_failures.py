"""Primaries that die, hang or are replaced: the others' calls go on, and the map of
slots follows.
"""

import os
import signal
import threading
from typing import Any

import pytest

from parsync_redis.client.requests import Requests
from parsync_redis.client.submitter import Submitter
from parsync_redis.errors import ParsyncError, ServerUnreachable
from parsync_redis.inspect.checkup import check_up
from parsync_redis.inspect.primary_checks import check_primaries
from parsync_redis.model.task import Submission
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.demand import read_demand
from parsync_redis.store.reads.schedulers import ranges
from parsync_redis.store.reads.views import find_node, read_live_nodes, read_views
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from parsync_redis.store.server.slot_map import slot_of
from tests.kit.waiting import ended, joined, until

PARTITIONS = range(8)


def reads(store: Store) -> list[Any]:
    """Return a read of each partition."""
    return store.run_each([store.commands.read_partition(p) for p in PARTITIONS])


def of_server(cluster: EmbeddedCluster, store: Store, server: EmbeddedServer) -> set[int]:
    """Return the partitions that a server has."""
    return {p for p in PARTITIONS if cluster.primary_of(store.keys.partition(p, "meta")) is server}


def failed(answers: list[Any]) -> set[int]:
    """Return the partitions whose read failed."""
    return {
        p
        for p, answer in zip(PARTITIONS, answers, strict=True)
        if isinstance(answer, ServerUnreachable)
    }


@pytest.fixture
def failing(replicated: EmbeddedCluster) -> Store:
    """Return a store on a cluster with replicas."""
    store = Store.from_url(replicated.url, "fails")
    store.load_scripts()
    return store


def victim_of(cluster: EmbeddedCluster, store: Store) -> tuple[EmbeddedServer, set[int]]:
    """Return a primary that has partitions, but not all, and them."""
    for server in cluster.servers[:3]:
        if 0 < len(mine := of_server(cluster, store, server)) < len(PARTITIONS):
            return server, mine
    raise AssertionError("no primary has some of the partitions")


def test_a_killed_primary_fails_only_its_own_calls_and_its_replica_takes_over(
    replicated: EmbeddedCluster, failing: Store
):
    server, mine = victim_of(replicated, failing)
    assert failed(reads(failing)) == set()
    before = failing.server_runs([failing.keys.partition(p, "meta") for p in PARTITIONS])
    os.kill(server.process.pid, signal.SIGKILL)
    ended(server.process)
    assert failed(reads(failing)) == mine
    assert failed(reads(failing)) == mine
    gone = failing.server_runs([*before])
    assert {p for p, key in zip(PARTITIONS, before, strict=True) if not gone[key].id} == mine
    with pytest.raises(ServerUnreachable):
        failing.run_all([failing.commands.read_partition(p) for p in PARTITIONS])
    failing.load_scripts()  # where it can
    until(lambda: failed(reads(failing)) == set())
    after = failing.server_runs([*before])
    taken = {
        p
        for p, key in zip(PARTITIONS, before, strict=True)
        if after[key].took_over_from(before[key])
    }
    assert (
        taken
        == {p for p, key in zip(PARTITIONS, before, strict=True) if after[key].id != before[key].id}
        == mine
    )
    assert all(run.id for run in after.values())


def test_people_see_what_the_live_primaries_have(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
):
    store = Store.from_url(cluster.url, "seen")
    own = Settings(url=cluster.url, cluster="seen", partitions=len(PARTITIONS))
    assert join_cluster(store, own, create=True)
    for p in PARTITIONS:
        store.run(store.commands.register_node(p, f"n{p}", 0, 1.0, "slots=1"))
    kinds = {f"k{n}": store.keys.shard_of(f"t{n}") for n in range(40)}
    store.run(store.commands.submit([Submission(f"t{n}", f"k{n}", b"m") for n in range(40)]))
    config = cluster.primary_of(store.keys.tick)
    server = next(
        one for one in cluster.servers[:3] if one is not config and of_server(cluster, store, one)
    )
    mine = of_server(cluster, store, server)
    shards = {q for q in range(16) if cluster.primary_of(store.keys.queue("meta", q)) is server}
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        assert {view.number for view, _ in read_views(store)} == {*PARTITIONS} - mine
        assert {state.partition for some in read_live_nodes(store) for state in some} == {
            *PARTITIONS
        } - mine
        shown = {kind.name for kind in read_demand(store)}
        assert shown == {kind for kind, shard in kinds.items() if shard not in shards}
        alive = next(p for p in PARTITIONS if p not in mine)
        assert find_node(store, f"n{alive}") == alive
        with pytest.raises(ServerUnreachable):
            find_node(store, f"n{min(mine)}")
        assert f"partition {min(mine)} is left out" in caplog.text
        requests = Requests(own, 0.0)
        requests.store = store
        made = [requests.make_ids()() for _ in range(100)]
        made += [Submitter(requests).submit_one({"name": "k"}) for _ in range(50)]
        assert not {store.keys.shard_of(id) for id in made} & shards, (
            "no id is of a shard that is away"
        )
        checks = [*check_primaries(store)]
        (lost,) = [check.text for check in checks if check.level == "fail"]
        assert lost.startswith(
            f"127.0.0.1:{server.port}: shards {ranges(sorted(shards))}; partitions "
        )
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    cluster.wait_until_well()
    until(lambda: failed(reads(store)) == set())
    store.client.flushall()


def test_a_primary_that_hangs_is_waited_for_once_and_asked_again_by_a_thread(
    replicated: EmbeddedCluster, failing: Store
):
    server, mine = victim_of(replicated, failing)
    reads(failing)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        assert failed(reads(failing)) == mine
        assert failing.client.servers.is_away(f"127.0.0.1:{server.port}")  # type: ignore[attr-defined]
        answers = reads(failing)
        assert failed(answers) == mine
        assert {str(answers[p]) for p in mine} == {
            f"the server at 127.0.0.1:{server.port} is away: it is asked again every second"
        }
        until(lambda: failed(reads(failing)) == set())  # the replica of the primary takes over
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    until(lambda: "master" not in replicated.nodes(replicated.servers[0])[replicated.id_of(server)])
    assert failed(reads(failing)) == set()


def test_calls_go_on_through_a_failover_that_an_operator_asks_for(
    replicated: EmbeddedCluster, failing: Store
):
    done = threading.Event()
    trouble = list[Exception]()
    words = list[str]()

    def submit() -> None:
        mine = failing.with_own_connections()
        while not done.is_set():
            try:
                words.append(
                    mine.run(mine.commands.submit([Submission(f"t{len(words)}", "work", b"m")]))[0]
                )
            except ParsyncError as error:
                trouble.append(error)

    submitter = threading.Thread(target=submit)
    submitter.start()
    old = replicated.primary_of(failing.keys.queue("meta"))
    replica = replicated.servers[replicated.servers.index(old) + 3]
    with replicated.client(replica) as client:
        client.execute_command("CLUSTER FAILOVER")
    until(lambda: replicated.primary_of(failing.keys.queue("meta")) is replica)
    count = len(words)
    until(lambda: len(words) > count + 10)
    done.set()
    joined(submitter)
    assert trouble == []
    assert set(words) == {"submitted"}


def test_the_slot_of_a_primary_without_a_replica_is_away_and_back_after_its_restart(
    cluster: EmbeddedCluster,
):
    store = Store.from_url(cluster.url, "alone")
    server, mine = victim_of(cluster, store)
    assert failed(reads(store)) == set()
    server.restart(kill=True, away_s=0.2)
    until(lambda: failed(reads(store)) == set())
    assert not store.client.servers.is_away(f"127.0.0.1:{server.port}")  # type: ignore[attr-defined]
    cluster.wait_until_well()
    assert mine == of_server(cluster, store, server)


def test_a_cluster_that_is_away_as_a_whole_is_unreachable_and_comes_back(spread: Store):
    spread.run(spread.commands.read_partition(0))
    lost = Store.from_url("redis+cluster://127.0.0.1:1,127.0.0.1:2", "x")
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:2"):
        lost.run(lost.commands.read_partition(0))
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:2"):
        lost.check_server()
    assert slot_of(spread.keys.partition(0, "meta")) == slot_of(spread.keys.partition(0, "free"))


def test_a_scheduler_starts_while_a_primary_of_other_shards_is_away(replicated: EmbeddedCluster):
    settings = Settings.load(url=replicated.url, cluster="starts")
    store = Store.from_url(replicated.url, "starts")
    config = join_cluster(store, settings, create=True)
    homes = {replicated.primary_of(key) for key in store.keys.queues("meta")}
    dead = (homes - {replicated.primary_of(store.keys.shared("config"))}).pop()
    for server in (dead, replicated.servers[replicated.servers.index(dead) + 3]):
        os.kill(server.process.pid, signal.SIGKILL)
        ended(server.process)
    assert join_cluster(Store.from_url(replicated.url, "starts"), settings, create=True) == config


def test_the_doctor_tells_the_shards_of_the_settings_primary_while_it_is_away(
    cluster: EmbeddedCluster,
):
    store = Store.from_url(cluster.url, "told")
    store.load_scripts()
    looked = check_up(store, Settings(url=cluster.url, cluster="told"))
    assert sum(check.name == "scripts" for check in looked) == 3
    server = cluster.primary_of(store.keys.tick)
    shards = [q for q in range(16) if cluster.primary_of(store.keys.queue("meta", q)) is server]
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        (lost,) = [check for check in check_primaries(store) if check.level == "fail"]
        assert f"shards {ranges(shards)}; partitions not known; config, leader" in lost.text
        assert "FAILOVER FORCE" in lost.repair
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    cluster.wait_until_well()
    until(lambda: failed(reads(store)) == set())
    store.client.hset(store.keys.shared("config"), "partitions", "many")
    assert all(
        "partitions not known" in check.text
        for check in check_primaries(store)
        if check.name == "primary"
    )
    store.client.flushall()


def test_a_cluster_with_too_few_launchers_is_not_started_with_fewer_servers():
    with pytest.raises(ValueError, match="shorter"):
        EmbeddedCluster(3, launchers=[()])

"""Requests find the primaries of their keys: in one round trip, from several threads, and from
forked processes.
"""

import os
import signal
import threading
from typing import Any

import pytest
import redis

from parsync_redis.errors import ServerUnfit, ServerUnreachable
from parsync_redis.model.task import Submission
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from parsync_redis.store.server.primaries import Primaries
from parsync_redis.store.server.slot_map import key_of, slot_of
from tests.kit.moving import Move
from tests.kit.servers import server_programs
from tests.kit.waiting import child_ended, joined, until

PARTITIONS = range(8)


@pytest.mark.parametrize(
    "key",
    [
        "plain",
        "parsync:{c:q0}:meta",
        "{}x",
        "a{}{b}",
        "a{b}{c}",
        "{b",
        "b}",
        "parsync:{c:p7}:inbox:n{1}",
    ],
)
def test_a_slot_is_that_of_the_server(cluster: EmbeddedCluster, key: str):
    with cluster.client(cluster.servers[0]) as client:
        assert (
            slot_of(key) == slot_of(key.encode()) == client.execute_command("CLUSTER KEYSLOT", key)
        )


def test_the_first_key_of_a_command_is_where_the_command_has_it():
    assert key_of(("HGETALL", "k")) == "k"
    assert key_of(("EVALSHA", "sha", 2, "k", "l")) == "k"
    assert key_of(("BLMPOP", 0, 1, b"k", "RIGHT")) == b"k"
    assert key_of(("OBJECT", "ENCODING", "k")) == "k"
    assert key_of(("EVAL", "return 1", 0)) is key_of(("INFO",)) is key_of(("SCAN", 0)) is None


def test_one_round_trip_asks_all_primaries_before_it_waits_for_one(
    spread: Store, cluster: EmbeddedCluster
):
    calls = [spread.commands.read_partition(p, waiter=f"w{p}") for p in PARTITIONS]
    spread.run_all(calls)
    spread.client.flushall()
    first = cluster.primary_of(spread.keys.partition(0, "meta"))
    others = [
        p for p in PARTITIONS if cluster.primary_of(spread.keys.partition(p, "meta")) is not first
    ]
    reader = threading.Thread(target=spread.run_all, args=(calls,))
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        reader.start()
        keys = [spread.keys.partition(p, "meta") for p in others]
        with_own_connections = spread.with_own_connections()
        until(lambda: all(with_own_connections.client.exists(key) for key in keys))
        assert reader.is_alive(), "one primary has not answered"
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
        joined(reader)
    assert all(spread.client.hget(spread.keys.partition(p, "meta"), "waiters") for p in PARTITIONS)


def test_a_client_with_long_time_outs_takes_no_primary_for_away_that_answers_late(
    spread: Store, cluster: EmbeddedCluster
):
    calls = [spread.commands.read_partition(p) for p in PARTITIONS]
    spread.set_timeouts(60)
    spread.run_each(calls)
    server = cluster.primary_of(spread.keys.partition(0, "meta"))
    os.kill(server.process.pid, signal.SIGSTOP)
    threading.Timer(1.5, os.kill, (server.process.pid, signal.SIGCONT)).start()
    assert not [answer for answer in spread.run_each(calls) if isinstance(answer, Exception)]


def test_plain_commands_go_to_their_primaries_as_with_one_server(
    spread: Store, cluster: EmbeddedCluster
):
    keys = [f"k{n}" for n in range(20)]
    client: Any = spread.client
    with client.pipeline(transaction=False) as pipe:
        for n, key in enumerate(keys):
            pipe.hset(key, mapping={"n": n})
        assert pipe.execute() == [1] * 20
    assert [client.hgetall(key) for key in keys] == [{b"n": str(n).encode()} for n in range(20)]
    assert sorted(client.scan_iter(match="k*")) == sorted(map(str.encode, keys))
    client.set("text", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.hgetall("text")
    with client.pipeline(transaction=False) as pipe:
        pipe.hgetall("text")
        pipe.get("text")
        wrong, right = pipe.execute(raise_on_error=False)
    assert isinstance(wrong, redis.ResponseError)
    assert right == b"x"
    assert set(client.info("server")) >= {"run_id"}
    client.flushall()
    assert list(client.scan_iter()) == []
    assert len(spread.check_servers()) == 3


def test_scripts_that_one_primary_lacks_are_loaded_there(spread: Store, cluster: EmbeddedCluster):
    with cluster.client(cluster.servers[1]) as client:
        client.script_flush()
    spread.run_all([spread.commands.read_partition(p) for p in PARTITIONS])
    with cluster.client(cluster.servers[1]) as client:
        assert client.script_exists(spread.commands.read_partition(0).script.sha) == [True]


def test_scripts_are_loaded_on_a_server_that_lacks_them_though_the_map_does_not_name_it(
    replicated: EmbeddedCluster,
):
    store = Store.from_url(replicated.url, "spread")
    replica = replicated.servers[4]
    store.load_scripts(also=[f"127.0.0.1:{replica.port}"])
    with replicated.client(replica) as client:
        assert client.script_exists(store.commands.read_partition(0).script.sha) == [True]


def test_threads_share_a_store(spread: Store):
    words = list[str]()
    trouble = list[Exception]()

    def submit(thread: int) -> None:
        try:
            for n in range(50):
                call = spread.commands.submit([Submission(f"{thread}-{n}", "work", b"m")])
                words.append(spread.run_all([call, spread.commands.read_partition(n % 8)])[0][0])
        except Exception as error:
            trouble.append(error)

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    assert trouble == []
    assert words == ["submitted"] * 200


def test_a_forked_process_has_connections_of_its_own(spread: Store):
    spread.run_all([spread.commands.read_partition(p) for p in PARTITIONS])
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            failed = 1
            try:
                for n in range(50):
                    spread.client.hset(f"child{child}", str(n), "x")
                    spread.run_all([spread.commands.read_partition(p) for p in PARTITIONS])
                failed = 0
            finally:
                os._exit(failed)
        children.append(pid)
    for _ in range(50):
        assert len(spread.run_all([spread.commands.read_partition(p) for p in PARTITIONS])) == 8
    assert [os.waitstatus_to_exitcode(child_ended(pid)) for pid in children] == [0, 0, 0]
    assert [spread.client.hlen(f"child{child}") for child in range(3)] == [50] * 3


def test_a_fork_that_inherits_a_primary_that_is_away_finds_it_back(
    spread: Store, cluster: EmbeddedCluster
):
    server = cluster.primary_of(spread.keys.partition(0, "meta"))
    address = f"127.0.0.1:{server.port}"
    spread.run(spread.commands.read_partition(0))
    os.kill(server.process.pid, signal.SIGSTOP)
    spread.run_each([spread.commands.read_partition(p) for p in PARTITIONS])
    assert spread.client.servers.is_away(address)  # type: ignore[attr-defined]
    if (pid := os.fork()) == 0:
        failed = 1
        try:
            os.kill(server.process.pid, signal.SIGCONT)
            until(
                lambda: (
                    not isinstance(
                        spread.run_each([spread.commands.read_partition(0)])[0], Exception
                    )
                )
            )
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(child_ended(pid)) == 0
    until(lambda: not spread.client.servers.is_away(address))  # type: ignore[attr-defined]
    cluster.wait_until_well()


def test_a_slot_that_has_moved_costs_one_more_round_trip(spread: Store, cluster: EmbeddedCluster):
    key = spread.keys.partition(0, "meta")
    spread.run(spread.commands.read_partition(0))
    move = Move(cluster, key)
    move.whole()
    with cluster.client(move.source) as client:
        client.config_resetstat()
    for _ in range(5):
        spread.run(spread.commands.read_partition(0))
    with cluster.client(move.source) as client:
        errors: Any = client.info("errorstats")
    assert errors["errorstat_MOVED"]["count"] == 1
    move.source, move.target = move.target, move.source
    move.whole()


def test_a_single_server_of_a_redis_cluster_is_refused_as_the_whole_server(
    cluster: EmbeddedCluster,
):
    store = Store.from_url(cluster.servers[0].url, "x")
    with pytest.raises(ServerUnfit, match="write its address as redis"):
        store.check_server()
    store.disconnect()


@pytest.mark.parametrize("program", server_programs().values(), ids=server_programs())
def test_a_server_alone_is_refused_as_a_cluster(program: str):
    with EmbeddedServer(program) as server:
        store = Store.from_url(f"redis+cluster://127.0.0.1:{server.port}", "x")
        with pytest.raises(ServerUnfit, match="its address is redis://"):
            store.check_server()


def test_a_connection_that_another_thread_has_closed_fails_its_requests_only():
    found: list[Any] = [None]
    assert not Primaries(["127.0.0.1:1"], {})._read(
        "127.0.0.1:1", redis.Connection(), [(0, b"")], found, 0.0
    )
    assert isinstance(found[0], ServerUnreachable)

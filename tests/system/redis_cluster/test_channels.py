"""Channels on a Redis Cluster: each is heard where its tag is, also after that has moved or while a
server is away.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from parsync_redis.errors import ServerUnreachable
from parsync_redis.inspect.checkup import check_up
from parsync_redis.scheduler.process.listener import Listener
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.moving import Move

PARTITIONS = 6
WITHIN_S = 20.0


@pytest.fixture
def listener(spread: Store) -> Iterator[Listener]:
    """Yield a scheduler's listener on three primaries."""
    listener = Listener(spread, "s1", PARTITIONS)
    listener.listen()
    yield listener
    listener.close()


@pytest.fixture
def failing(replicated: EmbeddedCluster) -> Iterator[tuple[Store, Listener]]:
    """Yield a store, and a scheduler's listener, on three primaries with a replica each."""
    store = Store.from_url(replicated.url, "failing")
    listener = Listener(store, "s1", PARTITIONS)
    listener.listen()
    yield store, listener
    listener.close()
    store.disconnect()


def hear_until(listener: Listener, wanted: list[str], say: Callable[[], object]) -> list[list[str]]:
    """Say something again and again until it is heard; return all that was heard."""
    found: list[list[str]] = []
    deadline = time.monotonic() + WITHIN_S
    while wanted not in found:
        assert time.monotonic() < deadline, f"{wanted} was not heard, but {found}"
        say()
        found += listener.hear(0.05)
    return found


def freed(store: Store, p: int) -> Callable[[], object]:
    """Return a call that tells s1 of a freed slot of partition p."""
    return lambda: store.read("spublish", f"{store.keys.frees(p)}:s1", f"freed {p} 1 4")


def test_a_scheduler_hears_every_channel_on_the_server_of_its_tag(
    spread: Store, listener: Listener
):
    keys = spread.keys
    assert len({spread.place_of(keys.frees(p)) for p in range(PARTITIONS)}) > 1, (
        "the partitions are of several primaries"
    )
    hear_until(listener, ["tick", "1", "1"], lambda: spread.read("spublish", keys.tick, "tick 1 1"))
    hear_until(
        listener, ["wake", "0"], lambda: spread.read("spublish", f"{keys.wakes()}:s1", "wake")
    )
    for p in range(PARTITIONS):
        hear_until(listener, ["freed", str(p), "1", "4"], freed(spread, p))


def test_a_channel_that_moves_is_heard_on_its_new_server(
    cluster: EmbeddedCluster, spread: Store, listener: Listener
):
    away = Move(cluster, spread.keys.frees(0))
    # the listener must find out by itself
    speaker = Store.from_url(cluster.url, spread.keys.cluster)
    hear_until(listener, ["freed", "0", "1", "4"], freed(speaker, 0))
    try:
        away.begin()
        away.end()
        found = hear_until(listener, ["freed", "0", "1", "4"], freed(speaker, 0))
        assert ["freed", "0", "1", "1"] in found, "it knows that it may have missed something"
    finally:
        home = Move(cluster, spread.keys.frees(0), away.source)
        home.begin()
        home.end()
        speaker.disconnect()


def test_an_absent_primary_silences_only_its_channels_and_the_doctor_names_those_channels(
    replicated: EmbeddedCluster, failing: tuple[Store, Listener]
):
    store, listener = failing
    home = {p: replicated.primary_of(store.keys.frees(p)) for p in range(PARTITIONS)}
    killed = home[0]
    others = [p for p in range(PARTITIONS) if home[p] is not killed]
    for p in range(PARTITIONS):
        hear_until(listener, ["freed", str(p), "1", "4"], freed(store, p))
    number = replicated.servers.index(killed)
    # the replica stops first, or it would take over
    for server in (replicated.servers[3 + number], killed):
        server.stop()
    heard = [
        word
        for p in others
        for word in hear_until(listener, ["freed", str(p), "1", "4"], freed(store, p))
    ]
    assert ["freed", "0", "1", "1"] in heard
    with pytest.raises(ServerUnreachable):
        freed(store, 0)()
    checks = check_up(store, Settings(cluster="failing"))
    assert sorted(check.level for check in checks if check.name == "primary") == [
        "fail",
        "ok",
        "ok",
    ], checks


def test_a_channel_is_heard_at_the_replica_that_took_over(
    replicated: EmbeddedCluster, failing: tuple[Store, Listener]
):
    store, listener = failing
    hear_until(listener, ["freed", "0", "1", "4"], freed(store, 0))
    replicated.primary_of(store.keys.frees(0)).stop()

    def say() -> None:
        with suppress(ServerUnreachable):  # nobody has taken over yet
            freed(store, 0)()

    assert ["freed", "0", "1", "1"] in hear_until(listener, ["freed", "0", "1", "4"], say)


def test_a_cut_on_one_server_reports_its_possibly_missed_messages_and_keeps_other_channels(
    cluster: EmbeddedCluster, spread: Store, listener: Listener
):
    home = {p: cluster.primary_of(spread.keys.frees(p)) for p in range(PARTITIONS)}
    ticking = cluster.primary_of(spread.keys.tick)
    p = next(p for p in range(PARTITIONS) if home[p] is not ticking)
    hear_until(
        listener, ["tick", "1", "1"], lambda: spread.read("spublish", spread.keys.tick, "tick 1 1")
    )
    before = dict(listener._live)
    connect(home[p].url).execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    found = hear_until(listener, ["freed", str(p), "1", "1"], lambda: None)
    assert ["cut"] not in found, "the ticks go on"
    hear_until(listener, ["freed", str(p), "1", "4"], freed(spread, p))
    same = [
        place for place, subscription in listener._live.items() if before.get(place) is subscription
    ]
    assert len(same) == len(before) - 1

"""Schedulers that hear nothing go on by their own clocks, and subscribe again. Rows F24 and F25 of docs/failure-modes.md."""

import threading
from typing import Any

from parsync_redis.scheduler.process.listener import Listener
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.small_cluster import SmallCluster
from tests.kit.waiting import joined, until


def test_tasks_are_placed_while_every_subscription_is_cut_again_and_again(
    server: EmbeddedServer,
) -> None:
    small_cluster = SmallCluster(server.url, "deaf")
    stop = threading.Event()
    client: Any = Store.from_url(server.url, "deaf").client

    def cut() -> None:
        while not stop.wait(0.005):
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

    cutter = threading.Thread(target=cut)
    try:
        small_cluster.node("n1", 2)
        cutter.start()
        tasks = [f"t{n}" for n in range(40)]
        small_cluster.submit(*tasks[:20])
        small_cluster.wait(
            lambda: small_cluster.done(tasks[:20]),
            "slots are found free without a word",
            working=True,
        )
        small_cluster.submit(*tasks[20:])
        small_cluster.wait(
            lambda: small_cluster.done(tasks), "and tasks are looked for", working=True
        )
        assert sum(each.core.counters.own_ticks for each in small_cluster.schedulers) > 0, (
            "nobody heard a tick"
        )
        stop.set()
        joined(cutter)
        tick = small_cluster.store.keys.tick
        small_cluster.wait(
            lambda: client.pubsub_shardnumsub(tick)[0][1] == 2, "both subscribe again"
        )
        small_cluster.wait(
            lambda: not any(each.ticks.is_own for each in small_cluster.schedulers),
            "and hear ticks",
        )
    finally:
        stop.set()
        small_cluster.close()
        client.close()


def test_a_too_slow_listener_loses_messages_once_and_subscribes_again(
    server: EmbeddedServer,
) -> None:
    store = Store.from_url(server.url, "listener")
    client: Any = store.client
    before = client.config_get("client-output-buffer-limit")["client-output-buffer-limit"]
    client.config_set("client-output-buffer-limit", "pubsub 65536 0 0")
    listener = Listener(store, "s1", 1)
    try:
        listener.listen()
        until(lambda: client.pubsub_shardnumsub(store.keys.tick)[0][1] == 1)
        while client.spublish(store.keys.tick, b"x" * 100_000):
            pass  # until the server has cut it off
        heard: list[list[str]] = []
        until(lambda: heard.extend(listener.hear(0.1)) or ["cut"] in heard)
        until(lambda: listener.hear(0.1) or client.spublish(store.keys.tick, "tick 7 1"))
        until(
            lambda: (
                ["tick", "7", "1"] in listener.hear(0.1)
                or not client.spublish(store.keys.tick, "tick 7 1")
            )
        )
        assert heard.count(["cut"]) == 1
    finally:
        client.config_set("client-output-buffer-limit", before)
        listener.close()

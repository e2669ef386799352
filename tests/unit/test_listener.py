"""A scheduler understands a message or ignores it: every client may publish on its channel."""

import ssl
import time
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.scheduler.process.listener import Listener, _Subscription, understand
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig
from parsync_redis.store.server.embedded import EmbeddedServer


@pytest.mark.parametrize(
    "data", [b"tick 7 3", b"tick 7 3 booked", b"wake", b"freed 7 3 16", b"freed 7 -1 0"]
)
def test_messages_of_schedulers_and_scripts_are_understood(data):
    words = data.decode().split()
    assert understand(data, words[0], 7) == {"wake": ["wake", "7"]}.get(words[0], words)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"tick",
        b"tick a b",
        b"tick 1",
        b"tick 1 2 3",
        b"wake 1",
        b"awake",
        b"freed 8 0 16",
        b"freed -1 0 16",
        b"\xff\xfe",
        b"tick 1 2\n",
        b"tick " + b"9" * 5000 + b" 1",
        "tick \u0661 \u0662".encode(),
    ],
)
def test_an_unknown_message_is_ignored(data):
    assert [understand(data, word, 7) for word in ("tick", "wake", "freed")] == [[], [], []]


@given(st.binary(max_size=60))
def test_no_bytes_raise(data):
    understand(data, "wake")


def test_each_word_is_understood_on_its_own_channel_only():
    assert understand(b"tick 7 3", "wake") == []
    assert understand(b"wake", "tick") == []
    assert understand(b"freed 7 1 1", "freed", 6) == [], "it is of another partition"


class Pieces:
    """A socket whose reads end in these ways; of TLS it may be readable without a message."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)

    def recv(self, most: int) -> bytes:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return bytes(end)

    def pending(self) -> int:
        return len(self.ends)


MESSAGE = b">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$4\r\nwake\r\n"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([ssl.SSLWantReadError()], 0),
        ([BlockingIOError()], 0),
        ([MESSAGE], 1),
        ([MESSAGE[:9]], 0),
        ([MESSAGE[:9], MESSAGE[9:] + MESSAGE], 2),
        ([MESSAGE, ssl.SSLWantReadError()], 1),
    ],
)
def test_a_readable_socket_without_a_whole_message_is_no_error(ends, said):
    ear = _Subscription.__new__(_Subscription)
    ear._reader = hiredis.Reader()
    ear.socket = Pieces(*ends)
    assert ear.receive() == [(b"c", b"wake")] * said


def test_ticks_published_while_a_scheduler_is_busy_arrive_with_its_next_message(
    store: Store,
) -> None:
    client: Any = store.client
    tick = store.keys.tick
    own = store.keys.wakes() + ":s1"
    freed = store.keys.frees(0) + ":s1"
    listener = Listener(store, "s1", 1)
    try:
        listener.listen()
        while min(count for _, count in client.pubsub_shardnumsub(tick, own, freed)) < 1:
            pass
        for _ in range(2):
            assert listener.hear(0.1) == [], "what the server says of the subscriptions"
        client.spublish(tick, "tick 1 1")
        began_s = time.monotonic()
        assert listener.hear(0.2, ticks=False) == [["tick", "1", "1"]]
        assert time.monotonic() - began_s >= 0.2, "a tick did not end its rest"
        client.spublish(own, "wake")
        assert listener.hear(10.0, ticks=False) == [["wake", "0"]]
        client.spublish(own, "tick 2 1")
        client.spublish(freed, "freed 0 1 1")
        client.spublish(tick, "tick 3 1")
        words: list[list[str]] = []
        deadline = time.monotonic() + 60.0
        while len(words) < 2 and time.monotonic() < deadline:
            words += listener.hear(0.05)
        assert sorted(words) == [["freed", "0", "1", "1"], ["tick", "3", "1"]], (
            "a tick is none on one's own channel"
        )
    finally:
        listener.close()


def test_clusters_of_one_name_in_two_databases_do_not_hear_each_other(
    server: EmbeddedServer,
) -> None:
    address = server.url.rpartition("/")[0]
    here, there = (Store.from_url(f"{address}/{db}", "twin") for db in (0, 1))
    listener = Listener(here, "s1", 1)
    listener.listen()
    client: Any = here.client
    while (
        min(
            count
            for _, count in client.pubsub_shardnumsub(here.keys.tick, here.keys.wakes() + ":s1")
        )
        < 1
    ):
        pass
    for _ in range(2):
        assert listener.hear(0.1) == [], "what the server says of the subscriptions"
    there.client.spublish(there.keys.tick, "tick 9 9")
    there.client.spublish(there.keys.wakes() + ":s1", "wake")
    here.client.spublish(here.keys.tick, "tick 1 1")
    assert listener.hear(10.0) == [["tick", "1", "1"]]
    listener.close()


def test_a_scheduler_whose_subscription_is_cut_ticks_by_its_own_clock_at_once(store: Store) -> None:
    client: Any = store.client
    made = Scheduler(store, ClusterConfig(1, 60.0, 10.0), Settings(), "s1")
    made.enter()
    try:
        while (
            min(
                count
                for _, count in client.pubsub_shardnumsub(
                    store.keys.tick, store.keys.wakes() + ":s1"
                )
            )
            < 1
        ):
            pass
        for _ in range(4):
            made.turn()
        assert not made.ticks.is_own, "three gaps without a tick are three minutes"
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        for _ in range(4):
            made.turn()
        assert made.ticks.is_own
    finally:
        made.listener.close()
        made.leave()

"""The proxy does to a connection what its modes say: shown on a real server."""

from collections.abc import Iterator

import pytest
import redis

from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.chaos.real.proxy import Line, Proxy
from tests.kit.waiting import until

Unreachable = (redis.ConnectionError, redis.TimeoutError)


@pytest.fixture(scope="module")
def upstream() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def line(upstream: EmbeddedServer) -> Iterator[Line]:
    proxy = Proxy("127.0.0.1", upstream.port)
    yield proxy.line()
    proxy.close()


@pytest.fixture
def direct(upstream: EmbeddedServer) -> Iterator[redis.Redis]:
    with connect(upstream.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def through(line: Line) -> Iterator[redis.Redis]:
    with connect(f"redis://127.0.0.1:{line.port}/0", timeout_s=3) as client:
        assert client.ping()
        yield client


def test_the_proxy_passes_values_unchanged_whole_or_in_slices(
    line: Line, through: redis.Redis
) -> None:
    for mode in ("pass", "slices"):
        line.turn(mode)
        through.set("key", b"x" * 1000)
        assert through.get("key") == b"x" * 1000


def test_a_reply_that_is_cut_belongs_to_a_request_that_was_executed(line, through, direct) -> None:
    line.turn("cut_reply", cuts=1)
    with pytest.raises(Unreachable):
        through.incr("n")
    assert direct.get("n") == b"1"
    assert through.incr("n") == 2


def test_a_request_that_is_cut_is_not_executed(line, through, direct) -> None:
    line.turn("cut_request", cuts=1)
    with pytest.raises(Unreachable):
        through.incr("n")
    assert direct.get("n") is None
    assert through.incr("n") == 1


@pytest.mark.parametrize(
    ("mode", "executed"), [("swallow", None), ("swallow_up", None), ("swallow_down", b"1")]
)
def test_a_swallowed_request_or_reply_gives_no_answer(
    mode, executed, line, through, direct
) -> None:
    line.turn(mode)
    with pytest.raises(Unreachable):
        through.incr("n")
    assert direct.get("n") == executed
    line.heal()
    assert through.ping()


def test_a_held_request_is_executed_after_its_sender_gave_up(line, through, direct) -> None:
    line.turn("hold")
    with pytest.raises(Unreachable):
        through.incr("n")
    assert direct.get("n") is None
    line.heal()
    until(lambda: direct.get("n") == b"1")


def test_a_reset_ends_connections_and_new_ones_are_made(line, through) -> None:
    with through.pubsub() as listener:
        listener.subscribe("c")
        listener.get_message(timeout=0.2)
        line.reset()
        with pytest.raises(Unreachable):
            until(lambda: listener.get_message(timeout=0.1))
    until(lambda: _pings(through))


def _pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except Unreachable:
        return False

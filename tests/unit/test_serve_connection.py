"""Nobody can hold a connection of `parsync serve` without end, nor all of them: real sockets to its
server.
"""

import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from parsync_redis.serve import connection
from parsync_redis.serve.connection import OTHER_FILES
from parsync_redis.serve.server import Server, listen, make_config
from tests.kit.waiting import PATIENCE_S, joined, until

HALF = b"GET / HTTP/1.1\r\nHost: serve\r\n"
WHOLE = HALF + b"\r\n"
LARGE = 64 * 2**20
"""Bytes of an answer that no buffer of the system takes."""


async def small(request: Any) -> Response:
    return Response(b"small")


async def large(request: Any) -> Response:
    return Response(bytes(LARGE))


@contextmanager
def served(resting: int = 100) -> Iterator[Any]:
    """Run a server, and give what connects to it from an address."""
    app = Starlette(routes=[Route("/", small, methods=["GET", "POST"]), Route("/large", large)])
    made: list[socket.socket] = []
    listening = listen("127.0.0.1", 0)
    server = Server(make_config(app, resting), lambda: None, ())

    def connect(sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
        peer = socket.create_connection(listening.getsockname(), PATIENCE_S, (source, 0))
        made.append(peer)
        peer.sendall(sent)
        return peer

    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the server has begun")
        yield connect
    finally:
        for peer in made:
            peer.close()
        server.should_exit = True
        joined(thread, "the server")
        listening.close()


@pytest.fixture
def short_rest(monkeypatch):
    monkeypatch.setattr(connection, "REST_S", 0.2)


def is_closed(peer: socket.socket) -> bool:
    """Return whether the server has closed a connection, whatever is still to be read from it."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    return bool(poll.poll(0))


def answers(peer: socket.socket, sent: bytes) -> bool:
    """Return whether the server answers what is sent, and read the whole answer."""
    peer.sendall(sent)
    answer = b""
    while not answer.endswith(b"small"):
        received = peer.recv(4096)  # limit: the socket has one
        if not received:
            break
        answer += received
    return answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "each"),
    [
        (b"", b""),
        (HALF, b""),
        (HALF, b"x"),
        (WHOLE + HALF, b"x"),
        (HALF + b"Content-Length: 1000000\r\n\r\n", b"x"),
    ],
    ids=[
        "nothing",
        "half a header",
        "a byte at a time",
        "the second header",
        "a body nobody asked for",
    ],
)
def test_a_request_that_does_not_come_is_not_waited_for(short_rest, sent, each):
    with served() as connect:
        peer = connect(sent)

        def look() -> bool:
            with suppress(ConnectionError):
                peer.sendall(each)
            return is_closed(peer)

        until(look, "the server gives it up")


@pytest.mark.parametrize("times", [1, 50], ids=["an answer", "pipelined requests"])
def test_a_peer_that_takes_no_answer_is_given_up(short_rest, times):
    with served() as connect:
        request = b"GET /large HTTP/1.1\r\nHost: serve\r\n\r\n"
        peer = connect(request * times)
        until(lambda: is_closed(peer), "the server gives it up")


def test_of_too_many_connections_the_oldest_of_the_largest_address_goes():
    with served(resting=3) as connect:
        other = connect(HALF, "127.0.0.2")
        many = [connect(HALF) for _ in range(5)]
        until(lambda: all(is_closed(peer) for peer in many[:3]), "three are given up")
        assert not any(is_closed(peer) for peer in (other, *many[3:]))
        assert all(answers(peer, b"\r\n") for peer in (other, *many[3:]))


def test_a_connection_that_is_in_use_is_not_given_up():
    """The connection rests between requests, and only then the server may close it."""
    with served(resting=2) as connect:
        peer = connect()
        for _ in range(4):
            assert answers(peer, WHOLE)
        assert answers(connect(), WHOLE)
        connect(HALF)
        until(lambda: is_closed(peer), "the oldest is given up")


def test_no_upgrade_leaves_the_limits():
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
        b"x\r\nSec-WebSocket-Version: 13\r\n"
    )
    with served() as connect:
        assert answers(connect(), HALF + upgrade + b"\r\n")


def test_as_many_connections_as_descriptors_suffice_for():
    """The limits, soft and hard, of one process get smaller."""
    limits = [(5000, 5000), (200, OTHER_FILES + 1500), (200, 1024)]
    code = f"""if True:
        from resource import RLIMIT_NOFILE, setrlimit
        from parsync_redis.serve.connection import count_places
        for limits in {limits}:
            setrlimit(RLIMIT_NOFILE, limits)
            print(count_places(1500))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.split() == ["1500", "1500", str(1024 - OTHER_FILES)], done.stderr

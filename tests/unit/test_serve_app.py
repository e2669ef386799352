"""The application of `parsync serve` without a server of Redis: who may do how much, and who is
told what.
"""

import asyncio
import hashlib
import json
import re
import socket
from contextlib import closing
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect

from parsync_redis import ParsyncClient
from parsync_redis.serve import feed, pages
from parsync_redis.serve.app import make_app
from parsync_redis.serve.asker import Asker
from parsync_redis.serve.feed import EventFeed
from parsync_redis.serve.gate import OperatorAuth, read_proxies
from parsync_redis.serve.passwords import load_operators
from parsync_redis.serve.rights import Rights
from parsync_redis.serve.server import listen, run
from parsync_redis.serve.submitters import Submitters, hash_token
from parsync_redis.serve.surveyor import Surveyor
from parsync_redis.serve.write_access import WriteAccess
from parsync_redis.serve.writer import MOST_WAITING_REQUESTS, Writer
from tests.kit.waiting import PATIENCE_S, joined

TASKS = "/api/v1/tasks"
SHOP = Rights(token_sha256=[hash_token("shop-token")], names=["shop.*"], rate=0.01, burst=2)
STREAM = {"Accept": "text/event-stream"}
TOKEN = {"Authorization": "Bearer shop-token"}


@pytest.fixture
def client():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with ParsyncClient.from_url(
            f"redis://127.0.0.1:{taken.getsockname()[1]}/0", cluster="demo"
        ) as found:
            yield found


@pytest.fixture
def serve(client):
    """Return what makes an application whose server is away; it answers `ask`."""
    asker = Asker(client)

    def make(**flags):
        opened = WriteAccess(client=client, **flags)
        surveyor = Surveyor(client)
        surveyor._fail("no connection to 10.0.0.5:6379")
        app = make_app(surveyor, asker, EventFeed(client), "demo", ["*"], opened)
        made.append(opened)
        return SimpleNamespace(
            app=app,
            write_access=opened,
            ask=lambda *asked, **more: asyncio.run(ask(app, *asked, **more)),
        )

    made: list[WriteAccess] = []
    with closing(asker):
        yield make
    for one in made:
        one.close()


async def ask(
    app, method, path, headers=(), query="", body=b"", peer="10.0.0.9", told=None, gone=None
):
    """Ask an application for a decoded path; return the status, the body and the cookies that it
    sets.

    told: takes the status and the headers of the answer when it begins. gone: the peer hangs up
    when it is set.
    """
    sent = []
    raw = [(name.lower().encode(), value.encode()) for name, value in dict(headers).items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"serve"), *raw],
        "client": (peer, 1),
        "server": ("serve", 80),
        "scheme": "http",
    }

    bodies = [body]

    async def receive():
        if not bodies:
            await (gone or asyncio.Event()).wait()  # the client stays connected
            return {"type": "http.disconnect"}
        if bodies == [None]:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message):
        sent.append(message)
        if told is not None and len(sent) == 1:
            told.update((name.decode(), value.decode()) for name, value in message["headers"])
            told["status"] = message["status"]

    await app(scope, receive, send)
    text = b"".join(message.get("body", b"") for message in sent).decode()
    cookies = [value.decode() for name, value in sent[0]["headers"] if name == b"set-cookie"]
    return (
        sent[0]["status"],
        text,
        dict(re.findall(r"^(\w+)=([^;]*)", "\n".join(cookies), re.MULTILINE)),
    )


def test_only_viewers_are_told_why_reading_fails(serve):
    submitters = Submitters({"shop": SHOP})
    for only in (False, True):
        status, text, _ = serve(submitters=submitters, submit_only=only).ask("GET", "/healthz")
        assert (status, json.loads(text)["ok"], "10.0.0.5" in text) == (503, False, not only)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"{TASKS}/other:1", b"", 404),
        ("DELETE", f"{TASKS}/other:1", b"", 404),
        ("POST", TASKS, b"{", 400),
        ("POST", TASKS, b"[]", 400),
        ("POST", TASKS, b"[1, 2, 3]", 413),
        ("POST", TASKS, b" " * (SHOP.most_bytes + 1), 413),
        ("POST", TASKS, b"[1]", 503),
    ],
)
def test_every_request_of_a_token_counts_against_its_rate(serve, method, path, body, status):
    app = serve(submitters=Submitters({"shop": SHOP}))
    fill_writer(app)
    found = [app.ask(method, path, TOKEN, body=body)[0] for _ in range(3)]
    assert found == [status, status, 429]


def test_a_list_that_comes_too_fast_costs_one(serve):
    """The answer says when all of it could be let through."""
    app = serve(submitters=Submitters({"shop": SHOP}))
    told = dict[str, str]()
    assert app.ask("GET", f"{TASKS}/other:1", TOKEN)[0] == 404
    assert app.ask("POST", TASKS, TOKEN, body=b"[1, 2]", told=told)[0] == 429
    assert 150 < int(told["retry-after"]) <= 200
    assert app.ask("POST", TASKS, TOKEN, body=b"{", told=told)[0] == 429
    assert 50 < int(told["retry-after"]) <= 100


def test_a_body_that_does_not_come_counts(serve):
    """The submitter goes away instead."""
    app = serve(submitters=Submitters({"shop": SHOP}))
    for _ in range(2):
        with pytest.raises(ClientDisconnect):
            app.ask("POST", TASKS, TOKEN, body=None)
    assert app.ask("POST", TASKS, TOKEN, body=b"{}")[0] == 429


def test_an_id_in_a_path_is_whole(serve):
    text = serve(submitters=Submitters({"shop": SHOP})).ask("DELETE", f"{TASKS}/other:a\n", TOKEN)[
        1
    ]
    assert json.loads(text)["error"] == r"you have no task 'other:a\n'"


def test_a_page_whose_path_ends_in_a_line_break_is_that_page(serve):
    app = serve()
    assert [app.ask("GET", path)[0] for path in ("/\n", "/view/nodes\n", "/static/page.css\n")] == [
        200
    ] * 3


def test_an_operator_is_told_on_a_page_that_there_is_too_much_to_do(serve):
    app = serve(auth=OperatorAuth("demo", {}, "X-User", read_proxies(["10.0.0.9"])))
    fill_writer(app)
    status, text, _ = app.ask("GET", "/operator/drain", {"X-User": "bob"}, "node=n1")
    assert (status, "too many requests at a time" in text, "</html>" in text) == (503, True, True)


def test_a_link_from_elsewhere_logs_nobody_out(serve, tmp_path):
    """A browser sends no cookie behind such a link, and keeps what it is given there."""
    hash = hashlib.scrypt(b"correct horse", salt=bytes(16), n=2, r=1, p=1, dklen=32).hex()
    (tmp_path / "operators").write_text(f"alice:scrypt:2:1:1:{bytes(16).hex()}:{hash}\n")
    app = serve(auth=OperatorAuth("demo", load_operators(tmp_path / "operators")))
    _, text, jar = app.ask("GET", "/operator")
    (mark,) = re.findall(r'name="mark" value="(\w+)"', text)
    form = f"mark={mark}&name=alice&password=correct+horse".encode()
    status, _, given = app.ask("POST", "/operator/login", cookies(jar), body=form)
    assert status == 303
    jar |= given
    jar |= app.ask("GET", "/operator/drain", query="node=n1")[2]
    assert "Operator alice" in app.ask("GET", "/operator", cookies(jar))[1]


class Follower:
    """Follows a stream until it leaves."""

    def __init__(self, app, path, peer="10.0.0.9"):
        self.told = dict[str, Any]()
        self._gone = asyncio.Event()
        asked = ask(app, "GET", path, STREAM, peer=peer, told=self.told, gone=self._gone)
        self._answer = asyncio.ensure_future(asked)

    async def status(self):
        """Return the status of the answer, once it has begun."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.told:
                await asyncio.sleep(0.001)
        return self.told["status"]

    async def leave(self):
        self._gone.set()
        await asyncio.wait_for(self._answer, PATIENCE_S)


@pytest.mark.parametrize("path", ["/view/nodes", "/events"])
def test_a_viewer_beyond_the_limit_is_refused_until_another_viewer_leaves(serve, path, monkeypatch):
    """An address gets another place while it has fewer places than are free: two of four."""
    for module in (pages, feed):
        monkeypatch.setattr(module, "MOST_VIEWERS", 4)
    app = serve().app

    async def look():
        first, second, third = (Follower(app, path) for _ in range(3))
        assert [await one.status() for one in (first, second, third)] == [200, 200, 503]
        assert third.told["retry-after"] == "10"
        other = Follower(app, path, peer="10.0.0.8")
        assert await other.status() == 200, "one address does not take the places of another"
        assert (await ask(app, "HEAD", path, STREAM))[0] == 200, "it takes no place, and needs none"
        await other.leave()
        await first.leave()
        fourth = Follower(app, path)
        assert await fourth.status() == 200
        assert (await ask(app, "GET", path, STREAM))[0] == 503
        for one in (second, third, fourth):
            await one.leave()

    asyncio.run(look())


def test_an_address_with_many_requests_leaves_places_to_others_and_health_needs_none(client):
    """Streams are requests that last. IPv6 addresses of one network are one."""
    with closing(Asker(client)) as asker:
        app = make_app(Surveyor(client), asker, EventFeed(client), "demo", ["*"], requests=4)

        async def look():
            addresses = ("2001:db8::1", "2001:db8::2", "2001:db8::3")
            followers = [Follower(app, "/events", peer) for peer in addresses]
            assert [await one.status() for one in followers] == [200, 200, 503]
            assert followers[2].told["retry-after"] == "1"
            other = Follower(app, "/events", "::ffff:10.0.0.9")
            assert await other.status() == 200
            for path, status in (
                ("/api/v1", 503),
                ("/healthz", 503),
                ("/readyz", 503),
                ("/metrics", 200),
            ):
                answer = await ask(app, "GET", path, peer="10.0.0.9")
                assert (answer[0], "too many" in answer[1]) == (status, path == "/api/v1")
            for one in (*followers, other):
                await one.leave()
            assert (await ask(app, "GET", "/api/v1", peer="2001:db8::1"))[0] == 200

        asyncio.run(look())


@pytest.mark.parametrize("path", ["/view/nodes", "/events"])
def test_a_head_follows_nothing(serve, path):
    """The answer to HEAD ends, although the client stays connected."""

    async def look():
        told = dict[str, Any]()
        async with asyncio.timeout(PATIENCE_S):
            await ask(app, "HEAD", path, STREAM, told=told)
        return told["status"], told["content-type"]

    app = serve().app
    kind = "text/html" if path == "/view/nodes" else "text/event-stream"
    assert asyncio.run(look()) == (200, f"{kind}; charset=utf-8")


def cookies(jar):
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}


def fill_writer(app):
    (writer,) = [one for one in app.write_access.opened if isinstance(one, Writer)]
    writer._waiting = MOST_WAITING_REQUESTS


def test_a_signal_that_came_before_the_server_was_up_stops_it():
    ended = []
    with closing(listen("127.0.0.1", 0)) as listening:
        thread = Thread(
            target=run, args=(Starlette(), listening, lambda: ended.append(1), [15]), daemon=True
        )
        thread.start()
        joined(thread, "a server that was told to stop")
    assert ended == [1]

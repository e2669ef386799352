"""A server with the file of users that `parsync acl` prints reads its own append-only file after a
restart.

A script's writes are a transaction in that file. Redis 7.0, and other versions of Redis and Valkey,
run it again with the rights of the default user: https://github.com/redis/redis/issues/14541,
https://github.com/valkey-io/valkey/issues/3983.
"""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from parsync_redis.model.ids import new_id
from parsync_redis.model.task import Submission
from parsync_redis.security.acl_tables import Role
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.logins import CLUSTER
from tests.kit.oracle.audit import audit
from tests.kit.servers import server_programs
from tests.kit.waiting import PATIENCE_S, run, until

ADMIN = "user admin on >pw-admin ~* &* +@all\n"
REFUSED = ("-NOAUTH", "-WRONGPASS", "-ERR wrong number of arguments")


@pytest.fixture(
    scope="module", params=list(server_programs().values()), ids=list(server_programs())
)
def closed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """Yield a server with the append-only file, closed by a file of users."""
    folder = tmp_path_factory.mktemp("secrets")
    for role in Role:
        (folder / role).write_text(f"pw-{role}")
    command = [
        sys.executable,
        "-m",
        "parsync_redis.cli",
        "acl",
        "--cluster",
        CLUSTER,
        "--close-default",
    ]
    printed = run(
        [*command, "--password-file", str(folder)], capture_output=True, text=True, check=True
    ).stdout
    users = folder / "users.acl"
    users.write_text(printed + ADMIN)
    with EmbeddedServer(request.param, aof=True, options={"aclfile": users}) as server:
        yield server


class Line:
    """A connection that says only what it is told to: redis-py sends HELLO first."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *error: object) -> None:
        self._answers.close()
        self._socket.close()

    def say(self, *words: str) -> str:
        """Send a command; return the first line of its answer, '' if the server has hung up."""
        self._socket.sendall(
            "".join(
                [f"*{len(words)}\r\n", *(f"${len(one)}\r\n{one}\r\n" for one in words)]
            ).encode()
        )
        return self._answers.readline().decode().rstrip("\r\n")


def login(server: EmbeddedServer, user: str, password: str) -> Store:
    """Return the store with a login."""
    return Store.from_url(server.url.replace("//", f"//{user}:{password}@"), CLUSTER)


def test_a_server_with_logins_keeps_its_tasks_over_a_restart(closed: EmbeddedServer) -> None:
    store = login(closed, f"{CLUSTER}-worker", "pw-worker")
    id = new_id()
    try:
        assert store.run(store.commands.submit([Submission(id, "work", b"{}")])) == ["submitted"]
        closed.restart()
        with redis.Redis(port=closed.port, username="admin", password="pw-admin") as client:
            until(lambda: not client.info("persistence")["loading"])
        assert store.states([id]) == ["pending"]
    finally:
        store.client.close()
    admin = login(closed, "admin", "pw-admin")
    assert audit(admin) == []
    admin.client.close()


def test_the_default_user_of_a_closed_server_cannot_log_in(closed: EmbeddedServer) -> None:
    for words in (
        ("PING",),
        ("SET", "key", "value"),
        ("AUTH", "default", "x"),
        ("AUTH", "x"),
        ("AUTH", "default", ""),
        ("AUTH", ""),
        ("HELLO", "3", "AUTH", "default", ""),
    ):
        with Line(closed) as line:
            assert line.say(*words).startswith(REFUSED), words
            assert line.say("SET", "key", "value").startswith("-NOAUTH"), words
    with Line(closed) as line:
        assert [line.say("AUTH", "admin", "pw-admin"), line.say("RESET")] == ["+OK", "+RESET"]
        assert line.say("SET", "key", "value").startswith("-NOAUTH")


def test_a_connection_without_a_login_works_until_it_is_killed(closed: EmbeddedServer) -> None:
    """ACL LOAD leaves the connections of the default user open, with the rights that it had."""
    with redis.Redis(port=closed.port, username="admin", password="pw-admin") as admin:
        users = Path(admin.config_get("aclfile")["aclfile"])
        text = users.read_text()
        try:
            users.write_text(f"user default on nopass ~* &* +@all\n{ADMIN}")
            admin.execute_command("ACL", "LOAD")
            line = Line(closed)
            assert line.say("PING") == "+PONG"
        finally:
            users.write_text(text)
            admin.execute_command("ACL", "LOAD")
        with line:
            assert line.say("SET", "key", "value") == "+OK"
            assert admin.execute_command("CLIENT", "KILL", "USER", "default") == 1
            assert line.say("PING") == ""

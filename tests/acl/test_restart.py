"""A server with the file of users that `parsync acl` prints reads its own append-only file after a restart.

A script's writes are a transaction in that file. Redis 7.0, and other versions of Redis and Valkey, run it again with
the rights of the default user: https://github.com/redis/redis/issues/14541, https://github.com/valkey-io/valkey/issues/3983.
"""

import sys
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from parsync_redis.inspect.audit import audit
from parsync_redis.model.ids import new_id
from parsync_redis.model.task import Submission
from parsync_redis.security.acl_tables import Role
from parsync_redis.store import Store
from parsync_redis.store.embedded import EmbeddedServer
from tests.conftest import server_programs
from tests.waiting import run, until

from .conftest import CLUSTER

ADMIN = "user admin on >pw-admin ~* &* +@all\n"


@pytest.fixture(scope="module", params=list(server_programs().values()), ids=list(server_programs()))
def closed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server with the append-only file, closed by a file of users."""
    folder = tmp_path_factory.mktemp("secrets")
    for role in Role:
        (folder / role).write_text(f"pw-{role}")
    command = [sys.executable, "-m", "parsync_redis.cli", "acl", "--cluster", CLUSTER, "--close-default"]
    printed = run([*command, "--password-file", str(folder)], capture_output=True, text=True, check=True).stdout
    users = folder / "users.acl"
    users.write_text(printed + ADMIN)
    with EmbeddedServer(request.param, aof=True, options={"aclfile": users}) as server:
        yield server


def login(server: EmbeddedServer, user: str, password: str) -> Store:
    """The store with a login."""
    return Store.from_url(server.url.replace("//", f"//{user}:{password}@"), CLUSTER)


def test_a_closed_server_has_its_tasks_after_a_restart(closed: EmbeddedServer) -> None:
    store, id = login(closed, f"{CLUSTER}-worker", "pw-worker"), new_id()
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


def test_nobody_is_the_default_user_of_a_closed_server(closed: EmbeddedServer) -> None:
    with redis.Redis(port=closed.port, retry=Retry(NoBackoff(), 0)) as client:
        for words in ("PING", "SET key value", "AUTH default x", "AUTH x", ("AUTH", "default", ""), ("AUTH", "")):
            with pytest.raises(redis.exceptions.AuthenticationError):
                client.execute_command(*(words.split() if isinstance(words, str) else words))

"""A server that answers and does not carry the request out: each reason is one clear error, and nothing was written."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.errors import ServerReadOnly, ServerUnreachable
from parsync_redis.inspect.checkup import check_up
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.oracle.audit import audit
from tests.kit.servers import server_programs
from tests.kit.small_cluster import LEASE_S, SmallCluster
from tests.kit.waiting import joined


@pytest.fixture
def own() -> Iterator[EmbeddedServer]:
    """Yield a server of this test's own: Redis, if it is there."""
    program = list(server_programs().values())[-1]
    with EmbeddedServer(
        program, options={"busy-reply-threshold": 100, "enable-debug-command": "yes"}
    ) as server:
        yield server


@pytest.fixture
def small_cluster(own: EmbeddedServer) -> Iterator[SmallCluster]:
    """Yield a cluster with a node; whatever happens to the server, it goes on afterwards."""
    small_cluster = SmallCluster(own.url, "refusing")
    small_cluster.node("n1", 2)
    yield small_cluster
    until_s = time.monotonic() + LEASE_S
    try:
        small_cluster.wait(lambda: time.monotonic() > until_s, "a lease goes by")
        small_cluster.submit("after")
        small_cluster.wait(
            lambda: small_cluster.done(["after"]), "it goes on by itself", working=True
        )
        assert small_cluster.incs["n1"] == 1, "nobody was given up"
    finally:
        small_cluster.close()
    assert not audit(small_cluster.store)


def client(small_cluster: SmallCluster, own: EmbeddedServer) -> ParsyncClient:
    """Return a client that has met the server when all was well, and does not wait for long."""
    made = ParsyncClient.from_url(own.url, "refusing")
    made.check()
    made.requests.retry_for_s = 0.2
    return made


def test_a_replica(small_cluster: SmallCluster, own: EmbeddedServer) -> None:
    admin: Any = small_cluster.store.client
    with client(small_cluster, own) as asking:
        # nobody is there, so that its data stays
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(
            ServerReadOnly, match=r"is a read-only replica of 127\.0\.0\.1:1, nothing was done"
        ):
            asking.submit("job", id="a")
        admin.execute_command("REPLICAOF", "NO", "ONE")
        assert asking.status("a").state == "gone"


def test_too_few_replicas(small_cluster: SmallCluster, own: EmbeddedServer) -> None:
    admin: Any = small_cluster.store.client
    with client(small_cluster, own) as asking:
        admin.config_set("min-replicas-to-write", 1)
        with pytest.raises(
            ServerReadOnly, match="takes no writes, nothing was done: it has fewer replicas in step"
        ):
            asking.submit("job", id="a")
        admin.config_set("min-replicas-to-write", 0)
        assert asking.status("a").state == "gone"


def test_somebodys_endless_script(small_cluster: SmallCluster, own: EmbeddedServer) -> None:
    with (
        client(small_cluster, own) as asking,
        Store.from_url(own.url, "x").client as other,
        Store.from_url(own.url, "x").client as end,
    ):
        endless = threading.Thread(
            target=lambda: _ignore(lambda: other.eval("while true do end", 0))
        )
        endless.start()
        try:
            until_busy(end)
            with pytest.raises(
                ServerUnreachable,
                match="does not serve now: a script of somebody runs for too long",
            ):
                asking.submit("job", id="a")
        finally:
            end.script_kill()
            joined(endless)


def test_no_room_for_another_client(small_cluster: SmallCluster, own: EmbeddedServer) -> None:
    admin: Any = small_cluster.store.client
    with client(small_cluster, own) as asking:
        asking.store.client.connection_pool.disconnect()
        admin.config_set("maxclients", 1)
        try:
            with pytest.raises(
                ServerUnreachable, match="lets nobody in: max number of clients reached"
            ):
                asking.submit("job", id="a")
        finally:
            admin.config_set("maxclients", 1000)


def test_a_server_that_loads_its_data(own: EmbeddedServer) -> None:
    store = Store.from_url(own.url, "loads")
    store.client.execute_command("CONFIG", "SET", "key-load-delay", "1000")
    admin: Any = store.client
    admin.mset({f"k{n}": "v" for n in range(1000)})
    admin.execute_command("CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
    admin.save()
    other = Store.from_url(own.url, "loads")
    loading = threading.Thread(
        target=lambda: _ignore(lambda: admin.execute_command("DEBUG", "RELOAD", "NOSAVE"))
    )
    loading.start()
    deadline = time.monotonic() + 180
    seen = ""
    while not seen and time.monotonic() < deadline:
        try:
            other.run(other.commands.configure({}))
        except ServerUnreachable as error:
            seen = str(error)
    admin.close()
    joined(loading)
    assert "does not serve yet: it loads its data" in seen


def _ignore(request: Any) -> None:
    try:
        request()
    except Exception:
        return


def until_busy(client: Any) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            client.ping()
        except Exception as error:
            if "BUSY" in str(error):
                return
    pytest.fail("the server is not busy")


def test_the_doctor_goes_on_where_the_server_has_no_config_command(tmp_path: Path) -> None:
    renamed = tmp_path / "renamed.conf"
    renamed.write_text('rename-command CONFIG ""\n')
    with EmbeddedServer(
        list(server_programs().values())[-1], options={"include": renamed}
    ) as server:
        checks = {
            check.name: check
            for check in check_up(Store.from_url(server.url, "none"), Settings(url=server.url))
        }
    assert "does not tell this login its settings" in checks["lists"].text
    assert checks["persistence"].level == "warn"

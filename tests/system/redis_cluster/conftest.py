"""Fixtures: a cluster of three primaries for each server program, and one with replicas for tests
that kill.
"""

from collections.abc import Iterator
from itertools import count
from zlib import crc32

import pytest

from parsync_redis.store import Store
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.servers import server_programs

_numbers = count(1)

SLOW: dict[str, object] = {"cluster-node-timeout": 4000}
"""A server that a busy machine keeps waiting for a second is not taken for dead."""


@pytest.fixture(scope="session", params=list(server_programs()))
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Yield three primaries, once for each server program; tests leave them as they were."""
    with EmbeddedCluster(3, program=server_programs()[request.param], options=SLOW) as cluster:
        yield cluster


@pytest.fixture
def replicated(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Yield three primaries with a replica each, for a test that may kill them.

    The fixture is expensive. So each test runs on one server program, always the same, and each
    program has its share of the tests.
    """
    programs = list(server_programs().values())
    program = programs[crc32(request.node.name.encode()) % len(programs)]
    with EmbeddedCluster(3, 1, program=program, options=SLOW) as cluster:
        yield cluster


@pytest.fixture
def spread(cluster: EmbeddedCluster) -> Iterator[Store]:
    """Yield a store of one shard on an empty cluster of three primaries."""
    store = Store(connect(cluster.url), f"spread{next(_numbers)}")
    store.load_scripts()
    yield store
    store.client.flushall()
    store.disconnect()

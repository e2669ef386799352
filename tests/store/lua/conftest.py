"""Fixtures of the tests of the scripts."""

import pytest

from parsync_redis.store import Store
from tests.kit.driver import Driver


@pytest.fixture
def drive(any_store: Store) -> Driver:
    """Return a driver of an empty cluster, on fakeredis and on each real server."""
    return Driver(any_store)

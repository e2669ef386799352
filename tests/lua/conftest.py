"""Fixtures of the tests of the scripts."""

import pytest

from parsync_redis.store import Store
from tests.dealt import MARK, deal
from tests.lua.driver import Driver


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of these tests."""
    config.addinivalue_line("markers", MARK)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal the cases of large matrices to the servers."""
    deal(config, items)


@pytest.fixture
def drive(any_store: Store) -> Driver:
    """Return a driver of an empty cluster, on fakeredis and on each real server."""
    return Driver(any_store)

"""The pytest plug-in: fixtures for the tests of an app that uses parsync.

docs/testing.md shows the fixtures. pytest imports this module in each of its runs, so everything
else is imported by the fixture that needs it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .cluster import TestCluster
    from .eager import Eager

INI = "parsync_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option that names the app."""
    parser.addini(
        INI, "The Celery app of the parsync fixtures, as in `celery -A`: proj or proj.celery:app"
    )


@pytest.fixture(scope="session")
def parsync_app(pytestconfig: pytest.Config) -> Any:
    """Return the Celery app that the ini option parsync_app names.

    Override this fixture to return another.
    """
    named = pytestconfig.getini(INI)
    if not named:
        pytest.fail(
            f"parsync does not know the app to test: set the ini option {INI} = proj.celery:app, "
            f"or override the fixture {INI} so that it returns the app",
            pytrace=False,
        )
    from celery.app.utils import find_app

    try:
        return find_app(named)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"the ini option {INI} = {named} names no Celery app: {error}", pytrace=False)


@pytest.fixture(scope="session")
def parsync_node() -> dict[str, Any]:
    """Return what the node of `parsync_cluster` offers.

    Override it: {"slots": 4, "resources": {"mem": "4GiB"}}.
    """
    return {}


@pytest.fixture(scope="session")
def parsync_session_cluster(
    parsync_app: Any, parsync_node: dict[str, Any]
) -> Iterator["TestCluster"]:
    """Run the cluster of all tests; a test uses `parsync_cluster`."""
    from ..errors import ParsyncError
    from .cluster import TestCluster

    try:
        cluster = TestCluster(parsync_app, parsync_node)
        cluster.start()
    except ParsyncError as error:
        pytest.fail(f"parsync_cluster: {error}", pytrace=False)
    yield cluster
    cluster.stop()


@pytest.fixture
def parsync_cluster(parsync_session_cluster: "TestCluster") -> Iterator["TestCluster"]:
    """Give the test a server, a scheduler and a node of the app in this process.

    Remove the test's tasks and results afterwards.
    """
    yield parsync_session_cluster
    parsync_session_cluster.reset()


@pytest.fixture
def parsync_eager(parsync_app: Any) -> Iterator["Eager"]:
    """Run tasks of the app where the test calls them, after the checks of a submit.

    `parsync_eager(nodes=[{"slots": 2}])` also refuses tasks that none of these nodes could hold.
    """
    from .eager import Eager

    with Eager(parsync_app) as eager:
        yield eager

"""Help for the tests of apps that use parsync.

There is a cluster in the test's process, and an eager mode that checks options. plugin.py is the
pytest plug-in. Without pytest: `with TestCluster(app) as cluster`, `with Eager(app) as eager`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import TestCluster
    from .eager import Eager

__all__ = ["Eager", "TestCluster"]

_MODULE_OF_TEST_NAME = {"Eager": "eager", "TestCluster": "cluster"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: pytest imports this package in each of its runs."""
    if name not in _MODULE_OF_TEST_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(
        import_module(f".{_MODULE_OF_TEST_NAME[name]}", __name__), name
    )
    return value

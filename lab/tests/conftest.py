"""The lab's tests have the servers of the other tests."""

from tests.conftest import pytest_generate_tests, server, server_kind, servers

__all__ = ["pytest_generate_tests", "server", "server_kind", "servers"]

"""A server with the logins of all roles."""

from collections.abc import Iterator

import pytest

from parsync_redis.security.acl import RightsOptions
from tests.kit.logins import Guarded
from tests.kit.servers import server_programs


@pytest.fixture(scope="module", params=list(server_programs()))
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    """Yield a guarded server, once for each program."""
    guarded = Guarded(
        server_programs()[request.param], RightsOptions(submitters=True, operators=True)
    )
    yield guarded
    guarded.stop()

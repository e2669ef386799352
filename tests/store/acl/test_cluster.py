"""Every role works with its login on a Redis Cluster, default user off, and nothing is denied to
any.
"""

from collections.abc import Iterator

import pytest

from parsync_redis.security.acl import RightsOptions
from parsync_redis.security.acl_tables import Role
from tests.kit.logins import Guarded
from tests.kit.servers import server_programs
from tests.store.acl.test_stack import Site

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module", params=list(server_programs()))
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    program = server_programs()[request.param]
    guarded = Guarded(program, RightsOptions(scan=True, results=False, queues=()), primaries=3)
    broker = Guarded(program, RightsOptions(("celery",)))
    site = Site(guarded, tmp_path_factory.mktemp("site"))
    site.stack.env["TILES_BROKER_URL"] = broker.address(Role.WORKER)
    try:
        site.start()
        yield site
    finally:
        site.stack.stop()
        guarded.stop()
        broker.stop()


def test_every_role_works_on_a_cluster_and_nothing_is_denied(site: Site):
    site.use_client()
    for words in (("nodes",), ("tasks",), ("doctor", "--audit")):
        done = site.parsync(Role.VIEWER, *words)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert {what for who, what in site.guarded.denials() if "viewer" not in who} == set()
    assert {what for _, what in site.guarded.denials()} <= {"config|get"}, "doctor may try"
    assert "Traceback" not in site.lines()

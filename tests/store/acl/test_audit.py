"""A viewer that may scan audits with the scripts that look, and can repair nothing with them."""

from collections.abc import Iterator
from typing import Any

import pytest

from parsync_redis.errors import AccessDenied
from parsync_redis.inspect.audit import audit
from parsync_redis.inspect.checkup import check_up
from parsync_redis.inspect.server_checks import Check
from parsync_redis.model.task import Submission
from parsync_redis.security.acl import RightsOptions
from parsync_redis.security.acl_tables import Role
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.scripts.calls import Call
from tests.kit.driver import Driver, dump
from tests.kit.logins import CLUSTER, Guarded

ID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[Store]:
    """Return an admin's store of a cluster in which a task waits and a task holds a slot."""
    store = Store(guarded.admin, CLUSTER)
    join_cluster(store, settings(guarded), create=True)
    drive = Driver(store)
    drive.node("n1", 4)
    drive.held("holds", drive.taken("holds"))
    store.run(store.commands.submit([Submission(ID, "work", b"{}")]))
    yield store
    store.client.flushall()


@pytest.fixture
def viewer(guarded: Guarded, admin: Store) -> Iterator[Store]:
    """Return the store of a viewer that may scan."""
    guarded.login(guarded.admin, Role.VIEWER, RightsOptions(scan=True))
    guarded.admin.execute_command("ACL", "LOG", "RESET")
    store = Store.from_url(guarded.url(Role.VIEWER), CLUSTER)
    store.keys.shards = admin.keys.shards
    yield store
    store.client.close()
    guarded.login(guarded.admin, Role.VIEWER)


def settings(guarded: Guarded) -> Settings:
    return Settings.load(url=guarded.url(Role.VIEWER), cluster=CLUSTER)


def audit_check(guarded: Guarded, store: Store) -> Check:
    (check,) = [c for c in check_up(store, settings(guarded), True) if c.name == "audit"]
    return check


def test_a_viewer_audits_and_is_denied_nothing(guarded: Guarded, viewer: Store) -> None:
    assert audit(viewer) == []
    admin: Any = guarded.admin
    admin.hdel(viewer.keys.queue("messages"), ID)
    admin.hset(viewer.keys.partition(0, "left"), "n1", "gpu=3")
    admin.lpush(viewer.keys.inbox(0, "n9"), "x")
    check = audit_check(guarded, viewer)
    assert check.level == "fail"
    for words in (f":tasks {ID}: ", ":left n1: ", "there is an inbox of n9"):
        assert words in check.text
    assert {what for _, what in guarded.denials()} <= {"config|get"}


def test_the_scripts_that_look_repair_nothing_for_a_viewer(
    guarded: Guarded, admin: Store, viewer: Store
) -> None:
    guarded.admin.hset(viewer.keys.partition(0, "left"), "n1", "no amounts")
    guarded.admin.hset(viewer.keys.queue("meta"), "floor", "x")
    before = dump(admin)
    calls: list[Call[Any]] = [
        viewer.commands.repair_partition(0, "shut"),
        viewer.commands.repair_partition(0, "open"),
        viewer.commands.repair_queue(0),
    ]
    for call in calls:
        with pytest.raises(AccessDenied):
            viewer.run(call)
    assert dump(admin) == before


def test_a_viewer_is_told_who_loads_the_scripts(guarded: Guarded, viewer: Store) -> None:
    guarded.admin.script_flush()
    check = audit_check(guarded, viewer)
    assert check.level == "fail"
    assert "a scheduler of this version does" in check.text


def test_a_viewer_without_the_rights_gets_the_other_checks_and_is_told_which_login_audits(
    guarded: Guarded, viewer: Store
) -> None:
    guarded.login(guarded.admin, Role.VIEWER)
    check = audit_check(guarded, viewer)
    assert (check.level, check.repair) == (
        "fail",
        "audit with a viewer's login that parsync acl --scan of this version prints",
    )

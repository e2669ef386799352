"""The leader rebuilds the keys of a shard and of a partition from what is left. Promises 1, 3 and 10."""

from typing import Any

import pytest

from parsync_redis.inspect.audit import audit
from parsync_redis.model.task import TaskState
from parsync_redis.scheduler.janitor import Janitor
from tests.lua.driver import Driver

LEASE_S = 10.0


@pytest.fixture
def busy(drive: Driver) -> Driver:
    """Return a cluster with a task in each state."""
    drive.node("n1", slots=4, resources={"gpu": 4})
    drive.bring(TaskState.DEAD, "dead")
    drive.submit("delayed", delay_ms=10**8)
    drive.submit("waits", expiry_ms=10**8)
    drive.submit("waits too", {"slots": 2}) if False else drive.submit("waits2", {"slots": 2})
    drive.submit("taken", name="other")
    return drive


def leader(drive: Driver) -> Janitor:
    janitor = Janitor(drive.store, 1, LEASE_S)
    janitor.work(lambda: 0.0, {"s1": 1})
    return janitor


@pytest.mark.parametrize("field", ["submitted", "version", "floor", "shards"])
@pytest.mark.parametrize("value", ["x", "1", "999999999999999", ""])
def test_meta(busy: Driver, field: str, value: str) -> None:
    janitor = leader(busy)
    client: Any = busy.store.client
    client.hset(busy.keys.queue("meta"), field, value)
    for _ in range(3):
        janitor.work(lambda: 0.0, {"s1": 1})
    assert audit(busy.store) == [], busy.store.hash(busy.keys.queue("meta"))
    assert busy.submit("new") == "submitted"

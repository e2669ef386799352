"""An app whose broker is another server than parsync's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from parsync_redis.store.embedded import EmbeddedServer
from tests.conftest import server_programs

from .conftest import Rig

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedServer]:
    """The server that is only the broker."""
    with EmbeddedServer(next(iter(server_programs().values()))) as server:
        yield server


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig], broker: EmbeddedServer) -> Rig:
    """A scheduler, and a node whose broker is the other server."""
    rig = new_rig(CELERY_BROKER_URL=broker.url)
    rig.schedulers()
    rig.worker("n1", pool="solo")
    return rig


def test_tasks_run_and_nothing_of_parsync_is_on_the_broker(rig: Rig, broker: EmbeddedServer) -> None:
    results = [rig.tasks.add.delay(i, 1) for i in range(20)]
    assert [result.get(timeout=20) for result in results] == list(range(1, 21))
    with Redis.from_url(broker.url) as client:
        keys: Any = client.keys("*")
    assert keys
    assert not [key for key in keys if b"parsync" in key]

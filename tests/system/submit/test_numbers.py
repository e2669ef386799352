"""A refusal names the number of the task, whatever the client knows of the apps."""

from typing import Any

import pytest

from parsync_redis import InvalidInput, ParsyncClient
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.needs import Resources
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.worker.node.node import NodeSpec

pytestmark = pytest.mark.one_server(0)


def test_a_client_names_the_number_of_a_bad_task_in_its_first_call_and_in_later_calls(
    store: Store,
) -> None:
    """The task is bad only together with what its app declares."""
    url = f"redis://{store.address}/0"
    join_cluster(store, Settings.load(url=url, cluster=store.keys.cluster), create=True)
    known = KnownTasks.of({"g": {"resources": {f"a{i}": 1 for i in range(60)}}})
    NodeSpec("n1", offer_with(Resources.of(1), known, ["celery"]), 1.0, known).tell(store)
    tasks: list[Any] = [("g",), {"name": "g", "require": {f"b{i}": "1" for i in range(60)}}]
    with ParsyncClient.from_url(url, store.keys.cluster) as client:
        for _ in range(2):
            with pytest.raises(InvalidInput, match=r"^task 1: 120 resources"):
                client.submit_many(tasks)

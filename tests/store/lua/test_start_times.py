"""The order of a tenant in the policy decides when its submitted tasks should start."""

import logging
from collections import Counter
from typing import Any

import pytest

from parsync_redis.client.start_times import StartTimes
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.model.times import RunTimes
from parsync_redis.store import Store
from parsync_redis.store.policy import change_policy

DOCUMENT = """
[tenants.quick]
order = "shortest"
[tenants.plain]
[tenants.strange]
order = "unheard"
"""


def tasks(*pairs: tuple[str, str]) -> list[Submission]:
    """Return a task for each pair of a name and a tenant."""
    return [
        Submission(f"{name}-{tenant}", name, b"", TaskOptions(tenant=tenant))
        for name, tenant in pairs
    ]


@pytest.fixture
def ordered(any_store: Store) -> Store:
    """Return a store with the policy, and with learnt run times of `long` and `short`."""
    change_policy(any_store, lambda _: DOCUMENT, "maria")
    times = {
        "long": RunTimes(1, 600_000.0, Counter({60: 1})),
        "short": RunTimes(1, 1_000.0, Counter({10: 1})),
    }
    any_store.run(any_store.commands.learn_times(times))
    return any_store


@pytest.mark.unaudited
def test_a_tenant_whose_order_is_shortest_starts_short_tasks_first(ordered: Store):
    start_times = StartTimes(ordered)
    given = start_times.give(
        tasks(("long", "quick"), ("short", "quick"), ("new", "quick"), ("long", "plain"))
    )
    starts = [task.start_ms for task in given]
    assert starts[3] is None
    long_ms, short_ms, new_ms, _ = starts
    assert (short_ms, new_ms, long_ms) == (10_000, 600_000, 6_000_000)
    ordered.run(ordered.commands.submit(given, ()))
    waiting: Any = ordered.client
    order = {
        task.id: waiting.zscore(ordered.keys.pending(task.kind.text), task.id) for task in given
    }
    assert order["short-quick"] < order["new-quick"] < order["long-quick"]


@pytest.mark.unaudited
def test_tasks_without_a_tenant_read_nothing(ordered: Store):
    bare = tasks(("long", ""))
    ordered.client.close()
    assert StartTimes(ordered).give(bare) is bare


@pytest.mark.unaudited
def test_an_order_that_this_process_lacks_counts_as_age_and_is_logged_once(
    ordered: Store, caplog: pytest.LogCaptureFixture
):
    start_times = StartTimes(ordered)
    with caplog.at_level(logging.WARNING, "parsync"):
        for _ in range(2):
            (task,) = start_times.give(tasks(("long", "strange")))
            assert task.start_ms is None
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "tasks of tenant strange go by age"
    ]

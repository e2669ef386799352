"""A cluster whose queue has four shards: its users notice no difference."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery import Celery, chord, group
from celery.result import AsyncResult

from parsync_redis import Parsync, ParsyncClient
from parsync_redis.errors import ClusterMismatch
from parsync_redis.model.ids import shard_of
from parsync_redis.store.cluster import join_cluster
from tests.kit.oracle.audit import audit
from tests.kit.rig import CLUSTER, LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180
SHARDS = 4
ADD = "tests.kit.apps.marks.add"
NAMED = [f"render {number}" for number in range(20)]


@pytest.fixture(scope="module")
def early(tasks: Any) -> Iterator[ParsyncClient]:
    """Yield a client that has asked for a task before there was a cluster."""
    with ParsyncClient.from_url(tasks.STATE, CLUSTER) as client:
        yield client


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig], early: ParsyncClient, tasks: Any) -> Iterator[Rig]:
    """Yield a rig with two schedulers and two prefork nodes of two slots."""
    rig = new_rig(PARSYNC_SHARDS=str(SHARDS))
    assert early.status(NAMED[0]).state == "gone"
    rig.schedulers(2, lease_s=LONG_LEASE_S)
    for node in ("n1", "n2"):
        rig.worker(node, up=False)
    rig.until_up("n1", "n2")
    rig.store.config()
    assert rig.store.keys.shards == SHARDS
    yield rig
    # the next module's cluster has the same name, and other shards
    keys = tasks.app.parsync.client.store.keys
    keys.shards = keys.usual_shards


def get(results: list[Any]) -> list[Any]:
    return [result.get(timeout=GET_S) for result in results]


def shards_of(ids: list[str]) -> set[int]:
    return {shard_of(id, SHARDS) for id in ids}


def test_a_client_from_before_the_cluster_submits_into_the_right_shards(
    rig: Rig, early: ParsyncClient
) -> None:
    ids = [early.submit(ADD, args=(1, n), id=name) for n, name in enumerate(NAMED)]
    made = early.submit_many([(ADD, (1, n)) for n in range(20)])
    assert len(shards_of(made)) == 1
    assert Counter(
        status.state for status in early.wait([*ids, *made], timeout=GET_S).values()
    ) == {"succeeded": 40}
    assert rig.client.purge("succeeded", older_than_s=0.0) >= 40


def test_tasks_of_all_shards_run_once_and_their_results_come(rig: Rig) -> None:
    results = [rig.tasks.noted.delay(f"t{n}") for n in range(60)]
    assert shards_of([result.id for result in results]) == {*range(SHARDS)}
    assert get(results) == [f"t{n}" for n in range(60)]
    assert set(rig.counts("begin").values()) == {1}
    assert (
        chord(group(rig.tasks.add.s(n, n) for n in range(8)), rig.tasks.total.s())
        .delay()
        .get(timeout=GET_S)
        == 56
    )
    assert rig.tasks.flaky.delay(2).get(timeout=GET_S) is not None


def test_tasks_of_all_shards_are_cancelled_and_their_results_say_so(rig: Rig) -> None:
    holders = [rig.tasks.gated.delay(f"held{n}") for n in range(4)]
    rig.until(lambda: len(rig.marks("held")) == 4, "all slots are held")
    waiting = [rig.tasks.add.delay(1, n) for n in range(30)]
    # a scheduler with an old copy of the nodes may have taken some, for a moment
    demand = [(ADD, 30)]
    rig.until(
        lambda: [(kind.name, kind.waiting) for kind in rig.client.demand()] == demand,
        "all the others wait",
    )
    with Celery("elsewhere", broker=rig.broker, backend=rig.broker, set_as_current=False) as app:
        first = Parsync(app, url=rig.url, cluster=CLUSTER)
        assert first.revoke(waiting[0].id, False, None), (
            "its first request to this cluster finds the task"
        )
    words = rig.client.cancel_many([result.id for result in waiting[1:11]])
    assert Counter(words.values()) == {"cancelled": 10}
    assert rig.client.cancel_where(name=ADD) == {"cancelled": 19}
    rig.until(
        lambda: {AsyncResult(r.id, app=rig.tasks.app).state for r in waiting} == {"REVOKED"},
        "all say so",
    )
    rig.open()
    assert get(holders) == [f"held{n}" for n in range(4)]


def test_lost_and_dead_tasks_of_all_shards_run_again(rig: Rig) -> None:
    results = [rig.tasks.dies.delay(f"poison{n}", 3) for n in range(6)]
    for result in results:
        assert rig.until_state(result, "dead").starts == 3
    with pytest.raises(WorkerLostError):
        results[0].get(timeout=GET_S)
    assert sorted(task.id for task in rig.client.dead()) == sorted(result.id for result in results)
    words = rig.client.requeue([result.id for result in results])
    assert Counter(words.values()) == {"revived": 6}
    for result in results:
        rig.until_state(result, "succeeded")
    assert rig.client.dead() == []


def test_the_tasks_of_a_killed_scheduler_and_node_of_all_shards_run_elsewhere(rig: Rig) -> None:
    (name,) = rig.schedulers(1, lease_s=LONG_LEASE_S)
    holders = [rig.tasks.gated.delay(f"moved{n}", "moved") for n in range(4)]
    rig.until(lambda: len(rig.marks("held")) == 4, "all slots are held")
    waiting = [rig.tasks.add.delay(1, n) for n in range(30)]
    rig.stack.kill(name)
    rig.stack.kill("n2")
    rig.worker("n3")
    rig.open("moved")
    assert get(holders) == [f"moved{n}" for n in range(4)]
    assert get(waiting) == [1 + n for n in range(30)]
    rig.until_clean()


def test_a_scheduler_that_wants_another_number_of_shards_is_refused(rig: Rig) -> None:
    settings = rig.client.settings.model_copy(update={"shards": 2})
    with pytest.raises(ClusterMismatch, match=r"shards=4 \(you asked for 2\)"):
        join_cluster(rig.store.with_own_connections(), settings, create=True)
    assert audit(rig.store) == []

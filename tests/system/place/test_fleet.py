"""Several apps in one cluster: a task goes only to nodes that know its name, consume its queue and
have its needs.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chord, group
from typer.testing import CliRunner

from parsync_redis import Parsync, ParsyncClient
from parsync_redis.cli import app as cli
from tests.kit.apps import fleet
from tests.kit.rig import LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180
APP = "tests.kit.apps.fleet"


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig], tasks: Any) -> Rig:
    rig = new_rig(PARSYNC_CLUSTER="system")
    for app in (fleet.before, fleet.after, fleet.team):
        app.conf.update(broker_url=rig.broker, result_backend=rig.broker)
        app.parsync._url = rig.url
        app.parsync._cluster = "system"
    rig.schedulers(2, lease_s=LONG_LEASE_S)
    worker(rig, "cpu", "before", "-Q", "celery", score=9.0)
    worker(rig, "gpu", "before", "-Q", "celery,video", resources={"gpu": 1}, score=1.0)
    worker(rig, "team", "team", score=9.0)
    rig.until_up("cpu", "gpu", "team")
    return rig


def worker(rig: Rig, node: str, app: str, *extra: str, **options: Any) -> None:
    rig.stack.worker(
        f"{APP}:{app}",
        node,
        options.pop("slots", 2),
        extra=("-l", "info", *extra),
        pool="threads",
        **options,
    )


def get(results: list[Any]) -> list[Any]:
    return [result.get(timeout=GET_S) for result in results]


def test_two_apps_share_a_cluster_and_each_task_runs_where_its_name_is_known(rig: Rig) -> None:
    ours = [fleet.before.tasks["fleet.kept"].delay(i) for i in range(40)]
    theirs = [fleet.team.tasks["team.work"].delay(i) for i in range(40)]
    assert set(get(theirs)) == {"team"}
    assert set(get(ours)) <= {"cpu", "gpu"}


def test_a_rolling_deploy_loses_nothing(rig: Rig) -> None:
    """New names run only on new workers; a name that no living node knows any more waits, and says
    so.
    """
    with ParsyncClient.from_url(rig.url, "system") as client:
        worker(rig, "deployed", "before", score=5.0)
        rig.until_up("deployed")
        running = [fleet.before.tasks["fleet.old"].delay(i) for i in range(10)]
        rig.stack.terminate("deployed")
        worker(rig, "deployed", "after", score=5.0)
        rig.until_up("deployed")
        assert set(get([fleet.after.tasks["fleet.new"].delay(i) for i in range(20)])) == {
            "deployed"
        }
        assert set(get(running)) <= {"cpu", "gpu", "deployed"}
        assert set(get([fleet.before.tasks["fleet.old"].delay(i) for i in range(20)])) <= {
            "cpu",
            "gpu",
        }
        rig.stack.terminate("deployed")
        rig.until(lambda: rig.node("deployed").state == "", "it has left")
        waits = client.submit("fleet.new", [1])  # not refused: what it offered is known for a while
        rig.until(lambda: client.status(waits).why, "it has a reason")
        worker(rig, "deployed", "after", score=5.0)
        rig.until_up("deployed")
        assert client.wait([waits], GET_S)[waits].node == "deployed"
        rig.stack.terminate("deployed")


def test_a_task_that_is_routed_goes_only_to_nodes_that_consume_its_queue(rig: Rig) -> None:
    kept = fleet.before.tasks["fleet.kept"]
    routed = fleet.before.tasks["fleet.routed"]
    assert set(get([kept.apply_async(queue="video") for _ in range(10)])) == {"gpu"}
    assert {tuple(found) for found in get([routed.delay() for _ in range(10)])} == {
        ("gpu", "video")
    }
    with ParsyncClient.from_url(rig.url, "system") as client:
        assert (
            client.wait([id := client.submit("fleet.kept", queue="video")], GET_S)[id].node == "gpu"
        )
        assert client.wait([id := client.submit("fleet.routed")], GET_S)[id].node == "gpu"
        waits = kept.apply_async(queue="nobody")
        rig.until(lambda: "nobody" in client.status(waits.id).why, "its reason names the queue")
        assert client.cancel(waits.id) == "cancelled"


def test_the_declarations_of_an_app_hold_for_every_submit_by_name(rig: Rig) -> None:
    with ParsyncClient.from_url(rig.url, "system") as client:
        ids = client.submit_many({"name": "fleet.train"} for _ in range(4))
        ids.append(client.submit("fleet.train", priority=9))
        done = client.wait(ids, GET_S)
    assert {done[id].node for id in ids} == {"gpu"}
    assert done[ids[-1]].priority == 9
    assert done[ids[0]].max_starts == 1
    words = [
        "submit",
        "fleet.train",
        "--wait",
        "--json",
        "--url",
        rig.url,
        "--cluster",
        "system",
    ]
    assert json.loads(CliRunner().invoke(cli, words).stdout)["node"] == "gpu"
    stranger = Celery("stranger", broker=rig.broker, backend=rig.broker, set_as_current=False)
    Parsync(stranger, url=rig.url, cluster="system")
    assert stranger.send_task("fleet.train").get(timeout=GET_S) == "gpu"
    assert stranger.send_task("fleet.routed").get(timeout=GET_S)[0] == "gpu"


def test_a_task_submitted_before_any_worker_was_there_gets_the_options_of_its_app(
    rig: Rig,
) -> None:
    for node in ("cpu", "gpu", "team"):  # a worker that is there would register its tasks again
        rig.stack.terminate(node)
    with ParsyncClient.from_url(rig.url, "system") as client:
        for kind in ("names", "apps", "shapes", "feasible"):
            for key in rig.store.keys.queues(kind):
                rig.state.delete(key)
        ids = [client.submit("fleet.train") for _ in range(3)]
        worker(rig, "gpu", "before", "-Q", "celery,video", resources={"gpu": 1}, score=1.0)
        # it takes only tasks that ask for a gpu; without it these would fit nowhere, and fail
        rig.until_up("gpu")
        worker(rig, "cpu", "before", "-Q", "celery", score=9.0)
        rig.until_up("cpu")
        rig.until(
            lambda: {client.status(id).needs for id in ids} == {"slots=1 gpu=1"},
            "they need what was declared",
        )
        worker(rig, "team", "team", score=9.0)
        rig.until_up("team")
        assert {task.node for task in client.wait(ids, GET_S).values()} == {"gpu"}


def test_celerys_priority_is_parsyncs_larger_first(rig: Rig) -> None:
    add = fleet.before.tasks["fleet.add"]
    results = [add.apply_async((1, 2), priority=p) for p in (0, 7, 255)]
    assert get(results) == [3, 3, 3]
    assert [rig.status(result).priority for result in results] == [0, 7, 9]
    assert rig.status(add.apply_async((1,), priority=7, parsync={"priority": 2})).priority == 2


@pytest.mark.parametrize(("name", "value"), [("becomes_chain", 115), ("becomes_chord", 18)])
def test_a_task_that_is_replaced_by_several_ends_with_their_result(
    rig: Rig, name: str, value: int
) -> None:
    task = fleet.before.tasks[f"fleet.{name}"]
    add = fleet.before.tasks["fleet.add"]
    assert task.delay(5).get(timeout=GET_S) == value
    around = chord(group([task.s(5), task.s(5)]), add.s())
    assert around.apply_async().get(timeout=GET_S) == 2 * value


@pytest.mark.parametrize("when", ["never", "after the publish", "before the last step"])
def test_a_crash_between_a_replace_and_its_last_step_loses_nothing(rig: Rig, when: str) -> None:
    rig.stack.worker(f"{APP}:before", "fragile", 2, labels={"kind": "fragile"}, pool="prefork")
    rig.until_up("fragile")
    task = fleet.before.tasks["fleet.dies_after_replace"]
    result = task.apply_async((5, when), parsync={"require": {"kind": "fragile"}})
    assert result.get(timeout=GET_S) == 115
    assert bool(rig.redis.exists(f"fleet:died:{when}")) == (when != "never")
    rig.stack.terminate("fragile")


@pytest.mark.parametrize("id", ["a b/c#d", "größe ✓", "%41", "-x", "x" * 255, "a:b@c", "ä" * 255])
def test_parsync_accepts_every_id_that_celery_accepts(rig: Rig, id: str) -> None:
    result = fleet.before.tasks["fleet.add"].apply_async((1, 2), task_id=id)
    assert result.id == id
    assert result.get(timeout=GET_S) == 3
    status = rig.until_state(id, "succeeded")
    assert status.id == id
    result.revoke()
    assert id in {task.id for task in rig.client.wait([id], GET_S).values()}


def test_an_id_that_is_published_again_runs_again(rig: Rig) -> None:
    add = fleet.before.tasks["fleet.add"]
    meta = "celery-task-meta-again"
    for number in range(3):
        add.apply_async((number, 1), task_id="again")
        # a Celery client may keep the one before
        rig.until(lambda: rig.redis.exists(meta), "its result is there")
        assert json.loads(rig.redis.get(meta))["result"] == number + 1
        rig.until_state("again", "succeeded")
        rig.redis.delete(meta)


def test_a_task_that_waits_for_its_rate_limit_holds_no_slot(rig: Rig) -> None:
    limited = fleet.before.tasks["fleet.limited"]
    kept = fleet.before.tasks["fleet.kept"]
    results = [limited.delay(number) for number in range(10)]
    others = [kept.delay() for _ in range(10)]
    get(others)
    assert rig.client.status(results[-1].id).state != "running"
    assert get(results) == list(range(10))
    rig.until_idle()


def test_rate_limited_tasks_all_run_and_others_beside_them(rig: Rig) -> None:
    paced = fleet.before.tasks["fleet.paced"]
    routed = fleet.before.tasks["fleet.routed"]
    ids = [paced.apply_async((number,), queue="video").id for number in range(300)]
    some = ids[::10]
    rig.until(
        lambda: any("rate limit" in rig.client.status(id).why for id in some),
        "one waits for its rate limit",
    )
    assert {node for node, _ in get([routed.delay() for _ in range(10)])} == {"gpu"}
    done = rig.client.wait(ids, timeout=600).values()  # their limit allows them in 30 s
    assert {task.state for task in done} == {"succeeded"}
    assert sum(task.attempt for task in done) <= 3 * len(ids), (
        "a task is placed twice, when it books and when it runs"
    )


def test_a_countdown_of_centuries_waits(rig: Rig) -> None:
    far = fleet.before.tasks["fleet.add"].apply_async((1, 2), countdown=1e10)
    assert rig.status(far).state == "waiting"
    assert rig.client.cancel(far.id) == "cancelled"

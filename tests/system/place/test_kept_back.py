"""Real workers: a flood of tasks leaves nodes with a taint, or with a scarce resource, to the tasks
that are for them.

`pytest -rP` shows the delays from submit to start.
"""

from collections.abc import Callable
from typing import Any

import pytest

from parsync_redis import Infeasible, InvalidInput
from parsync_redis.model.explanation import Outlook
from tests.kit.rig import LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GPU: dict[str, Any] = {"resources": {"gpu": 1}}
SPOT: dict[str, Any] = {"tolerate": ["spot"], "require": {"kind": "spot"}}


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with two nodes of four slots, one with a GPU, and one with a taint; the
    scheduler has seen all.
    """
    rig = new_rig()
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    for name in ("cpu1", "cpu2"):
        rig.worker(name, slots=4, pool="prefork", labels={"kind": name}, up=False)
    rig.worker("gpu1", slots=2, pool="prefork", resources={"gpu": 1}, up=False)
    rig.worker(
        "spot1",
        "--parsync-taint",
        "spot",
        slots=2,
        pool="prefork",
        labels={"kind": "spot"},
        up=False,
    )
    rig.until_up("cpu1", "cpu2", "gpu1", "spot1")
    for name in ("cpu1", "cpu2"):
        rig.tasks.where.apply_async(parsync={"require": {"kind": name}}).get(timeout=180)
    return rig


def flood(rig: Rig, count: int, running: int) -> list[Any]:
    """Submit tasks that run until the gate opens, and wait until as many of them run as can."""
    holders = [rig.tasks.gated.apply_async((f"f{n}",)) for n in range(count)]
    rig.until(
        lambda: sum(rig.counts("held").values()) == running, f"{running} of {count} tasks run"
    )
    return holders


def delays_ms(rig: Rig, node: str, options: dict[str, Any]) -> list[int]:
    """Return how long ten tasks took to start, one after another, each on this node."""
    found = []
    for _ in range(10):
        result = rig.tasks.where.apply_async(parsync=options)
        assert result.get(timeout=180)["node"] == node
        times = rig.status(result).times
        found.append((times["started"] or 0) - (times["submitted"] or 0))
    print(f"submit to start on {node} beside the flood, ms: {sorted(found)}")
    return found


def test_a_gpu_task_starts_at_once_beside_a_flood_because_others_use_the_gpu_node_last(
    rig: Rig,
) -> None:
    # two slots more are there, which the scheduler may not have read since the first tasks
    holders = flood(rig, 6, 6)
    assert {rig.status(task).node for task in holders} == {"cpu1", "cpu2"}
    assert max(delays_ms(rig, "gpu1", GPU)) < 10_000
    assert {rig.status(task).state for task in holders} == {"running"}, "the flood is still on"
    rig.open()
    assert [task.get(timeout=180) for task in holders]


def test_a_tainted_node_stays_free_for_tasks_that_tolerate_the_taint_however_many_wait(
    rig: Rig,
) -> None:
    holders = flood(rig, 40, 10)
    assert {rig.status(task).node for task in holders} == {"cpu1", "cpu2", "gpu1", None}, (
        "in need also on the GPU node"
    )
    assert max(delays_ms(rig, "spot1", SPOT)) < 10_000
    assert sum(rig.status(task).state == "waiting" for task in holders) > 20, (
        "the flood is still on"
    )
    (waiting,) = [task for task in holders if rig.status(task).state == "waiting"][:1]
    classes_by_node = {
        node: some for some in rig.client.explain(str(waiting)).classes for node in some.nodes
    }
    (obstacle,) = classes_by_node["spot1"].obstacles
    assert (obstacle.rule, obstacle.static) == ("taints", True)
    assert obstacle.why == 'lacks the absence of taint spot (tolerate=["spot"] would do)'
    rig.open()
    assert [task.get(timeout=180) for task in holders]


def test_a_task_for_a_tainted_node_without_the_toleration_is_refused_with_the_remedy(
    rig: Rig,
) -> None:
    says = (
        r'spot1 comes closest: it lacks the absence of taint spot \(tolerate=\["spot"\] would do\)'
    )
    with pytest.raises(Infeasible, match=says):
        rig.client.submit(rig.tasks.add.name, (1, 2), require={"kind": "spot"})
    with pytest.raises(Infeasible, match=says):
        rig.tasks.add.apply_async((1, 2), parsync={"require": {"kind": "spot"}})
    assert rig.client.plan(rig.tasks.add.name, require={"kind": "spot"}).outlook is Outlook.NEVER
    assert rig.client.plan(rig.tasks.add.name, **SPOT).outlook is Outlook.NOW
    assert rig.node("spot1").taints == ("spot",)
    id = rig.client.submit(rig.tasks.add.name, (1, 2), tolerate=["spot", "unknown"])
    assert rig.until_state(id, "succeeded")


def test_tasks_with_the_same_word_run_on_different_nodes_and_near_goes_where_the_other_ran(
    rig: Rig,
) -> None:
    holders = [rig.tasks.gated.apply_async((f"a{n}",), parsync={"apart": "web"}) for n in range(4)]
    rig.until(
        lambda: sum(rig.counts("held").values()) == 3, "a task runs on each node without a taint"
    )
    nodes = {rig.status(task).node: task for task in holders}
    assert {*nodes} == {"cpu1", "cpu2", "gpu1", None}
    classes_by_node = {
        node: some for some in rig.client.explain(str(nodes[None])).classes for node in some.nodes
    }
    assert [(o.rule, o.why) for o in classes_by_node["cpu1"].obstacles] == [
        ("apart", "has a task with apart=web")
    ]
    assert rig.node("cpu2").left == {}
    near = [rig.tasks.where.apply_async(parsync={"near": str(nodes["cpu2"])}) for _ in range(5)]
    assert {task.get(timeout=180)["node"] for task in near} == {"cpu2"}
    id = rig.client.submit(rig.tasks.where.name, near=near[0].id)
    assert rig.until_state(id, "succeeded").node == "cpu2"
    with pytest.raises(InvalidInput, match="no task with that id is known"):
        rig.tasks.where.apply_async(parsync={"near": "nobody"})
    rig.open()
    assert [task.get(timeout=180) for task in holders]

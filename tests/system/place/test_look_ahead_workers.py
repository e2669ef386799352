"""Look-ahead with real workers: a task that waits behind another is cancelled, drained, handed
back, or gets lost.
"""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.rig import LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with a stack of a scheduler; each test starts a worker of one slot.

    A solo worker that is slow for a lease is killed.
    """
    rig = new_rig()
    rig.schedulers(1, lease_s=2 * LEASE_S)
    return rig


@pytest.fixture
def late_s() -> float:
    """Return the time after which the worker hands back waiting tasks: longer than the test takes."""
    return 600.0


@pytest.fixture(params=["solo", "threads"])
def node(rig: Rig, late_s: float, request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a worker of one slot whose last tasks were short, so that its waiting seats are open.

    The worker leaves after the test.
    """
    name = f"{request.param}-{request.node.originalname.rpartition('_')[2]}"
    rig.redis.set(rig.tasks.LATE, late_s)
    rig.worker(name, slots=1, pool=request.param, labels={"kind": name})

    def opens() -> int:
        assert rig.tasks.where.apply_async(**on(name)).get(timeout=GET_S)["node"] == name
        return rig.node(name).ahead

    rig.until(opens, "its waiting seats are open")
    yield name
    rig.open()
    rig.stack.processes[name].send(signal.SIGTERM)
    rig.until(lambda: rig.node(name).state == "", f"{name} has left")


def on(kind: str, **more: Any) -> dict[str, Any]:
    """Return the options of a task for the node with this label."""
    return {"parsync": {"require": {"kind": kind}, **more}}


def hold(rig: Rig, node: str) -> Any:
    """Start a task that runs until the gate is open."""
    holder = rig.tasks.gated.apply_async((node,), **on(node))
    rig.until(lambda: rig.marks("held", node), "a long task runs")
    return holder


def until_placed(rig: Rig, *tasks: Any) -> None:
    """Wait until one of these tasks waits at the worker.

    The seat of a task that runs may be a waiting seat too.
    """
    rig.until(
        lambda: any(rig.status(task).state != "waiting" for task in tasks),
        "something waits at the worker",
    )


@pytest.mark.parametrize("late_s", [1.0])
def test_a_long_task_hands_back_what_waits_and_shuts_the_seats(rig: Rig, node: str) -> None:
    holder = hold(rig, node)
    behind = rig.tasks.where.apply_async(**on(node))
    rig.until(lambda: rig.node(node).ahead == 0, "its waiting seats are shut")
    assert rig.until_state(behind, "waiting").starts == 0
    rig.open()
    assert holder.get(timeout=GET_S) == node
    assert behind.get(timeout=GET_S)["node"] == node
    assert [rig.until_state(task, "succeeded").starts for task in (holder, behind)] == [1, 1]


def test_a_waiting_task_is_cancelled_while_another_task_runs(rig: Rig, node: str) -> None:
    holder = hold(rig, node)
    behind = rig.tasks.noted.apply_async((f"{node} behind",), **on(node))
    until_placed(rig, behind)
    rig.client.cancel(str(behind))
    assert rig.status(behind).state == "cancelled"
    rig.open()
    assert holder.get(timeout=GET_S) == node
    rig.until(lambda: rig.node(node).held == 0, "nothing is held")
    assert not rig.marks("begin", f"{node} behind")


def test_a_drain_does_not_wait_for_the_running_task(rig: Rig, node: str) -> None:
    holder = hold(rig, node)
    behind = [rig.tasks.where.apply_async(**on(node)) for _ in range(3)]
    until_placed(rig, *behind)
    rig.client.drain(node)
    assert {rig.until_state(task, "waiting").starts for task in behind} == {0}
    rig.client.undrain(node)
    rig.open()
    assert holder.get(timeout=GET_S) == node
    assert {task.get(timeout=GET_S)["node"] for task in behind} == {node}


def test_a_higher_priority_waits_behind_no_more_than_has_been_placed(rig: Rig, node: str) -> None:
    holder = hold(rig, node)
    low = [rig.tasks.noted.apply_async((f"low{number}",), **on(node)) for number in range(12)]
    high = rig.tasks.beaten.apply_async(("high",), **on(node, priority=9))
    rig.until(lambda: rig.status(high).why, "a scheduler knows it")
    rig.open()
    for task in (holder, high, *low):
        task.get(timeout=GET_S)
    begun = [key for event, key, *_ in rig.marks() if event in ("begin", "beaten")]
    assert begun.index("high") <= 3, begun
    assert sorted(begun) == sorted(["high", *(f"low{number}" for number in range(12))])


def test_a_killed_worker_gives_back_its_waiting_tasks(rig: Rig, node: str) -> None:
    holder = hold(rig, node)
    behind = [rig.tasks.noted.apply_async((f"{node} {number}",), **on(node)) for number in range(3)]
    until_placed(rig, *behind)
    rig.stack.kill(node)
    rig.until(lambda: rig.node(node).state == "down", "it is lost")
    rig.worker(node, slots=1, pool="solo", labels={"kind": node})
    rig.open()
    assert holder.get(timeout=GET_S) == node
    assert [task.get(timeout=GET_S) for task in behind] == [
        f"{node} {number}" for number in range(3)
    ]
    assert rig.until_state(holder, "succeeded").starts == 2
    assert {rig.until_state(task, "succeeded").starts for task in behind} == {1}

"""A worker, a scheduler or the leader that is killed costs no task: the others take over within two
leases.

Each is killed with SIGKILL while tasks run and wait. The tests assert facts and their order; the
time that it took is printed and kept as a property of the test.
"""

import time
from collections.abc import Callable

import pytest

from parsync_redis.store.reads.schedulers import read_schedulers
from tests.kit.rig import LEASE_S, Rig

pytestmark = pytest.mark.serial

TASKS = 60
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    rig = new_rig()
    rig.schedulers(3)
    for node in ("n1", "n2"):
        rig.worker(node, pool="prefork", slots=2, up=False)
    rig.until_up("n1", "n2")
    return rig


def load(rig: Rig, name: str) -> list[str]:
    """Submit tasks for some seconds, of which some already run and most wait."""
    names = [f"{name}-{i}" for i in range(TASKS)]
    ids = rig.client.submit_many(
        {"name": "tests.kit.apps.marks.noted", "args": [task, 0.1], "id": task} for task in names
    )
    rig.until(lambda: len(rig.marks("end")) >= 5, "some tasks have run")
    return ids


def all_done_and_none_twice(rig: Rig, ids: list[str]) -> int:
    """Check that every task succeeded and that its last attempt is the only accepted one; return
    how many starts were lost.
    """
    left = rig.client.wait(ids, timeout=180)
    assert {status.state for status in left.values()} == {"succeeded"}, left
    statuses = [rig.status(id) for id in ids]
    assert {id for id, n in rig.counts("end").items() if n >= 1} == set(ids)
    for status in statuses:
        assert status.starts <= 2
        assert rig.counts("begin")[status.id] <= status.starts, (
            f"{status.id} ran more often than it was started"
        )
    rig.until_idle()
    return sum(status.starts - 1 for status in statuses)


def leader(rig: Rig) -> str:
    return next((s.name for s in read_schedulers(rig.store) if s.leader), "")


def members(rig: Rig) -> set[str]:
    return {s.name for s in read_schedulers(rig.store)}


def report(record: Record, what: str, since_s: float) -> None:
    took_s = time.monotonic() - since_s
    record(f"{what}_s", round(took_s, 2))
    print(f"{what}: {took_s:.2f} s, {took_s / LEASE_S:.2f} leases")


def test_a_killed_worker_loses_no_task_and_its_running_tasks_start_elsewhere(
    rig: Rig, record_property: Record
) -> None:
    ids = load(rig, "worker")
    held = rig.until(
        lambda: [x.place.task for x in rig.leases() if x.place.node == "n1"], "n1 runs tasks"
    )
    rig.stack.kill("n1")
    killed_s = time.monotonic()
    held = [x.place.task for x in rig.leases() if x.place.node == "n1"] or held
    rig.until(lambda: rig.node("n1").state == "down", "the leader gave n1 up")
    rig.until(
        lambda: not [x for x in rig.leases() if x.place.node == "n1"],
        "its slots are free of leases",
    )
    report(record_property, "worker_repaired", killed_s)
    lost = all_done_and_none_twice(rig, ids)
    assert {rig.status(id).node for id in held if rig.status(id).starts > 1} <= {"n2"}
    assert lost <= 2, "only what ran on the two slots of n1 was started again"
    rig.worker("n1", pool="prefork", slots=2)


def test_a_killed_scheduler_loses_no_task_and_its_taken_tasks_go_back(
    rig: Rig, record_property: Record
) -> None:
    ids = load(rig, "scheduler")
    victim = rig.until(
        lambda: next(iter(sorted(members(rig) - {leader(rig)})), ""), "one is not the leader"
    )
    rig.stack.kill(victim)
    killed_s = time.monotonic()
    rig.until(lambda: victim not in members(rig), f"{victim} is no member")
    report(record_property, "scheduler_repaired", killed_s)
    taken = rig.state.hvals(rig.store.keys.queue("taken"))
    assert victim.encode() not in taken
    assert all_done_and_none_twice(rig, ids) == 0, (
        "no node was lost, so that each task started once"
    )
    rig.schedulers(1)


def test_a_killed_leader_costs_no_task_and_another_keeps_and_repairs(
    rig: Rig, record_property: Record
) -> None:
    ids = load(rig, "leader")
    victim = rig.until(lambda: leader(rig), "there is a leader")
    rig.stack.kill(victim)
    killed_s = time.monotonic()
    heir = rig.until(lambda: (found := leader(rig)) != victim and found, "another keeps")
    report(record_property, "leader_taken_over", killed_s)
    assert heir in members(rig)
    rig.until(
        lambda: victim not in members(rig), f"{victim} is no member: the new leader does its work"
    )
    report(record_property, "leader_repaired", killed_s)
    assert all_done_and_none_twice(rig, ids) == 0
    rig.schedulers(1)


def test_a_worker_and_the_leader_killed_at_once_cost_no_task(
    rig: Rig, record_property: Record
) -> None:
    ids = load(rig, "both")
    for name in ("n2", rig.until(lambda: leader(rig), "there is a leader")):
        rig.stack.kill(name)
    killed_s = time.monotonic()
    rig.until(lambda: rig.node("n2").state == "down", "another leader gave n2 up")
    rig.until(
        lambda: not [x for x in rig.leases() if x.place.node == "n2"],
        "its slots are free of leases",
    )
    report(record_property, "both_repaired", killed_s)
    assert all_done_and_none_twice(rig, ids) <= 2

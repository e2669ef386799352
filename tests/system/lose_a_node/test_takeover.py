"""A worker, a scheduler or the leader that is killed costs no task: the others take over within two
leases.

Each is killed with SIGKILL while tasks run and wait. The tests assert facts and their order; the
time that it took is printed and kept as a property of the test.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parsync_redis.store.reads.schedulers import read_schedulers
from tests.kit.rig import LEASE_S, Rig
from tests.kit.unit_locks import read_units

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


def submit_sole(
    rig: Rig, folder: Path, name: str, n: int, at_once: int, **kwargs: Any
) -> list[str]:
    """Submit tasks under the limit `sole`, which lock a file for each unit."""
    rig.client.set_policy([f"limits.sole.at_once={at_once}"])
    return rig.client.submit_many(
        {
            "name": "tests.kit.apps.marks.sole",
            "args": [f"{name}-{i}", str(folder), at_once],
            "kwargs": kwargs,
            "id": f"{name}-{i}",
            "limits": ["sole"],
        }
        for i in range(n)
    )


def test_the_unit_of_a_killed_worker_is_free_again_and_never_two_runs_have_it(
    rig: Rig, record_property: Record, tmp_path: Path
) -> None:
    ids = submit_sole(rig, tmp_path, "unit", 4, at_once=1, gate="unit")
    first = rig.until(lambda: rig.marks("held"), "a task has the unit")[0][1]
    node = rig.status(first).node or ""
    rig.stack.kill(node)
    killed_s = time.monotonic()
    rig.until(lambda: len(rig.marks("held")) >= 2, "a task has the unit again")
    report(record_property, "unit_free", killed_s)
    assert [holder.id for holder in rig.client.limit_holders("sole")] == [
        mark[1] for mark in rig.marks("held")[1:]
    ]
    rig.open("unit")
    assert all_done_and_none_twice(rig, ids) == 1
    assert read_units(tmp_path).overruns == []
    assert read_units(tmp_path).locked["sole"] == 5
    assert not rig.state.exists(rig.store.keys.queue("accounts"))
    rig.worker(node, pool="prefork", slots=2)


def test_a_task_whose_thread_goes_on_keeps_its_unit_until_its_process_has_ended(
    rig: Rig, record_property: Record, tmp_path: Path
) -> None:
    """Another worker takes the name of a worker with threads, whose threads nobody can end."""
    rig.worker("threaded", pool="threads", slots=1, labels={"kind": "threads"})
    rig.client.set_policy(["limits.sole.at_once=1"])
    first = rig.client.submit(
        "tests.kit.apps.marks.sole",
        ["thread", str(tmp_path), 1],
        {"gate": "thread"},
        id="thread",
        limits=["sole"],
        require={"kind": "threads"},
    )
    rig.until(lambda: rig.marks("held"), "a thread has the unit")
    ids = submit_sole(rig, tmp_path, "next", 1, at_once=1)
    p = rig.node("threaded").partition
    rig.store.run(rig.store.commands.register_node(p, "threaded", 0, 1.0, "slots=1"))
    superseded_s = time.monotonic()
    assert {status.state for status in rig.client.wait(ids, timeout=180).values()} == {"succeeded"}
    report(record_property, "unit_of_a_thread_free", superseded_s)
    assert read_units(tmp_path).overruns == []
    assert not rig.stack.processes["threaded"].alive, "its guard has killed it"
    assert len(rig.marks("held")) == 1
    rig.client.cancel(first)
    rig.until_idle()


ACCOUNT_DAMAGES: dict[str, Callable[[Any, str, str], object]] = {
    "lines gone": lambda state, lines, holders: state.delete(lines),
    "holders gone": lambda state, lines, holders: state.delete(holders),
    "lines of another type": lambda state, lines, holders: (
        state.pipeline().delete(lines).set(lines, "x").execute()
    ),
    "holders of another type": lambda state, lines, holders: (
        state.pipeline().delete(holders).set(holders, "x").execute()
    ),
}


def test_a_damaged_limit_is_never_exceeded_and_tasks_flow_again(
    rig: Rig, record_property: Record, tmp_path: Path
) -> None:
    keys = rig.store.keys
    holders = keys.holders("sole")
    count = rig.store.commands.recount(["sole"], dry=True)
    ids = []
    for number, (name, damage) in enumerate(ACCOUNT_DAMAGES.items()):
        gate = f"damage-{number}"
        ids += submit_sole(rig, tmp_path, f"held-{number}", 2, at_once=2, gate=gate)
        rig.until(lambda n=number: len(rig.marks("held")) >= 2 * n + 2, "the limit is full")  # type: ignore[misc]
        ids += submit_sole(rig, tmp_path, f"next-{number}", 3, at_once=2)
        damage(rig.state, keys.queue("accounts"), holders)
        damaged_s = time.monotonic()
        rig.until(
            lambda: rig.store.run(count) == ["sound"] and rig.state.zcard(holders) == 2,
            "both holders are counted again",
        )
        report(record_property, name, damaged_s)
        rig.open(gate)
        assert {s.state for s in rig.client.wait(ids, timeout=180).values()} == {"succeeded"}
    assert read_units(tmp_path).overruns == []
    rig.until_idle()
    assert not rig.state.exists(keys.queue("accounts"), holders)


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

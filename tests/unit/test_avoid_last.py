"""A task that runs again prefers another node than its last one, from the record to the claim."""

import pytest

from parsync_redis.model.kind import Kind
from parsync_redis.model.node import Node
from parsync_redis.model.task import Taken, TaskState
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.plan import Plan
from parsync_redis.store import Store
from tests.kit.core_rig import Queue, claims_of, make, node, see, tasks_of
from tests.kit.driver import Driver


def nodes(*slots: int) -> list[Node]:
    """Return nodes n1, n2, ... of so many slots, the first with by far the best score."""
    found = []
    first = 0
    for number, count in enumerate(slots, 1):
        one = node(f"n{number}", count, score=100.0 / number**2)
        found.append(Node(one.name, "up", 1, False, first, count, one.score, one.offer))
        first += count
    return found


def again(core: Core, count: int) -> Plan:
    """Let tasks wait that ran on n1; return the plan in which the core claims seats for them."""
    queue = Queue(core).add("work slots=1", count)
    queue.last = "n1"
    queue.tell()
    return queue.turn()


def test_a_task_goes_to_a_node_that_it_did_not_run_on_last() -> None:
    for seed in range(20):
        core = make(seed=seed)
        see(core, 0, nodes(8, 1), 9)
        assert claims_of(again(core, 1)) == ["n2/0"]


def test_a_task_goes_to_its_last_node_if_no_other_has_a_seat() -> None:
    core = make()
    see(core, 0, nodes(2), 2)
    assert sorted(claims_of(again(core, 2))) == ["n1/0", "n1/1"]


def test_a_task_gets_a_seat_of_another_partition_and_its_reserved_seat_is_free_again() -> None:
    for seed in range(20):
        core = make(2, seed=seed)
        see(core, 0, [node("n1", 1, 100.0)], 1)
        see(core, 1, [node("n2", 1, 1.0)], 1)
        assert claims_of(again(core, 1)) == ["n2/0"]
        assert [partition.free_count for partition in core.view.partitions] == [1, 0]
        assert not any(partition.reserved for partition in core.view.partitions)


def test_each_task_has_a_claim_of_its_own() -> None:
    core = make(2)
    see(core, 0, nodes(3, 3), 6)
    see(core, 1, [node("n3", 2)], 2)
    plan = again(core, 7)
    assert sorted(tasks_of(plan)) == [f"t{number}" for number in range(1, 8)]
    assert len(set(claims_of(plan))) == 7
    assert sum(claim.startswith("n1/") for claim in claims_of(plan)) == 2, "all other seats first"


# -- what the record says --------------------------------------------------------------------------


def last_of(drive: Driver) -> list[tuple[str, str]]:
    return [(task.id, task.last) for task in drive.take_tasks()]


def test_take_names_the_node_of_a_run_that_was_lost_or_retries(any_store: Store) -> None:
    drive = Driver(any_store)
    drive.requeue(drive.bring(TaskState.RUNNING, "lost"))
    assert last_of(drive) == [("lost", "n1")]
    assert drive.finish(drive.bring(TaskState.RUNNING, "retries"), "again") == "again"
    assert last_of(drive) == [("retries", "n1")]
    drive.requeue(drive.bring(TaskState.PLACED, "unstarted"), how="unstarted")
    assert last_of(drive) == [("unstarted", "n1")]


def test_take_names_no_node_of_a_task_that_did_not_start_or_waits_for_its_rate_limit(
    any_store: Store,
) -> None:
    drive = Driver(any_store)
    drive.requeue(drive.bring(TaskState.PLACED, "placed"))
    assert last_of(drive) == [("placed", "")]
    drive.requeue(drive.bring(TaskState.RUNNING, "limited"), how="recalled", delay_ms=0)
    assert last_of(drive) == [], "it is moved to its kind"
    assert last_of(drive) == [("limited", "")]


@pytest.mark.parametrize("avoid", [True, False])
def test_a_task_may_say_that_its_last_node_is_as_good_as_others(
    any_store: Store, avoid: bool
) -> None:
    drive = Driver(any_store)
    drive.submit("a", {"avoid_last": avoid})
    place = drive.place("a", drive.take()["a"])
    assert drive.start(place) == "ok"
    drive.requeue(place)
    assert last_of(drive) == [("a", "n1" if avoid else "")]


def test_a_publication_of_others_knows_no_last_node(any_store: Store) -> None:
    drive = Driver(any_store)
    place = drive.bring(TaskState.RUNNING, "a")
    assert drive.submit("a", publication="c2") == "next"
    assert drive.finish(place, "succeeded") == "again"
    assert last_of(drive) == [("a", "")]


def test_the_reply_of_take_is_read_for_each_task() -> None:
    kind = Kind.of("work slots=1")
    assert Taken.of("a", "1@1", kind, "17 n1") == Taken("a", "1@1", kind, 17, "n1")
    assert Taken.of("a", "1@1", kind, "17") == Taken("a", "1@1", kind, 17)

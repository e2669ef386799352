"""When failures in a row show that a node is a black hole, and when its slots rest."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from billiard.exceptions import Terminated
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.node import drain_terms, trial_note, trial_s
from parsync_redis.model.place import Place
from parsync_redis.model.streak import TRIES, Compared, Elsewhere, Streak, damning
from parsync_redis.scheduler.duties.black_holes import BlackHoleDuty, reason
from parsync_redis.store import Store
from parsync_redis.store.places import now_ms
from parsync_redis.worker import failures as module
from parsync_redis.worker.failures import Failures
from parsync_redis.worker.look_ahead import LookAhead
from parsync_redis.worker.request import is_failure
from parsync_redis.worker.runs import Run
from tests.lua.driver import Driver

LEASE_S = 10.0
SURE = Streak("work", 0, "n1", 1, 1, 5, 4, 20, 0, False)


def test_a_streak_while_others_succeed_shows_a_black_hole():
    assert damning([SURE]) == [SURE]


@pytest.mark.parametrize(
    "streak",
    [
        replace(SURE, tries=TRIES - 1, runs=10**6),
        replace(SURE, length=1000, tries=0),
        replace(SURE, runs=4),
        replace(SURE, failed=10),
        replace(SURE, runs=0),
    ],
    ids=["too few tries", "all at one moment", "too few runs elsewhere", "half fail elsewhere", "a name of one node"],
)
def test_a_streak_that_may_be_chance_shows_nothing(streak: Streak):
    assert damning([streak]) == []


def test_streaks_of_several_names_add_up_if_nothing_succeeds_on_the_node():
    some = [replace(SURE, name=name, tries=1, runs=50, all_fail=True) for name in "abc"]
    assert damning(some) == some
    assert damning([replace(streak, all_fail=False) for streak in some]) == []


@given(st.integers(0, 1000), st.integers(0, 50))
def test_a_name_that_fails_everywhere_makes_no_node_suspect(runs: int, tries: int):
    assert damning([replace(SURE, runs=runs, failed=runs, tries=tries)]) == []


def test_a_note_says_when_the_trial_is():
    assert trial_s(trial_note(reason([SURE] * 5), 30.0)) == 30.0
    assert reason([SURE] * 5).endswith("succeeded on other nodes, and of 2 other names")
    assert trial_s("alive, but 3 tasks in a row did not start there") is None
    assert trial_s(drain_terms(30, "a new disk")) is None


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (ValueError(), True),
        (Retry(exc=ValueError()), True),
        (Retry(), False),
        (Ignore(), False),
        (Reject(requeue=True), None),
        (Terminated(9), None),
        (SoftTimeLimitExceeded(), None),
    ],
)
def test_what_counts_as_a_failure_of_the_function(error: BaseException, failed: bool | None):
    assert is_failure(error) is failed


# -- the slots of a streak rest ----------------------------------------------------------------------------------------


class Clock:
    """The monotonic clock of the module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Node:
    """The failures of a node, as its threads tell them."""

    def __init__(self, clock: Clock) -> None:
        self.failures, self.clock = Failures(LookAhead(1, 0), lambda: LEASE_S), clock

    def end(self, failed: bool, seconds: float = 0.01, name: str = "work") -> Run:
        run = Run(Place("t", "1@1", 0, "n", (0,), 1, 0), name=name, failed=failed)
        self.failures.ended(run, seconds)
        return run

    def tell(self, elsewhere: Elsewhere | None = None, others: bool = True) -> Any:
        commands = cast(Any, SimpleNamespace(report_failures=lambda *args: args))
        found = self.failures.report(commands, 0, "n", 1)
        assert found is not None
        told = {name: elsewhere for name, *_, streak in found[1] if streak and elsewhere is not None}
        self.failures.reported(Compared(1, others, told))
        return found[1]


def test_slots_rest_after_two_failures_in_a_row_and_longer_after_each_try(clock: Clock):
    node = Node(clock)
    assert not node.end(True).rests
    for pause_s in (1.0, 2.0, 4.0):
        run = node.end(True)
        assert not node.failures.may_free(run)
        clock.now_s += pause_s - 0.01
        assert not node.failures.may_free(run)
        assert node.failures.due or pause_s > 1
        node.tell(Elsewhere(9, 0))
        clock.now_s += 0.02
        assert node.failures.may_free(run)


def test_slots_of_many_runs_are_freed_one_by_one(clock: Clock):
    node = Node(clock)
    runs = [node.end(True) for _ in range(4)]
    clock.now_s += 1
    assert [node.failures.may_free(run) for run in runs] == [True, True, False, False]
    node.end(False)
    assert [node.failures.may_free(run) for run in runs] == [True] * 4, "a success: the streak is over"


def test_slots_do_not_rest_on_the_only_node(clock: Clock):
    node = Node(clock)
    runs = [node.end(True) for _ in range(3)]
    node.tell(Elsewhere(0, 0), others=False)
    assert all(map(node.failures.may_free, runs))
    assert not node.end(True).rests


def test_slots_do_not_rest_while_such_tasks_fail_elsewhere_too(clock: Clock):
    node = Node(clock)
    runs = [node.end(True) for _ in range(3)]
    node.tell(Elsewhere(4, 2))
    assert all(map(node.failures.may_free, runs))


def test_slots_rest_no_longer_if_nobody_tells_how_such_tasks_end(clock: Clock):
    node = Node(clock)
    for _ in range(3):
        run = node.end(True)
    clock.now_s += module.UNANSWERED_S
    assert node.end(True).rests, "the second report of another node, the first that counts, may come as late"
    clock.now_s += LEASE_S - module.UNANSWERED_S
    assert node.failures.may_free(run)
    assert not node.end(True).rests


def test_failures_that_are_usual_or_slow_are_no_surprise(clock: Clock):
    node = Node(clock)
    for _ in range(20):
        node.end(False)
        node.end(True)
        node.end(True)
    assert not any(node.end(True).rests for _ in range(5))
    slow = Node(clock)
    assert not any(slow.end(True, seconds=9.0).rests for _ in range(9))


def test_failures_of_several_names_are_one_streak_of_the_node(clock: Clock):
    node = Node(clock)
    assert [node.end(True, name=name).rests for name in "abc"] == [False, True, True]
    assert [streak for *_, streak in node.tell()] == [1, 1, 1]


def test_what_could_not_be_reported_is_reported_the_next_time(clock: Clock):
    node = Node(clock)
    node.end(False)
    commands = cast(Any, SimpleNamespace(report_failures=lambda *args: args))
    _, counts = node.failures.report(commands, 0, "n", 1) or (None, [])
    assert node.failures.report(commands, 0, "n", 1) is None
    node.failures.not_reported(counts)
    assert node.tell() == counts == [("work", 1, 0, 0)]


# -- the leader --------------------------------------------------------------------------------------------------------


def put(drive: Driver, tries: int, inc: int = 1, ago_s: int = 0) -> None:
    at_ms = now_ms(drive.store) - 1000 * ago_s
    line = f"p0 n1 inc={inc} since=1 at={at_ms} length=9 tries={tries} runs=50 failed=0 all=1"
    drive.store.client.hset(drive.keys.shared("streaks"), "work", line)


def test_the_leader_makes_a_black_hole_suspect_and_after_a_failed_trial_for_twice_as_long(fake_store: Store):
    drive = Driver(fake_store)
    drive.node("n1")
    duty = BlackHoleDuty(fake_store, 1, 10.0)
    duty.work()
    for tries, wanted in ((3, 30.0), (4, 60.0)):
        put(drive, tries)
        duty.work()
        assert fake_store.nodes(0)["n1"].state == "suspect"
        assert trial_s(drive.store.hash(drive.keys.partition(0, "notes"))["n1"]) == wanted
        drive.run(drive.commands.set_node(0, "n1", "trust", 1))
        duty.work()
        assert fake_store.nodes(0)["n1"].state == "up", "it has not been tried again"


@pytest.mark.parametrize(
    ("tries", "inc", "ago_s"),
    [(1, 1, 0), (9, 2, 0), (9, 1, 3700)],
    ids=["chance", "another incarnation", "an old streak"],
)
def test_the_leader_leaves_other_nodes_alone(fake_store: Store, tries: int, inc: int, ago_s: int):
    drive = Driver(fake_store)
    drive.node("n1")
    duty = BlackHoleDuty(fake_store, 1, 10.0)
    duty.work()
    put(drive, tries, inc, ago_s)
    duty.work()
    assert fake_store.nodes(0)["n1"].state == "up"


def test_a_new_leader_judges_a_node_after_another_try_only(fake_store: Store):
    drive = Driver(fake_store)
    drive.node("n1")
    put(drive, 5)
    duty = BlackHoleDuty(fake_store, 1, 10.0)
    for _ in range(2):
        duty.work()
        assert fake_store.nodes(0)["n1"].state == "up", "perhaps its trial went well since then"
    put(drive, 6)
    duty.work()
    assert fake_store.nodes(0)["n1"].state == "suspect"


@pytest.mark.one_server(0)
def test_a_partition_that_cannot_be_read_keeps_no_other_node_from_being_judged(store: Store):
    drive = Driver(store)
    drive.node("n1")
    duty = BlackHoleDuty(store, 2, 10.0)
    duty.work()
    damaged, client = store.keys.partition(1, "nodes"), cast(Any, store.client)
    client.set(damaged, "x")
    line = f"p1 n0 inc=1 since=1 at={now_ms(store)} length=9 tries=9 runs=50 failed=0 all=1"
    client.hset(store.keys.shared("streaks"), "a", line)
    put(drive, 9)
    duty.work()
    client.delete(damaged)
    assert store.nodes(0)["n1"].state == "suspect"

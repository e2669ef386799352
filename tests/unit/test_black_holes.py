"""Failures in a row show that a node is a black hole; its name is held back, or the node becomes suspect."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from billiard.exceptions import Terminated
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.node import drain_terms, trial_note, trial_s
from parsync_redis.model.place import Place
from parsync_redis.model.streak import MIN_TRIES, Compared, Elsewhere, Streak, damning
from parsync_redis.scheduler.leader.black_holes import BlackHoleDuty, reason
from parsync_redis.store import Store
from parsync_redis.store.repair.lost_leases import now_ms
from parsync_redis.worker.celery.request import is_failure
from parsync_redis.worker.node import failures as module
from parsync_redis.worker.node.failures import Failures
from parsync_redis.worker.node.look_ahead import LookAhead
from parsync_redis.worker.node.runs import Run
from tests.kit.driver import Driver

LEASE_S = 10.0
SURE = Streak("work", 0, "n1", 1, 1, 5, 4, 20, 0, False)


def test_a_streak_while_others_succeed_shows_a_black_hole():
    assert damning([SURE]) == [SURE]


@pytest.mark.parametrize(
    "streak",
    [
        replace(SURE, tries=MIN_TRIES - 1, runs=10**6),
        replace(SURE, length=1000, tries=0),
        replace(SURE, runs=4),
        replace(SURE, failed=10),
        replace(SURE, runs=0),
    ],
    ids=[
        "too few tries",
        "all at one moment",
        "too few runs elsewhere",
        "half fail elsewhere",
        "a name of one node",
    ],
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
def test_only_an_error_of_the_function_counts_as_a_failure(
    error: BaseException, failed: bool | None
):
    assert is_failure(error) is failed


# -- the name of a streak is held back -------------------------------------------------------------


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
        self.failures = Failures(LookAhead(1, 0), lambda: LEASE_S)
        self.clock = clock
        self.numbers = count()

    def end(
        self,
        failed: bool,
        seconds: float = 0.01,
        name: str = "work",
        id: str = "",
        outcome: str = "",
    ) -> None:
        place = Place(id or f"t{next(self.numbers)}", "1@1", 0, "n", (0,), 1, 0)
        self.failures.ended(Run(place, name=name, failed=failed, outcome=outcome), seconds)

    def fail(self, *names: str, outcome: str = "") -> None:
        for name in names:
            self.end(True, name=name, outcome=outcome)

    def holds(self, name: str = "work") -> bool:
        return self.failures.hold_s(name) > 0

    def tell(self, elsewhere: Elsewhere | None = None, others: bool = True) -> Any:
        commands = cast(Any, SimpleNamespace(report_failures=lambda *args: args))
        found = self.failures.report(commands, 0, "n", 1)
        assert found is not None
        told = {
            name: elsewhere
            for name, _, _, streak, _ in found[1]
            if streak and elsewhere is not None
        }
        self.failures.reported(Compared(1, others, told))
        return found[1]


def test_a_name_is_held_back_after_two_failures_in_a_row_and_longer_after_each_try(clock: Clock):
    node = Node(clock)
    node.fail("work")
    assert not node.holds()
    for pause_s in (1.0, 2.0, 4.0):
        node.fail("work")
        clock.now_s += pause_s - 0.01
        assert node.holds()
        assert node.failures.due or pause_s > 1
        assert node.tell(Elsewhere(9, 0))[0][-1] == 10, "the ms until then"
        assert not node.failures.due
        assert node.failures.holds
        clock.now_s += 0.02
        assert not node.failures.holds, "others obey a hold until its end only"
        assert not node.failures.due
        assert [node.holds() for _ in range(3)] == [False, True, True], "one of them is a try"


def test_a_success_ends_the_hold(clock: Clock):
    node = Node(clock)
    node.fail("work", "work")
    assert node.tell() == [("work", 2, 2, 2, 1000)]
    node.end(False)
    assert node.failures.due
    assert node.tell() == [("work", 1, 0, 0, 0)]
    assert not node.holds()


def test_no_other_name_is_held_back_and_no_slot_rests(clock: Clock):
    node = Node(clock)
    node.fail("work", "work", "work")
    assert node.holds()
    assert not node.holds("other")
    node.end(False, name="other")
    assert node.holds(), "that others succeed here does not help"


def test_repeated_failures_of_a_single_task_do_not_hold_back_its_name(clock: Clock):
    node = Node(clock)
    for outcome in ("again", "again", "failed"):
        node.end(True, id="bad", outcome=outcome)
    assert not node.holds()


def test_a_retry_that_the_task_asked_for_holds_its_name_back_only_if_such_tasks_succeed_elsewhere(
    clock: Clock,
):
    node = Node(clock)
    node.fail(*["work"] * 5, outcome="again")
    assert not node.holds()
    assert node.tell(Elsewhere(9, 0)) == [("work", 5, 5, 5, 0)], "the leader is told"
    node.fail("work", outcome="again")
    assert node.holds()


def test_a_name_is_not_held_back_on_the_only_node(clock: Clock):
    node = Node(clock)
    node.fail("work", "work", "work")
    node.tell(Elsewhere(0, 0), others=False)
    assert not node.holds()
    node.fail("work")
    assert not node.holds()


def test_a_name_is_not_held_back_while_such_tasks_fail_elsewhere_too(clock: Clock):
    node = Node(clock)
    node.fail("work", "work", "work")
    node.tell(Elsewhere(4, 2))
    assert node.failures.due
    assert not node.holds()
    assert node.tell() == [("work", 0, 0, 3, 0)]


def test_a_name_is_held_back_no_longer_if_nobody_tells_how_such_tasks_end(clock: Clock):
    node = Node(clock)
    node.fail("work", "work", "work")
    clock.now_s += module.UNANSWERED_S
    node.fail("work")
    assert node.holds(), (
        "the second report of another node, the first that counts, may come as late"
    )
    clock.now_s += LEASE_S - module.UNANSWERED_S
    assert not node.holds()
    node.fail("work")
    assert not node.holds()


def test_failures_that_are_usual_or_slow_are_no_surprise(clock: Clock):
    node = Node(clock)
    for _ in range(20):
        node.end(False)
        node.fail("work", "work")
    node.fail(*["work"] * 3)
    assert not node.holds()
    slow = Node(clock)
    for _ in range(9):
        slow.end(True, seconds=9.0)
    assert not slow.holds()


def test_failures_of_several_names_are_one_streak_of_the_node(clock: Clock):
    node = Node(clock)
    node.fail("a", "b", "c", "d")
    assert not any(map(node.holds, "abcd")), "few failures of several names may be each name's own"
    node.fail("e", "f")
    assert [node.holds(name) for name in "abcdefg"] == [False] * 4 + [True, True, False]
    assert [(streak, held) for *_, streak, held in node.tell()] == [(1, 0)] * 4 + [(1, 1000)] * 2


def test_an_unreported_streak_is_reported_the_next_time(clock: Clock):
    node = Node(clock)
    node.fail("work", "work")
    commands = cast(Any, SimpleNamespace(report_failures=lambda *args: args))
    _, counts = node.failures.report(commands, 0, "n", 1) or (None, [])
    assert node.failures.report(commands, 0, "n", 1) is None
    node.failures.not_reported(counts)
    assert node.tell() == counts == [("work", 2, 2, 2, 1000)]


def test_a_changed_end_of_a_hold_is_reported_again(clock: Clock):
    node = Node(clock)
    node.fail("work", "work")
    node.tell()
    clock.now_s += 1.5
    commands = cast(Any, SimpleNamespace(report_failures=lambda *args: args))
    assert node.failures.report(commands, 0, "n", 1) is None, "everybody knows that it has ended"
    assert [node.holds(), node.holds()] == [False, True], "one task is a try"
    assert node.tell() == [("work", 0, 0, 2, 1000)]


# -- the leader ------------------------------------------------------------------------------------


def put(
    drive: Driver, tries: int, inc: int = 1, ago_s: int = 0, held_s: int = 0, name: str = "work"
) -> None:
    now = now_ms(drive.store)
    line = (
        f"p0 n1 inc={inc} since=1 at={now - 1000 * ago_s} length=9 tries={tries} runs=50 failed=0 "
        "all=1"
    )
    line += f" held={now + 1000 * held_s}" if held_s else ""
    drive.store.client.hset(drive.keys.shared("streaks"), name, line)


def test_the_leader_makes_a_black_hole_suspect_and_after_a_failed_trial_for_twice_as_long(
    fake_store: Store,
):
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


def test_the_leader_says_booked_until_the_last_hold_ends(fake_store: Store):
    """The node may be gone, so that nobody tells the end of its hold."""
    drive = Driver(fake_store)
    duty = BlackHoleDuty(fake_store, 1, 10.0)
    found = []
    for held_s in (60, -1, 0):
        put(drive, 0, held_s=held_s)
        duty.work()
        found.append(duty.held)
    assert found == [True, False, False]


def test_the_leader_drops_lines_that_are_an_hour_old(fake_store: Store):
    drive = Driver(fake_store)
    duty = BlackHoleDuty(fake_store, 1, 10.0)
    put(drive, 9, ago_s=3600, name="old")
    put(drive, 9, ago_s=3500, name="fresh")
    duty.work()
    assert list(fake_store.hash(drive.keys.shared("streaks"))) == ["fresh"]


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
    damaged = store.keys.partition(1, "nodes")
    client = cast(Any, store.client)
    client.set(damaged, "x")
    line = f"p1 n0 inc=1 since=1 at={now_ms(store)} length=9 tries=9 runs=50 failed=0 all=1"
    client.hset(store.keys.shared("streaks"), "a", line)
    put(drive, 9)
    duty.work()
    client.delete(damaged)
    assert store.nodes(0)["n1"].state == "suspect"

"""The leader and nodes that live, but do not start what they get; and the leader's count of a
drain's deadline.
"""

import pytest

from parsync_redis.model.node import drain_terms
from parsync_redis.model.place import Place
from parsync_redis.model.task import TaskState
from parsync_redis.scheduler.leader.black_holes import TASKS_TO_SUSPECT
from parsync_redis.scheduler.leader.drains import PROBATION_LEASES
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.store import Store
from tests.kit.driver import Driver

LEASE_S = 10.0


class Rounds:
    """A leader's passes while time goes by and every node renews."""

    def __init__(self, store: Store) -> None:
        self.drive = Driver(store)
        self.janitor = Janitor(store, 1, LEASE_S)
        self.now_s = 0.0
        self.attempts: dict[str, str] = {}

    def go(self, seconds: float, janitor: Janitor | None = None) -> None:
        """Let `seconds` pass, with a pass of the leader four times a lease."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LEASE_S / 4
            for node in self.drive.hash("nodes"):
                self.drive.run(self.drive.commands.renew(0, node, 1))
            (janitor or self.janitor).work(lambda: self.now_s, {"s1": int(self.now_s * 4)})

    def place(self, task: str, slot: int = 0, node: str = "n1") -> Place:
        """Place a task that is held, and whose doorbell has rung; return its place."""
        drive = self.drive
        if drive.state(task) == "gone":
            drive.submit(task)
        self.attempts |= drive.take()
        place = drive.held(task, self.attempts[task], node=node, slots=(slot,))
        assert drive.confirm(place) == "placed"
        return place

    @property
    def state(self) -> str:
        """Return the state of node n1."""
        return self.drive.store.nodes(0)["n1"].state


@pytest.fixture
def rounds(fake_store: Store) -> Rounds:
    rounds = Rounds(fake_store)
    rounds.drive.node("n1", 4)
    rounds.go(LEASE_S)
    return rounds


def test_a_task_that_does_not_start_for_a_lease_goes_back_and_its_slot_is_free(
    rounds: Rounds,
) -> None:
    rounds.place("a")
    rounds.go(LEASE_S)
    assert rounds.drive.state("a") == "placed", "the leader has seen it for less than a lease"
    rounds.go(LEASE_S / 2)
    assert (rounds.drive.state("a"), rounds.drive.bits(4)) == ("pending", "1111")
    assert rounds.drive.status("a").why == "n1 did not start it for a lease"
    assert rounds.drive.status("a").starts == 0
    assert rounds.state == "up", "once is no habit"


def test_a_node_that_starts_nothing_of_what_it_gets_is_suspect(rounds: Rounds) -> None:
    for slot, task in enumerate("abc"[:TASKS_TO_SUSPECT]):
        rounds.place(task, slot)
    rounds.go(1.5 * LEASE_S)
    assert (rounds.state, rounds.drive.bits(4)) == ("suspect", "0000")
    assert {rounds.drive.state(task) for task in "abc"} == {"pending"}
    note = rounds.drive.hash("notes")["n1"]
    assert note.startswith("alive, but 3 tasks in a row did not start there, the last: ")


def test_a_node_is_suspect_too_if_its_unstarted_tasks_come_in_sequence(rounds: Rounds) -> None:
    for _ in range(TASKS_TO_SUSPECT):
        assert rounds.state == "up"
        rounds.place("a")
        rounds.go(1.5 * LEASE_S)
    assert rounds.state == "suspect"


def test_a_start_in_between_clears_the_suspicion(rounds: Rounds) -> None:
    for _ in range(TASKS_TO_SUSPECT):
        rounds.place("a")
        rounds.go(1.5 * LEASE_S)
        runs = rounds.place("runs")
        rounds.drive.start(runs)
        rounds.go(LEASE_S / 4)
        rounds.drive.finish(runs, "again")
        rounds.drive.release(runs)
    assert rounds.state == "up"


def test_a_node_that_runs_something_is_left_alone(rounds: Rounds) -> None:
    """A worker that runs its tasks itself answers doorbells between them."""
    rounds.drive.start(rounds.place("runs", 3))
    for slot, task in enumerate("abc"):
        rounds.place(task, slot)
    rounds.go(3 * LEASE_S)
    assert rounds.state == "up"
    assert {rounds.drive.state(task) for task in "abc"} == {"placed"}


def test_a_suspect_that_reads_its_inbox_gets_tasks_again_after_its_probation(
    rounds: Rounds,
) -> None:
    for slot, task in enumerate("abc"):
        rounds.place(task, slot)
    rounds.go(1.5 * LEASE_S)
    rounds.go((PROBATION_LEASES + 1) * LEASE_S)
    assert rounds.state == "suspect", "its doorbells lie there unread"
    rounds.drive.store.client.delete(rounds.drive.keys.inbox(0, "n1"))
    rounds.go(LEASE_S / 4)
    assert (rounds.state, rounds.drive.bits(4), rounds.drive.hash("notes")) == ("up", "1111", {})


def test_a_new_leader_judges_nobody_for_a_lease(rounds: Rounds) -> None:
    rounds.place("a")
    rounds.go(LEASE_S)
    rounds.go(LEASE_S, Janitor(rounds.drive.store, 1, LEASE_S))
    assert rounds.drive.state("a") == "placed"


def test_after_a_restart_of_the_server_nobody_is_judged_for_a_lease(rounds: Rounds) -> None:
    rounds.place("a")
    rounds.go(LEASE_S)
    rounds.janitor.reset()
    rounds.go(LEASE_S)
    assert rounds.drive.state("a") == "placed"


def test_a_leader_that_slept_begins_anew(rounds: Rounds) -> None:
    rounds.place("a")
    rounds.go(LEASE_S / 2)
    rounds.now_s += 2 * LEASE_S
    rounds.go(LEASE_S / 4)
    assert rounds.drive.state("a") == "placed"


def test_the_deadline_of_a_drain_is_counted_by_the_leader_from_when_it_saw_it(
    rounds: Rounds,
) -> None:
    drive = rounds.drive
    note = drain_terms(2 * LEASE_S, "new disk")
    drive.start(rounds.place("a"))
    drive.run(drive.commands.set_node(0, "n1", "drain", None, note))
    rounds.go(2 * LEASE_S)
    assert drive.run(drive.commands.renew(0, "n1", 1))[3] == "1"
    rounds.go(LEASE_S / 4)
    assert drive.run(drive.commands.renew(0, "n1", 1))[3] == "2"
    assert drive.hash("notes")["n1"] == note
    assert drive.state("a") == TaskState.RUNNING, "its agent ends it"


def test_a_new_leader_counts_a_deadline_anew_and_a_drain_without_one_lasts(rounds: Rounds) -> None:
    drive = rounds.drive
    drive.run(drive.commands.set_node(0, "n1", "drain", None, drain_terms(LEASE_S, "")))
    rounds.go(LEASE_S)
    rounds.go(LEASE_S, Janitor(drive.store, 1, LEASE_S))
    assert drive.run(drive.commands.renew(0, "n1", 1))[3] == "1"
    drive.run(drive.commands.set_node(0, "n1", "drain", None, drain_terms(None, "deadline_s=1")))
    rounds.go(3 * LEASE_S)
    assert drive.run(drive.commands.renew(0, "n1", 1))[3] == "1"


@pytest.mark.parametrize(
    ("deadline", "note"),
    [(None, "no deadline"), (600, "deadline_s=600"), (0, "deadline_s=0"), (1.5, "deadline_s=1.5")],
)
def test_a_drain_reads_as_people_say_it(deadline: float | None, note: str) -> None:
    assert drain_terms(deadline, "") == note
    assert drain_terms(deadline, "why") == f"{note}: why"

"""A worker that registers anew may meet the one before it alive: its runs end before their tasks go
elsewhere.
"""

from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.scheduler.leader.nodes import SupersededNodes
from tests.kit.driver import Driver
from tests.store.lua.test_leader_damage import LEASE_S, running


class Leader:
    """A leader whose passes are a third of a lease apart, while the present process of
    n1 renews.
    """

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        self.janitor = Janitor(drive.store, 1, LEASE_S)
        self.now_s = 0.0

    def work(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.now_s += LEASE_S / 3
            self.drive.run(self.drive.commands.renew(0, "n1", self.drive.store.nodes(0)["n1"].inc))
            self.janitor.work(lambda: self.now_s, {})


def test_a_task_of_a_superseded_process_may_end_until_its_lease_is_over(drive: Driver) -> None:
    running(drive, "a", "n1")
    leader = Leader(drive)
    leader.work()
    place = drive.lease("n1/0")
    assert drive.node("n1") > place.inc
    leader.work(3)
    assert drive.state("a") == "running", "a lease is not over yet"
    assert drive.finish(place) == "ok"
    leader.work()
    assert drive.hash("slots") == {}


def test_tasks_of_a_superseded_process_return_after_a_lease_despite_further_registrations(
    drive: Driver,
) -> None:
    running(drive, "a", "n1")
    leader = Leader(drive)
    leader.work()
    for _ in range(4):  # a worker that dies again and again
        assert drive.state("a") == "running"
        drive.node("n1")
        leader.work()
    assert drive.state("a") == "pending"
    assert drive.hash("slots") == {}


def test_processes_before_a_registration_that_was_seen_a_lease_ago_have_ended() -> None:
    watch = SupersededNodes(10.0)
    assert watch.look(0.0, {"n": 3}) == {}
    assert watch.look(6.0, {"n": 5}) == {}
    assert watch.look(10.0, {"n": 5}) == {"n": 3}
    assert watch.look(16.0, {"n": 5}) == {"n": 5}
    assert watch.look(17.0, {}) == {}
    assert watch.look(18.0, {"n": 5}) == {}, "it holds something anew"

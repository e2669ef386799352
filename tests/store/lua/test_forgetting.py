"""Nodes that left in order are forgotten at once; their offers are known while a node like them may come back."""

from parsync_redis.model.events import Wanted
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.scheduler.leader.offers import OfferDuty
from parsync_redis.store.reads.events import read_events
from tests.kit.driver import Driver

LEASE_S = 10.0


class Forgetting:
    """A leader that does passes, and nodes that come and leave in order through the verbs of an
    agent.
    """

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        self.now_s = 0.0
        self.janitor = Janitor(drive.store, 1, LEASE_S, forget_s=3 * LEASE_S)

    def come(self, name: str, offer: str = "slots=1") -> int:
        commands = self.drive.commands
        run = self.drive.run
        p = run(commands.deal_node(name, 1, "", 1, 1.0))
        run(commands.offer(name, offer))
        return int(run(commands.register_node(p, name, 0, 1.0, offer))[0])

    def leave(self, name: str, inc: int) -> None:
        commands = self.drive.commands
        run = self.drive.run
        run(commands.set_node(0, name, "leaving", inc))
        moved = int(run(commands.renew(0, name, inc))[1])
        assert run(commands.reclaim(0, name, inc, moved))[0] == "down"
        assert run(commands.forget_node(0, name, inc, "left")) == "forgotten"

    def work(self, leases: float, *renewing: tuple[str, int]) -> None:
        for _ in range(round(4 * leases)):
            for name, inc in renewing:
                self.drive.run(self.drive.commands.renew(0, name, inc))
            self.janitor.work(lambda: self.now_s, {})
            self.now_s += LEASE_S / 4

    @property
    def known(self) -> tuple[set[str], set[str]]:
        """Return the nodes whose offers are known, and those whose partitions are."""
        dealt = self.drive.store.hash(self.drive.keys.shared("dealt"))
        homes = {field.removeprefix("node:") for field in dealt if field.startswith("node:")}
        return set(self.drive.store.hash(self.drive.keys.queue("shapes", 0))), homes


def test_only_a_unique_offer_is_kept_long_after_its_node_left(drive: Driver):
    leader = Forgetting(drive)
    stays = leader.come("stays")
    for name, offer in (("same", "slots=1"), ("own1", "slots=2"), ("own2", "slots=2")):
        leader.leave(name, leader.come(name, offer))
        leader.work(0.25, ("stays", stays))
    assert leader.known == ({"stays", "same", "own1", "own2"},) * 2
    leader.work(1.5, ("stays", stays))
    assert leader.known == ({"stays", "own2"},) * 2, (
        "its tasks are not refused until a node like that comes back"
    )
    leader.work(3, ("stays", stays))
    assert leader.known == ({"stays"},) * 2
    assert set(drive.store.nodes(0)) == {"stays"}


def test_a_name_that_comes_back_at_once_keeps_its_partition_and_its_incarnations_grow(
    drive: Driver,
):
    leader = Forgetting(drive)
    incs = []
    for _ in range(3):
        incs.append(leader.come("pod"))
        leader.leave("pod", incs[-1])
        leader.work(0.5)
    assert incs == [1, 2, 3]
    last = leader.come("pod")
    leader.work(5, ("pod", last))
    assert leader.known == ({"pod"}, {"pod"})
    assert drive.store.nodes(0)["pod"].state == "up"
    drive.store.client.hset(
        drive.keys.shared("config"), mapping={"partitions": 1, "shards": drive.keys.shards}
    )
    told = [(event.event, event.node) for event in read_events(drive.store, Wanted(), 100)]
    assert told.count(("registered", "pod")) == 4, "the events keep its history"
    assert told.count(("forgotten", "pod")) == 3


def test_the_offer_of_a_node_that_has_just_come_back_stays(drive: Driver):
    leader = Forgetting(drive)
    leader.come("pod")
    OfferDuty(drive.store, 1, LEASE_S, LEASE_S)._forget(["pod"])
    assert leader.known == ({"pod"}, {"pod"})


def test_a_lost_node_that_is_drained_stays_longer_so_that_its_drain_outlives_a_repair(
    drive: Driver,
):
    leader = Forgetting(drive)
    for name in ("lost", "drained"):
        leader.come(name)
    drive.run(drive.commands.set_node(0, "drained", "drain"))
    leader.work(6)
    assert set(drive.store.nodes(0)) == {"drained"}

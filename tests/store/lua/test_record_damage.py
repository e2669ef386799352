"""A node's record that contradicts its counter costs the node neither its lease nor its runs: one renewal corrects it."""

import pytest

from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit

WRONG = {
    "an incarnation before": ("inc=3", "inc=2"),
    "an incarnation after": ("inc=3", "inc=4"),
    "an incarnation that there was not": ("inc=3", "inc=900"),
    "down": ("up ", "down "),
}


@pytest.fixture
def running(drive: Driver) -> Driver:
    """Return a driver: task a runs on n1, incarnation 3; n2 has a higher one."""
    for _ in range(3):
        drive.node()
    drive.node("n2")
    drive.node("n2")
    place = drive.held("a", drive.taken("a"), inc=3)
    assert drive.start(place) == "ok"
    return drive


def damage(drive: Driver, what: str) -> None:
    key = drive.keys.partition(0, "nodes")
    record = drive.hash("nodes")["n1"]
    drive.store.client.hset(key, "n1", record.replace(*WRONG[what]))
    assert drive.hash("nodes")["n1"] != record


@pytest.mark.parametrize("repaired", ["", "shut", "open"])
@pytest.mark.parametrize("what", WRONG)
def test_a_renewal_corrects_the_record_and_the_run_goes_on(
    running: Driver, what: str, repaired: str
) -> None:
    before = running.hash("nodes")["n1"]
    epoch = running.hash("meta")["epoch"]
    damage(running, what)
    if repaired:
        running.run(running.commands.repair_partition(0, repaired))  # type: ignore[arg-type]
    assert running.run(running.commands.renew(0, "n1", 3))[0] == "ok"
    assert running.hash("nodes")["n1"] == before
    assert running.hash("meta")["epoch"] != epoch, "claims by the wrong record win nothing"
    place = running.lease("n1/0")
    assert (place.task, place.inc) == ("a", 3)
    assert running.finish(place) == "ok"
    running.run(running.commands.repair_partition(0, "open"))
    assert not audit(running.store)


def test_a_node_that_is_corrected_to_up_has_the_bits_of_its_free_slots(running: Driver) -> None:
    damage(running, "down")
    free = running.keys.partition(0, "free")
    node = running.store.nodes(0)["n1"]
    places = range(node.first, node.first + node.offer.slots)
    bits = [running.store.client.getbit(free, place) for place in places]
    assert sum(bits) == node.offer.slots - 1
    for place in places:  # as a leader writes them who found the record down
        running.store.client.setbit(free, place, 0)
    running.store.client.hincrby(running.keys.partition(0, "meta"), "free", -sum(bits))
    running.run(running.commands.renew(0, "n1", 3))
    assert [running.store.client.getbit(free, place) for place in places] == bits
    assert not audit(running.store), "no repair was needed"


@pytest.mark.parametrize("what", WRONG)
def test_a_node_with_a_wrong_record_that_nobody_renews_is_given_up(
    running: Driver, what: str
) -> None:
    damage(running, what)
    running.run(running.commands.repair_partition(0, "shut"))
    running.lose("n1", 3)
    assert running.run(running.commands.renew(0, "n1", 3))[0] in ("lapsed", "superseded")
    assert running.hash("nodes")["n1"].startswith("down ")
    place = running.lease("n1/0")
    assert running.requeue(place) == "pending"
    running.release(place)
    running.run(running.commands.repair_partition(0, "open"))
    assert not audit(running.store)


def test_a_counter_that_is_wrong_is_corrected_by_a_renewal(running: Driver) -> None:
    running.store.client.hset(running.keys.partition(0, "alive"), "n1", "inc=2 moved=7")
    running.run(running.commands.repair_partition(0, "shut"))
    assert running.run(running.commands.renew(0, "n1", 3))[0] == "ok"
    assert running.hash("alive")["n1"].startswith("inc=3 ")

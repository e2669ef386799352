"""The capacity of a node: what set_node shuts, what a claim gets, what is left; and repairs."""

from typing import Any

import numpy as np
import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.partition import READS_PER_WHOLE_READ, PartitionCopy
from parsync_redis.scheduler.process.plan_runner import PlanRunner
from parsync_redis.store.repair.repair import repair_partition
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit

OFFER = "slots=6 gpu=2 mem=12"


def give(drive: Driver, capacity: str, offer: str = OFFER, inc: int | None = 1) -> list[str]:
    """Tell the server what n1 can give now; '' for all that it offers."""
    words = f"capacity={capacity} " if capacity else ""
    return drive.run(drive.commands.set_node(0, "n1", "offer", inc, f"1.0 {words}{offer}"))


@pytest.fixture
def node(drive: Driver) -> Driver:
    """Return a node with six slots and amounts."""
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, OFFER))
    return drive


def record(drive: Driver) -> str:
    return drive.hash("nodes")["n1"]


def test_slots_beyond_the_capacity_shut_and_open_without_another_epoch(node: Driver):
    before = node.hash("meta")
    assert give(node, "slots=4,mem=5") == ["ok", "up", "0"]
    assert record(node) == (
        f"up inc=1 drain=0 first=0 span=6 ahead=-2 capacity=slots=4,mem=5 score=1.0 {OFFER}"
    )
    assert (node.bits(), node.hash("left")["n1"]) == ("11110000", "gpu=2 mem=5")
    after = node.hash("meta")
    assert (after["free"], after["slots"], after["epoch"]) == ("4", "6", before["epoch"])
    assert int(after["version"]) > int(before["version"])
    give(node, "slots=0")
    assert (node.bits(), node.hash("left")["n1"]) == ("00000000", "gpu=2 mem=12")
    give(node, "")
    assert (node.bits(), node.hash("meta")["free"]) == ("11111100", "6")
    assert record(node) == f"up inc=1 drain=0 first=0 span=6 score=1.0 {OFFER}"
    assert audit(node.store) == []


def test_leases_beyond_the_capacity_stay_and_take_the_room_of_free_slots(node: Driver):
    last = node.held("a", "1@1", slots=(4, 5))
    give(node, "slots=3")
    assert node.bits() == "10000000", "two of three slots are held behind"
    node.held("b", "1@2", slots=(0,))
    assert node.commit("c", "1@3", slots=(1,)).word == "conflict"
    assert node.release(last) == "freed"
    assert node.bits() == "00000000", "the node tells its offer again when a run behind has ended"
    give(node, "slots=3")
    assert node.bits() == "01100000"
    assert audit(node.store) == []


def test_a_slot_within_the_capacity_opens_by_its_release(node: Driver):
    give(node, "slots=3,gpu=1")
    place = node.held("a", "1@1", slots=(1,))
    assert node.bits() == "10100000"
    assert node.release(place) == "freed"
    assert node.bits() == "11100000"
    beyond = node.held("b", "1@2", slots=(2,))
    give(node, "slots=2,gpu=1")
    assert node.release(beyond) == "freed"
    assert node.bits() == "10000000", "it is beyond the capacity"


def test_an_amount_below_what_is_held_gives_nothing_until_enough_is_back(node: Driver):
    first = node.held("a", "1@1", slots=(0,), needs="slots=1 mem=5")
    second = node.held("b", "1@2", slots=(1,), needs="slots=1 mem=4")
    give(node, "mem=6")
    assert node.hash("left")["n1"] == "gpu=2 mem=-3"
    assert node.commit("c", "1@3", slots=(2,), needs="slots=1 mem=1").word == "short"
    node.held("d", "1@4", slots=(2,), needs="slots=1 gpu=1")
    assert audit(node.store) == []
    assert node.release(second) == "freed"
    assert node.hash("left")["n1"] == "gpu=1 mem=1"
    assert node.commit("c", "1@5", slots=(3,), needs="slots=1 mem=2").word == "short"
    node.held("c", "1@6", slots=(3,), needs="slots=1 mem=1")
    assert node.release(first) == "freed"
    give(node, "")
    assert node.hash("left")["n1"] == "gpu=1 mem=11"
    assert audit(node.store) == []


@pytest.mark.parametrize("asked", ["mem=0", "gpu=0 mem=0", "mem=1", "gpu=1", "gpu=0"])
def test_a_scheduler_and_a_claim_agree_on_a_node_that_holds_more_than_it_gives(
    node: Driver, asked: str
):
    node.held("a", "1@1", slots=(0,), needs="slots=1 mem=5")
    give(node, "mem=3")
    copy = PartitionCopy(0)
    copy.set_nodes(node.store.nodes(0).values(), 1)
    snapshot = node.run(node.commands.read_partition(0))
    copy.set_free(snapshot.bits, snapshot.left, snapshot.version)
    needs = f"slots=1 {asked}"
    seats = len(copy.seats(parse_needs(needs)).leads)
    word = node.commit("b", "1@2", slots=(1,), needs=needs).word
    assert (seats > 0, word) in ((False, "short"), (True, "held"))


def test_a_scheduler_hears_of_amounts_that_change_with_the_capacity(node: Driver):
    seen = node.run(node.commands.read_partition(0)).version
    give(node, "mem=1")
    snapshot = node.run(node.commands.read_partition(0, seen))
    assert not snapshot.whole
    assert snapshot.left == {"n1": "gpu=2 mem=1"}


def test_a_restarted_node_gives_no_more_than_its_capacity(node: Driver):
    node.held("a", "1@1", slots=(5,), needs="slots=1 mem=4")
    node.run(node.commands.register_node(0, "n1", 1, 1.0, OFFER, 0, "slots=2,mem=3"))
    assert (node.bits(), node.hash("left")["n1"]) == ("10000000", "gpu=2 mem=-1")
    assert audit(node.store) == []


@pytest.mark.parametrize(
    "capacity",
    ["slots=7", "disk=1", "mem=12.5", "mem=x", "mem=-1", "mem", "slots=1,,mem=1", "apart_x=1"],
)
def test_a_capacity_that_the_node_does_not_offer_is_refused(node: Driver, capacity: str):
    before = record(node)
    with pytest.raises(BrokenContract):
        give(node, capacity)
    with pytest.raises(BrokenContract):
        node.run(node.commands.register_node(0, "n1", 1, 1.0, OFFER, 0, capacity))
    assert record(node) == before


def test_a_record_that_opens_more_slots_than_the_capacity_is_damaged(node: Driver):
    give(node, "slots=4,mem=5")
    damaged = record(node).replace(" ahead=-2", "")
    node.store.client.hset(node.keys.partition(0, "nodes"), "n1", damaged)
    with pytest.raises(ValueError, match="more slots are open than it gives"):
        Node.of("n1", damaged)
    repair_partition(node.store, 0)
    assert record(node).startswith("down inc=0 "), "its agent registers again"


def test_a_node_with_a_long_offer_can_tell_its_capacity(drive: Driver):
    labels = {f"label_{number:02}_of_this_machine": "v" * 60 for number in range(60)}
    offer = Resources.of(6, {"mem": 12}, labels).text
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, offer))
    assert give(drive, "slots=2,mem=5", offer) == ["ok", "up", "0"]
    assert drive.bits() == "11000000"


def test_a_node_with_waiting_seats_has_no_capacity(drive: Driver):
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, OFFER, 3))
    with pytest.raises(BrokenContract):
        give(drive, "slots=1")
    with pytest.raises(BrokenContract):
        drive.run(drive.commands.register_node(0, "n1", 1, 1.0, OFFER, 3, "slots=1"))


def test_a_source_that_fails_shuts_nothing(node: Driver):
    give(node, "?")
    assert node.bits() == "11111100"
    give(node, "slots=5?")
    assert (node.bits(), " capacity=slots=5? " in record(node)) == ("11111000", True)


def test_the_events_say_when_a_node_shrank_and_when_it_grew(node: Driver):
    for capacity in ("slots=4", "slots=3", "slots=3?", "?", "mem=1", ""):
        give(node, capacity)
    client: Any = node.store.client
    events = [
        (fields[b"event"], fields.get(b"why"))
        for _, fields in client.xrange(node.store.keys.partition(0, "events"))
        if fields[b"event"] in (b"shrank", b"grew")
    ]
    assert events == [
        (b"shrank", b"slots=4"),
        (b"grew", None),
        (b"shrank", b"mem=1"),
        (b"grew", None),
    ]


def test_a_repair_keeps_the_capacity(node: Driver):
    node.held("a", "1@1", slots=(5,), needs="slots=1 mem=4")
    give(node, "slots=3,mem=5")
    sound = (node.bits(), node.hash("left")["n1"])
    node.store.client.setbit(node.store.keys.partition(0, "free"), 4, 1)
    node.store.client.hset(node.store.keys.partition(0, "left"), "n1", "gpu=2 mem=8")
    repair_partition(node.store, 0)
    assert (node.bits(), node.hash("left")["n1"]) == sound
    assert audit(node.store) == []


def test_a_scheduler_learns_a_capacity_that_changes_alone_with_its_next_whole_read(node: Driver):
    core = Core("s1", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
    runner = PlanRunner(node.store, core)

    def read() -> None:
        core.on_freed(0)
        runner.carry_out(core.plan(place=False, confirm=False), lambda: 0.0)

    read()
    assert core.view.totals() == {"slots": 6000, "gpu": 2000, "mem": 12000}
    give(node, "slots=4,mem=5")
    for _ in range(READS_PER_WHOLE_READ):
        read()
    assert core.view.totals() == {"slots": 4000, "gpu": 2000, "mem": 5000}
    assert core.view.partitions[0].free_count == 4
    nodes = core.view.partitions[0].nodes
    for _ in range(READS_PER_WHOLE_READ):
        read()
    assert core.view.partitions[0].nodes is nodes, "nothing has changed, so the copy stays"

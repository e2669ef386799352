"""renew, reclaim, set_node, read_partition: a node lives as long as its counter moves, and everyone
can see it.
"""

from typing import Any

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.needs import Resources
from parsync_redis.placement.forecast import ExpectedEnd, expected_start_ms
from parsync_redis.store.reads.live_nodes import facts_of, live_nodes, read_holders
from parsync_redis.store.reads.views import reads_of
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit


def test_a_renewal_moves_the_counter(drive: Driver):
    drive.node("n1")
    assert drive.run(drive.commands.renew(0, "n1", 1)) == ["ok", "1", "up", "0"]
    assert drive.run(drive.commands.renew(0, "n1", 1)) == ["ok", "2", "up", "0"]


def test_an_agent_hears_of_its_drain_and_leaves_under_its_lease(drive: Driver):
    drive.node("n1")
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    drive.run(drive.commands.set_node(0, "n1", "leaving", 1))
    assert drive.run(drive.commands.renew(0, "n1", 1)) == ["ok", "1", "leaving", "1"]


def test_only_the_current_incarnation_that_is_not_down_renews(drive: Driver):
    assert drive.unchanged_by(drive.commands.renew(0, "n1", 1)) == ["lapsed"]
    drive.node("n1")
    drive.node("n1")
    assert drive.unchanged_by(drive.commands.renew(0, "n1", 1)) == ["superseded", "2"]
    assert drive.unchanged_by(drive.commands.renew(0, "n1", 3)) == ["lapsed"], (
        "the server forgot its registration"
    )
    drive.lose("n1", 2)
    assert drive.unchanged_by(drive.commands.renew(0, "n1", 2)) == ["lapsed"]


def test_a_node_whose_counter_stood_still_is_down_and_its_leases_are_listed(drive: Driver):
    drive.node("n1", 3)
    drive.held("a", slots=(0, 2))
    drive.held("b", "1@2", slots=(1,))
    word, lost = drive.run(drive.commands.reclaim(0, "n1", 1, 0))
    assert word == "down"
    assert [(lease.place.task, lease.slot, lease.place.slots) for lease in lost] == [
        ("a", 0, (0, 2)),
        ("b", 1, (1,)),
    ]
    assert (drive.bits(), len(drive.hash("slots"))) == ("00000000", 3)
    assert drive.unchanged_by(drive.commands.reclaim(0, "n1"))[1] == lost


@pytest.mark.parametrize(("inc", "moved"), [(1, 0), (2, 1), (0, 1)])
def test_reclaim_keeps_a_node_that_renewed_or_registered_again(drive: Driver, inc: int, moved: int):
    drive.node("n1")
    drive.held("a")
    drive.run(drive.commands.renew(0, "n1", 1))
    assert drive.unchanged_by(drive.commands.reclaim(0, "n1", inc, moved)) == ("moved", [])
    assert drive.run(drive.commands.renew(0, "n1", 1))[0] == "ok"


def test_a_node_is_given_up_once(drive: Driver):
    drive.node("n1")
    drive.lose("n1", 1)
    assert drive.unchanged_by(drive.commands.reclaim(0, "n1", 1, 0)) == ("moved", [])


def test_the_list_is_bounded_and_goes_on_until_the_last_lease(drive: Driver):
    drive.node("n1", 3)
    places = [drive.held(id, f"1@{i}", slots=(i,)) for i, id in enumerate("abc")]
    drive.lose("n1", 1)
    client = drive.store.client
    for place in places:
        _, lost = drive.run(drive.commands.reclaim(0, "n1", limit=1))
        assert [lease.place.task for lease in lost] == [place.task]
        assert client.sismember(drive.keys.partition(0, "lost"), "n1")
        drive.release(place)
    assert drive.run(drive.commands.reclaim(0, "n1")) == ("listed", [])
    assert not client.exists(drive.keys.partition(0, "lost"))


def test_a_node_that_is_gone_is_not_lost_any_more(drive: Driver):
    drive.store.client.sadd(drive.keys.partition(0, "lost"), "n1")
    assert drive.run(drive.commands.reclaim(0, "n1")) == ("listed", [])
    assert not drive.store.client.exists(drive.keys.partition(0, "lost"))


def test_the_leases_of_the_present_process_are_not_lost(drive: Driver):
    drive.node("n1", 2)
    drive.held("a")
    drive.node("n1", 2)
    drive.held("b", "1@2", slots=(1,), inc=2)
    _, lost = drive.run(drive.commands.reclaim(0, "n1"))
    assert [lease.place.task for lease in lost] == ["a"]


def test_a_drained_node_keeps_what_it_holds(drive: Driver):
    drive.node("n1", 2)
    drive.held("a")
    assert drive.run(drive.commands.set_node(0, "n1", "drain")) == ["ok", "up", "1"]
    assert (drive.bits(), list(drive.hash("slots"))) == ("00000000", ["n1/0"])
    assert drive.run(drive.commands.set_node(0, "n1", "undrain")) == ["ok", "up", "0"]
    assert drive.bits() == "01000000"


def test_a_process_that_leaves_speaks_for_itself_only(drive: Driver):
    drive.node("n1")
    drive.node("n1")
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "leaving", 1)) == ["gone"]
    assert drive.run(drive.commands.set_node(0, "n1", "leaving", 2)) == ["ok", "leaving", "0"]
    assert drive.bits() == "00000000"


def test_there_are_three_words_for_a_node(drive: Driver):
    drive.node("n1")
    with pytest.raises(BrokenContract, match="PSWORD"):
        drive.run(drive.commands.set_node(0, "n1", "rest"))
    assert drive.unchanged_by(drive.commands.set_node(0, "n2", "drain")) == ["gone"]


def test_a_snapshot_shows_bits_and_amounts_of_one_moment(drive: Driver):
    drive.node("n1", 9, {"gpu": 4})
    drive.node("n2", 1)
    drive.held("a", slots=(8,), needs="slots=1 gpu=1")
    snapshot = drive.unchanged_by(drive.commands.read_partition(0))
    assert (snapshot.version, snapshot.left) == (3, {"n1": "gpu=3"})
    assert snapshot.epoch == int(drive.hash("meta")["epoch"])
    assert snapshot.bits == bytes([0b11111111, 0b01000000])


def test_an_unchanged_partition_is_not_sent_again(drive: Driver):
    drive.node("n1")
    version = drive.run(drive.commands.read_partition(0)).version
    assert drive.run(drive.commands.read_partition(0, version)).bits is None
    drive.held("a")
    assert drive.run(drive.commands.read_partition(0, version)).bits == b"\x40"


def test_an_empty_partition_has_an_empty_snapshot(drive: Driver):
    snapshot = drive.unchanged_by(drive.commands.read_partition(3))
    assert (snapshot.version, snapshot.epoch, snapshot.bits, snapshot.left) == (0, 0, b"", {})


def test_every_change_of_a_partition_raises_its_version(drive: Driver):
    drive.node("n1", 2)
    versions = [drive.run(drive.commands.read_partition(0)).version]

    def changed() -> bool:
        versions.append(drive.run(drive.commands.read_partition(0)).version)
        return versions[-1] > versions[-2]

    place = drive.held("a")
    assert changed()
    drive.release(place)
    assert changed()
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    assert changed()
    drive.lose("n1", 1)
    assert changed()
    drive.run(drive.commands.forget_node(0, "n1", 1))
    assert changed()


@pytest.mark.parametrize("offer", ["slots=1 gpu=4", "slots=2 gpu=1 mem=5", "slots=2"])
def test_an_offer_that_is_corrected_corrects_what_is_left_and_the_count_of_slots(
    drive: Driver, offer: str
):
    drive.node("n1", 2, resources={"gpu": 2})
    drive.node("n2", 3)
    drive.held(needs="slots=1 gpu=1")
    assert drive.run(drive.commands.set_node(0, "n1", "offer", 1, f"1.0 {offer}")) == [
        "ok",
        "up",
        "0",
    ]
    assert audit(drive.store) == []
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "offer", 1, f"1.0 {offer}")) == [
        "ok",
        "up",
        "0",
    ]


def test_a_lease_that_is_put_back_leaves_no_amounts_that_its_node_does_not_declare(drive: Driver):
    drive.node("n1")
    place = drive.held()
    client: Any = drive.store.client
    client.hdel(drive.keys.partition(0, "slots"), place.seat)
    client.hset(drive.keys.partition(0, "left"), "n1", "gpu=1")
    assert drive.run(drive.commands.restore(0, [place])) == ["back"]
    assert audit(drive.store) == []


# -- a pool that changes its size ------------------------------------------------------------------


def resize(drive: Driver, slots: int, more: str = "") -> None:
    call = drive.commands.set_node(0, "n1", "offer", 1, f"1.0 slots={slots}{more}")
    assert drive.run(call) == ["ok", "up", "0"]
    assert audit(drive.store) == []
    assert drive.unchanged_by(call) == ["ok", "up", "0"]


def test_a_node_whose_pool_shrank_gets_no_claims_for_the_slots_that_are_gone(drive: Driver):
    drive.node("n1", 4)
    drive.node("n2", 2)
    resize(drive, 1)
    assert drive.bits() == "10001100"
    assert drive.commit("a", "1@1", slots=(1,)).word == "conflict"
    resize(drive, 3, " gpu=2")
    assert (drive.bits(), drive.hash("left")) == ("11101100", {"n1": "gpu=2"})


def test_runs_behind_the_slots_occupy_the_processes_of_slots(drive: Driver):
    """Otherwise a task would start on a free slot, and wait for a process of the full pool as a running task."""
    drive.node("n1", 6)
    places = {slot: drive.held(f"t{slot}", f"1@{slot}", slots=(slot,)) for slot in (1, 4, 5)}
    resize(drive, 3)
    assert drive.bits() == "00000000", "three run on a pool of three"
    assert drive.hash("nodes")["n1"] == "up inc=1 drain=0 first=0 span=6 ahead=-3 score=1.0 slots=3"
    assert drive.release(places[1]) == "freed"
    resize(drive, 3)
    assert drive.bits() == "10000000", "two run: one more may"
    assert drive.release(places[5]) == "freed"
    resize(drive, 3)
    assert drive.bits() == "11000000"
    assert drive.release(places[4]) == "freed"
    resize(drive, 3)
    assert drive.hash("nodes")["n1"] == "up inc=1 drain=0 first=0 span=6 score=1.0 slots=3"
    assert drive.bits() == "11100000"


def test_a_task_of_several_slots_has_one_process(drive: Driver):
    drive.node("n1", 4)
    drive.held("wide", "1@1", slots=(1, 2, 3))
    resize(drive, 2)
    assert drive.bits() == "10000000", "one runs on a pool of two"


def test_slots_and_waiting_seats_stay_shut_during_the_runs_behind_the_slots(
    drive: Driver,
):
    drive.node("n1", 3)
    drive.held("a", slots=(2,))
    resize(drive, 1)
    assert drive.bits() == "00000000"
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "ahead", 1, "1")) == [
        "ok",
        "up",
        "0",
    ]
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    drive.run(drive.commands.set_node(0, "n1", "undrain"))
    assert drive.bits() == "00000000"


def test_runs_behind_the_slots_leave_no_room_in_a_forecast(drive: Driver):
    drive.node("n1", 4)
    drive.held("a", slots=(2,))
    drive.held("b", slots=(3,))
    resize(drive, 2)
    (state,) = live_nodes(0, *drive.store.pipe(reads_of(drive.store, 0))[1:])
    ends = [ExpectedEnd(holder, None) for holder in read_holders(drive.store, 0, [state.node])]
    facts = facts_of(state, "work", {})
    assert facts.free == 0
    assert expected_start_ms(Resources.needed(1), [facts], ends, 0) is None


def test_a_node_whose_pool_grew_has_bits_for_its_slots_behind_those_of_other_nodes(drive: Driver):
    drive.node("n1", 2)
    place = drive.held("a", slots=(1,))
    drive.node("n2", 2)
    resize(drive, 3)
    assert drive.hash("nodes")["n1"] == "up inc=1 drain=0 first=4 span=3 score=1.0 slots=3"
    assert drive.bits() == "00111010"
    assert drive.hash("meta")["slots"] == "5"
    assert drive.release(place) == "freed"
    assert drive.bits() == "00111110"
    drive.node("n3", 2)
    assert drive.bits(16) == "1111111000000000", "the bits that it left are another node's"


@pytest.mark.parametrize("slots", [0, 10_001])
def test_an_offer_of_no_slots_or_of_too_many_is_refused(drive: Driver, slots: int):
    drive.node("n1")
    with pytest.raises(BrokenContract, match="the note of offer"):
        drive.run(drive.commands.set_node(0, "n1", "offer", 1, f"1.0 slots={slots}"))

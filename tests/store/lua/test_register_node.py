"""register_node, forget_node: a process takes a node's name, and what earlier ones held is the
leader's to repair.
"""

import time

import pytest

from tests.kit.driver import Driver


def test_a_new_node_has_free_slots_and_all_its_amounts(drive: Driver):
    assert drive.node("n1", 3, {"gpu": 2, "mem": "4KiB"}, {"zone": "a"}) == 1
    assert drive.bits() == "11100000"
    assert drive.hash("left") == {"n1": "gpu=2 mem=4096"}
    assert drive.hash("nodes")["n1"] == (
        "up inc=1 drain=0 first=0 span=3 score=1.0 slots=3 gpu=2 mem=4096 zone:a"
    )
    assert (drive.hash("meta")["slots"], drive.hash("meta")["free"]) == ("3", "3")


def test_a_node_without_resources_has_no_ledger(drive: Driver):
    drive.node("n1", 1)
    assert drive.hash("left") == {}


def test_nodes_do_not_share_bits_and_gaps_are_filled(drive: Driver):
    for name, slots in (("n1", 2), ("n2", 3), ("n3", 1)):
        drive.node(name, slots)
    drive.lose("n2", 2)
    assert drive.run(drive.commands.forget_node(0, "n2", 2)) == "forgotten"
    drive.node("n4", 2)
    drive.node("n5", 2)
    firsts = {name: line.split()[3] for name, line in drive.hash("nodes").items()}
    assert firsts == {"n1": "first=0", "n3": "first=5", "n4": "first=2", "n5": "first=6"}
    assert drive.bits() == "11110111"


def test_incarnations_grow_over_all_nodes_and_past_what_a_process_knew(drive: Driver):
    assert [
        drive.node("n1"),
        drive.node("n2"),
        drive.node("n1"),
        drive.node("n1", known_inc=40),
    ] == [1, 2, 3, 41]
    assert drive.node("n2", known_inc=7) == 42


def test_a_forgotten_name_does_not_begin_again(drive: Driver):
    drive.node("n1")
    drive.lose("n1", 1)
    drive.run(drive.commands.forget_node(0, "n1", 1))
    assert drive.node("n1") == 2


def test_incarnation(drive: Driver):
    """The lease of an earlier process stays: the new process does not hold the lease, and its slot is not free."""
    drive.node("n1", 2)
    old = drive.held("a", "1@1", slots=(0,))
    assert drive.node("n1", 2) == 2
    assert drive.bits() == "01000000"
    assert drive.commit("a", "1@1", slots=(0,), inc=2).word == "conflict"
    word, lost = drive.run(drive.commands.reclaim(0, "n1"))
    assert (word, [(lease.place.task, lease.place.inc) for lease in lost]) == ("listed", [("a", 1)])
    assert drive.release(old) == "freed"
    assert drive.bits() == "11000000"


def test_ledger_from_leases(drive: Driver):
    """The ledger of a node that registers again is its new offer minus the amounts that leases
    still hold.
    """
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", "1@1", needs="slots=1 gpu=2")
    drive.node("n1", 2, {"gpu": 3})
    assert drive.hash("left") == {"n1": "gpu=1"}
    drive.node("n1", 2, {"gpu": 1})
    assert drive.hash("left") == {"n1": "gpu=-1"}
    assert drive.commit("b", "1@2", slots=(1,), inc=3, needs="slots=1 gpu=1").word == "short"
    drive.release(place)
    assert drive.hash("left") == {"n1": "gpu=1"}


def test_a_node_may_come_back_with_other_resources(drive: Driver):
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", "1@1", needs="slots=1 gpu=1")
    drive.node("n1", 2, {"mem": 5})
    assert drive.hash("left") == {"n1": "mem=5"}
    drive.node("n1", 2)
    assert drive.hash("left") == {}
    drive.release(place)


def test_span_remembers(drive: Driver):
    """A lease beyond the slots that a node declares now counts, and its bit stays 0 when the lease is freed."""
    drive.node("n1", 4)
    drive.node("n2", 1)
    place = drive.held("a", "1@1", slots=(3,))
    drive.node("n1", 1)
    assert drive.bits() == "10001000"
    _, lost = drive.run(drive.commands.reclaim(0, "n1"))
    assert [lease.slot for lease in lost] == [3]
    assert drive.release(place) == "freed"
    assert drive.bits() == "10001000"


def test_a_node_that_grows_moves_to_where_it_has_room_with_its_leases(drive: Driver):
    drive.node("n1", 2)
    drive.node("n2", 1)
    drive.held("a", "1@1", slots=(1,))
    drive.node("n1", 4)
    assert drive.hash("nodes")["n1"].split()[3:5] == ["first=3", "span=4"]
    assert drive.bits() == "00110110"[:3] + "10110"


def test_a_drain_survives_a_restart_and_a_lapse_does_not(drive: Driver):
    drive.node("n1", 2)
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    drive.lose("n1", 1)
    drive.node("n1", 2)
    assert drive.hash("nodes")["n1"].startswith("up inc=2 drain=1")
    assert drive.bits() == "00000000"
    drive.run(drive.commands.set_node(0, "n1", "undrain"))
    assert drive.bits() == "11000000"


def test_messages_for_an_earlier_process_are_gone(drive: Driver):
    drive.node("n1", 2)
    drive.held("a", "1@1")
    assert len(drive.inbox()) == 1
    drive.node("n1", 2)
    assert drive.inbox() == []


def test_a_new_process_makes_every_view_read_the_nodes_again(drive: Driver):
    drive.node("n1", 2)
    before = drive.run(drive.commands.read_partition(0))
    drive.node("n1", 2)
    after = drive.run(drive.commands.read_partition(0, before.version))
    assert after.epoch > before.epoch
    assert after.bits is not None


@pytest.mark.parametrize("known_inc", [0, 1])
def test_a_new_process_has_a_counter_of_its_own(drive: Driver, known_inc: int):
    drive.node("n1")
    drive.run(drive.commands.renew(0, "n1", 1))
    drive.node("n1", known_inc=known_inc)
    assert drive.hash("alive") == {"n1": "inc=2 moved=0"}
    assert drive.run(drive.commands.renew(0, "n1", 1)) == ["superseded", "2"]


def test_only_a_node_that_is_down_and_holds_nothing_is_forgotten(drive: Driver):
    drive.node("n1", 2, {"gpu": 1})
    place = drive.held("a", "1@1")
    assert drive.unchanged_by(drive.commands.forget_node(0, "n1", 1)) == "up"
    drive.lose("n1", 1)
    assert drive.unchanged_by(drive.commands.forget_node(0, "n1", 1)) == "held"
    drive.release(place)
    assert drive.unchanged_by(drive.commands.forget_node(0, "n1", 7)) == "up"
    assert drive.run(drive.commands.forget_node(0, "n1", 1)) == "forgotten"
    assert [drive.hash(kind) for kind in ("nodes", "left", "alive", "slots")] == [{}, {}, {}, {}]
    assert drive.hash("meta")["slots"] == "0"
    assert drive.unchanged_by(drive.commands.forget_node(0, "n1", 1)) == "gone"


def test_an_epoch_that_was_lost_is_not_given_again_though_the_clock_was_set_back(drive: Driver):
    drive.node()
    client = drive.store.client
    meta = drive.keys.partition(0, "meta")
    epochs = set()
    ahead = int(drive.hash("meta")["epoch"]) + 3_600_000
    for _ in range(50):
        time.sleep(0.003)
        client.hset(meta, "epoch", ahead)  # what the server has after its last write was lost
        drive.node()
        epochs.add(int(drive.hash("meta")["epoch"]))
    assert min(epochs) > ahead
    assert len(epochs) > 10, "as a count all would be equal"

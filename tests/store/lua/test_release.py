"""release frees exactly the lease that is meant."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.store.repair.repair import repair_partition
from tests.kit.driver import Driver


def test_a_freed_slot_is_free_with_its_amounts(drive: Driver):
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", needs="slots=1 gpu=2")
    assert drive.release(place) == "freed"
    assert (drive.bits(), drive.hash("slots"), drive.hash("left")) == (
        "11000000",
        {},
        {"n1": "gpu=2"},
    )


def test_a_repeated_release_frees_nothing(drive: Driver):
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", needs="slots=1 gpu=2")
    drive.release(place)
    assert drive.unchanged_by(drive.commands.release(0, [place])) == ["none"]
    assert drive.run(drive.commands.release(0, [place, place])) == ["none", "none"]


@pytest.mark.parametrize("other", [{"task": "b"}, {"attempt": "2@1"}, {"attempt": "1@2"}])
def test_release_fenced(drive: Driver, other: dict[str, Any]):
    """A late release of another task or attempt does not free a slot that somebody holds."""
    drive.node("n1", 2)
    place = drive.held("a")
    assert drive.unchanged_by(drive.commands.release(0, [replace(place, **other)])) == ["none"]


def test_release_names_incarnation(drive: Driver):
    """Another process's release of the same attempt at the same slot is late: that lease is gone,
    this one stands.
    """
    drive.node("n1", 1)
    old = drive.held("a")
    drive.node("n1", 1)
    drive.release(old)
    drive.held("a", inc=2)
    assert drive.unchanged_by(drive.commands.release(0, [old])) == ["none"]


@pytest.mark.parametrize("word", ["drain", "leaving", "down", "fewer slots"])
def test_release_guards_bit(drive: Driver, word: str):
    """The bit comes back only on a node that is up, does not drain, and still has that slot."""
    drive.node("n1", 2)
    place = drive.held("a", slots=(1,))
    if word == "down":
        drive.lose("n1", 1)
    elif word == "fewer slots":
        drive.node("n1", 1)
    else:
        drive.run(drive.commands.set_node(0, "n1", word))
    free = drive.hash("meta")["free"]
    assert drive.release(place) == "freed"
    assert drive.bits()[1] == "0"
    assert drive.hash("meta")["free"] == free


@pytest.mark.parametrize("slots", [(0,), (2,), (2, 0), (0, 1, 2)])
def test_a_task_s_slots_are_released_together_and_as_they_were_claimed(
    drive: Driver, slots: tuple[int, ...]
):
    drive.node("n1", 3, {"gpu": 2})
    place = drive.held("a", slots=(0, 2), needs="slots=2 gpu=2")
    assert drive.unchanged_by(drive.commands.release(0, [replace(place, slots=slots)])) == ["none"]
    assert drive.unchanged_by(drive.commands.release(0, [replace(place, asked="gpu=1")])) == [
        "none"
    ]
    assert drive.run(drive.commands.release(0, [place, place])) == ["freed", "none"]
    assert (drive.hash("slots"), drive.bits(3), drive.hash("left")) == ({}, "111", {"n1": "gpu=2"})
    assert drive.hash("meta")["free"] == "3"


def test_places_of_many_slots_are_released(drive: Driver):
    """The places have more slots than one command may take."""
    drive.node("n1", 2600)
    places = [drive.held(id, slots=tuple(range(at, 2600, 2))) for at, id in enumerate("ab")]
    assert drive.bits(2600) == "0" * 2600
    assert drive.run(drive.commands.release(0, places)) == ["freed", "freed"]
    assert (drive.bits(2600), drive.hash("slots")) == ("1" * 2600, {})


def test_places_on_several_nodes_go_back_to_their_own(drive: Driver):
    places = []
    for at, name in enumerate(("n1", "n2", "n3")):
        drive.node(name, 2, {"gpu": 2} if at else None)
    for at, name in enumerate(("n1", "n2", "n3")):
        places.append(
            drive.held(name, f"1@{at}", node=name, inc=at + 1, slots=(at % 2,), needs=f"gpu={at}")
        )
    drive.run(drive.commands.set_node(0, "n2", "drain"))
    assert drive.run(drive.commands.release(0, places)) == ["freed"] * 3
    assert (drive.bits(6), drive.hash("left")) == ("110011", {"n2": "gpu=2", "n3": "gpu=2"})


def test_each_lease_is_judged_by_itself(drive: Driver):
    drive.node("n1", 2)
    a = drive.held("a")
    b = drive.held("b", "1@2", slots=(1,))
    assert drive.run(drive.commands.release(0, [a, replace(b, attempt="9@9"), b])) == [
        "freed",
        "none",
        "freed",
    ]
    assert drive.hash("meta")["free"] == "2"


def test_waiting_schedulers_are_told_of_a_freed_slot_once_each_in_order(drive: Driver):
    drive.node("n1", 2)
    a = drive.held("a")
    b = drive.held("b", "1@2", slots=(1,))
    for waiter in ("s1", "s2", "s1"):
        drive.run(drive.commands.read_partition(0, waiter=waiter))
    channels = [f"{drive.keys.frees(0)}:{name}" for name in ("s1", "s2")]
    assert drive.heard(lambda: drive.release(a), *channels) == [(channels[0], b"freed 0 1 2")]
    assert drive.heard(lambda: drive.release(b), *channels) == [(channels[1], b"freed 0 2 2")]
    assert "waiters" not in drive.hash("meta")


def register(drive: Driver, name: str, slots: int, room: int = 0) -> Callable[[], object]:
    return lambda: drive.run(drive.commands.register_node(0, name, 0, 1.0, f"slots={slots}", room))


def change(drive: Driver, word: str, note: str = "") -> Callable[[], object]:
    return lambda: drive.run(drive.commands.set_node(0, "n1", word, 1, note))


@pytest.mark.parametrize(
    ("closing", "opening", "free"),
    [
        (("offer", "1.0 slots=1"), ("offer", "1.0 slots=4"), 4),
        (("drain", ""), ("undrain", ""), 2),
        (("suspect", "why"), ("trust", ""), 2),
        (("leaving", ""), ("offer", "1.0 slots=2"), 2),
    ],
)
def test_a_waiting_scheduler_is_woken_when_a_change_of_a_node_opens_slots(
    drive: Driver, closing: tuple[str, str], opening: tuple[str, str], free: int
):
    drive.node("n1", 2)
    drive.run(drive.commands.read_partition(0, waiter="s1"))
    channel = f"{drive.keys.frees(0)}:s1"
    assert drive.heard(change(drive, *closing), channel) == [], "it closes slots"
    assert drive.heard(change(drive, *opening), channel) == [
        (channel, f"freed 0 {free} {free}".encode())
    ]
    assert "waiters" not in drive.hash("meta")


def test_a_waiting_scheduler_is_woken_by_a_new_node_or_seats_but_not_by_a_node_back_with_fewer_slots(
    drive: Driver,
):
    drive.node("n1", 2)
    drive.run(drive.commands.read_partition(0, waiter="s1"))
    channel = f"{drive.keys.frees(0)}:s1"
    assert drive.heard(register(drive, "n1", 1), channel) == []
    assert drive.heard(register(drive, "n2", 1, 2), channel) == [(channel, b"freed 0 2 2")]
    drive.run(drive.commands.read_partition(0, waiter="s1"))
    seats = drive.commands.set_node(0, "n2", "ahead", 3, "2")
    assert drive.heard(lambda: drive.run(seats), channel) == [(channel, b"freed 0 4 2")]


def test_a_release_on_a_draining_node_wakes_no_waiting_scheduler(drive: Driver):
    drive.node("n1", 1)
    place = drive.held("a")
    drive.run(drive.commands.read_partition(0, waiter="s1"))
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    drive.release(place)
    assert drive.hash("meta")["waiters"] == "s1"


@pytest.mark.unaudited
@pytest.mark.parametrize("needs", ["slots=1", "slots=1 gpu=1"])
@pytest.mark.parametrize("damaged", ["inc=1 moved=x", "gpu=1 x", "gpu=x"])
def test_a_damaged_ledger_stays_as_it_is_until_it_is_repaired(
    drive: Driver, needs: str, damaged: str
):
    """A ledger written back from its readable part would look sound, and stay wrong for ever."""
    drive.node("n1", slots=2, resources={"gpu": 2})
    held = drive.held("a", slots=(0,), needs=needs)
    drive.store.client.hset(drive.keys.partition(0, "left"), "n1", damaged)
    assert drive.release(held) == "freed"
    assert drive.commit("b", slots=(1,), needs=needs).word == (
        "held" if needs == "slots=1" else "short"
    )
    assert drive.hash("left") == {"n1": damaged}
    assert repair_partition(drive.store, 0) == 1
    assert drive.hash("left") == {"n1": "gpu=2"}

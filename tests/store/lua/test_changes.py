"""A copy of a partition that is renewed by what changed is the same as one that is read as a whole.

Promise 3 of docs/invariants.md.
"""

import random
from typing import Any

import pytest

from parsync_redis.model.place import Place
from parsync_redis.scheduler.core.offers import Offers
from tests.kit.driver import Driver

NEEDS = (
    "slots=1",
    "slots=1 mem=1",
    "slots=1 mem=2.5",
    "slots=1 gpu=0.5",
    "slots=1 apart_web=1",
    "slots=1 apart_db=1",
)


def test_a_copy_is_told_the_amounts_of_nodes_that_changed(drive: Driver) -> None:
    drive.node("n1", 2, {"gpu": 2})
    drive.node("n2", 2, {"gpu": 2})
    before = drive.run(drive.commands.read_partition(0))
    assert (before.whole, before.left) == (True, {"n1": "gpu=2", "n2": "gpu=2"})
    place = drive.held("a", needs="slots=1 gpu=1")
    after = drive.unchanged_by(drive.commands.read_partition(0, before.version))
    assert (after.whole, after.left, after.bits) == (False, {"n1": "gpu=1"}, b"\x70")
    drive.held("b", "1@2", node="n2", inc=2)  # asks for no amounts
    assert drive.run(drive.commands.read_partition(0, after.version)).left == {}
    drive.release(place)
    assert drive.run(drive.commands.read_partition(0, after.version)).left == {"n1": "gpu=2"}
    assert drive.run(drive.commands.read_partition(0, before.version)).left == {"n1": "gpu=2"}


def test_a_copy_learns_that_a_node_has_no_amounts_left(drive: Driver) -> None:
    drive.node("n1")
    place = drive.held("a", needs="slots=1 apart_web=1")
    version = drive.run(drive.commands.read_partition(0)).version
    drive.release(place)
    assert drive.run(drive.commands.read_partition(0, version)).left == {"n1": ""}


def test_a_copy_of_a_version_that_is_not_known_is_read_as_a_whole(drive: Driver) -> None:
    """The server does not know the version of the copy, so it has lost writes."""
    drive.node("n1", 2, {"gpu": 2})
    drive.held("a", needs="slots=1 gpu=1")
    version = drive.run(drive.commands.read_partition(0)).version
    for since in (-1, 0, version + 1, 10**12):
        snapshot = drive.run(drive.commands.read_partition(0, since))
        assert (snapshot.whole, snapshot.left) == (True, {"n1": "gpu=1"}), since


@pytest.mark.unaudited
def test_changes_that_are_lost_are_not_missed(drive: Driver) -> None:
    drive.node("n1", 2, {"gpu": 2})
    version = drive.run(drive.commands.read_partition(0)).version
    drive.held("a", needs="slots=1 gpu=1")
    drive.store.client.delete(drive.keys.partition(0, "changed"))
    snapshot = drive.run(drive.commands.read_partition(0, version))
    assert (snapshot.whole, snapshot.left) == (True, {"n1": "gpu=1"})
    assert tuple(drive.run(drive.commands.repair_partition(0, "open"))[0][1:]) == (
        "",
        b"it does not say from which version on it is complete",
    )
    repaired = drive.run(drive.commands.read_partition(0, snapshot.version))
    assert (repaired.whole, repaired.epoch > snapshot.epoch) == (True, True)


@pytest.mark.unaudited
def test_a_lease_that_is_put_back_changes_its_node(drive: Driver) -> None:
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", needs="slots=1 gpu=1")
    client: Any = drive.store.client
    client.hdel(drive.keys.partition(0, "slots"), "n1/0")
    client.hset(drive.keys.partition(0, "left"), "n1", "gpu=2")
    version = drive.run(drive.commands.read_partition(0)).version
    assert drive.run(drive.commands.restore(0, [place])) == ["back"]
    assert drive.run(drive.commands.read_partition(0, version)).left == {"n1": "gpu=1"}


@pytest.mark.parametrize("damaged", ["x", "gpu=-", "gpu=" + "9" * 40])
@pytest.mark.unaudited
def test_an_amount_that_cannot_be_read_is_none(drive: Driver, damaged: str) -> None:
    drive.node("n1", 2, {"gpu": 2})
    drive.node("n2", 2, {"gpu": 2})
    version = drive.run(drive.commands.read_partition(0)).version
    drive.held("a", needs="slots=1 gpu=1")
    drive.store.client.hset(drive.keys.partition(0, "left"), "n1", damaged)
    assert drive.run(drive.commands.read_partition(0)).left == {"n1": "", "n2": "gpu=2"}
    snapshot = drive.run(drive.commands.read_partition(0, version))
    assert (snapshot.left, snapshot.damaged) == ({"n1": ""}, True)


@pytest.mark.dealt
@pytest.mark.parametrize("seed", range(6))
def test_copies_that_are_renewed_now_and_then_are_as_the_partition_is(
    drive: Driver, seed: int
) -> None:
    dice = random.Random(seed)
    held = dict[str, Place]()
    for number in range(4):
        devices: dict[str, Any] = {"gpu": 2} if number % 2 else {}
        drive.node(f"n{number}", 3, {"mem": 8, **devices})
    offers = Offers([*drive.store.nodes(0).values()])
    first = drive.run(drive.commands.read_partition(0))
    assert offers.amounts_left(first.left).of_node(1) == {"mem": 8000, "gpu": 2000}
    version = first.version
    partial = 0
    for step in range(150):
        if held and dice.random() < 0.45:
            drive.release(held.pop(dice.choice([*held])))
        else:
            number = dice.randrange(4)
            slot = dice.randrange(3)
            claim = drive.claim(
                f"t{step}",
                f"1@{step}",
                node=f"n{number}",
                slots=(slot,),
                inc=number + 1,
                needs=dice.choice(NEEDS),
            )
            verdict = drive.run(drive.commands.commit(0, [claim])).verdicts[0]
            if verdict.won:
                held[claim.task] = claim.won(verdict.since_ms, verdict.held)
        if dice.random() < 0.3:
            snapshot = drive.run(drive.commands.read_partition(0, version))
            if snapshot.bits is not None:
                left = offers.amounts_left(snapshot.left, snapshot.whole)
                version = snapshot.version
                partial = partial + 1
                assert not snapshot.whole
                whole = Offers(offers.nodes).amounts_left(
                    drive.run(drive.commands.read_partition(0)).left
                )
                assert [left.of_node(at) for at in range(4)] == [
                    whole.of_node(at) for at in range(4)
                ]
    assert partial > 10
    for place in held.values():
        drive.release(place)

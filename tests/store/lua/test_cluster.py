"""configure, deal_node, renew_scheduler: what the whole cluster shares."""

from collections import Counter
from typing import Any

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.replies import LIFE
from parsync_redis.scheduler.leader.janitor import Janitor
from tests.kit.driver import Driver, dump


def test_the_first_settings_stay(drive: Driver):
    assert drive.run(drive.commands.configure({})) == {}
    assert drive.run(drive.commands.configure({"partitions": 8})) == {"partitions": "8"}
    assert drive.unchanged_by(drive.commands.configure({"partitions": 16, "gap_ms": 1})) == {
        "partitions": "8"
    }


def deal(
    drive: Driver,
    name: str,
    labels: str = "",
    slots: int = 4,
    score: float = 1.0,
    partitions: int = 4,
) -> int:
    return drive.run(drive.commands.deal_node(name, partitions, labels, slots, score))


def test_every_partition_gets_about_the_same_mix(drive: Driver):
    dealt = {
        (i, label): deal(drive, f"n{i}", label, 4, float(i % 3))
        for i in range(24)
        for label in ["gpu:a", ""][i % 2 :][:1]
    }
    assert Counter(dealt.values()) == {0: 6, 1: 6, 2: 6, 3: 6}
    assert Counter(p for (_, label), p in dealt.items() if label) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_the_good_nodes_are_spread(drive: Driver):
    for i, score in enumerate([9.0, 9.0, 1.0, 1.0]):
        deal(drive, f"n{i}", score=score, partitions=2)
    sums = drive.store.hash(drive.keys.shared("dealt"))
    assert float(sums["score:0"]) == float(sums["score:1"]) == 40


def test_a_dealt_node_stays_in_its_partition(drive: Driver):
    homes = {name: deal(drive, name) for name in ("n1", "n2", "n3")}
    for name, home in homes.items():
        assert deal(drive, name, "zone:b", 50, 7.0) == home
    for name, home in homes.items():
        assert deal(drive, name, partitions=1) == home


def test_a_forgotten_node_leaves_no_weight(drive: Driver):
    deal(drive, "n1", "zone:a b:c", 4, 2.5)
    deal(drive, "n1", slots=0)
    assert not drive.store.hash(drive.keys.shared("dealt"))
    assert drive.unchanged_by(drive.commands.deal_node("never", 4, "", 0, 1.0)) == 0


def renew(drive: Driver, me: str, seen_leader: str = "", lost: str = "", **options: Any):
    return drive.run(drive.commands.renew_scheduler(me, seen_leader, lost, **options))


def test_a_scheduler_stands_by_while_there_are_as_many_as_there_may_be(drive: Driver):
    renew(drive, "s1", at_most=2)
    renew(drive, "s2", at_most=2)
    call = drive.commands.renew_scheduler("s3", stats={"placed": 1}, at_most=2)
    assert "s3" not in drive.unchanged_by(call).counters
    assert "s1" in renew(drive, "s1", at_most=1).counters, "a member stays"
    counter = renew(drive, "s2").counters["s2"]
    assert "s3" not in renew(drive, "s3", lost=f"s2 {counter - 1}", at_most=2).counters, (
        "it has renewed since"
    )
    assert sorted(renew(drive, "s3", lost=f"s2 {counter}", at_most=2).counters) == ["s1", "s3"], (
        "in its place"
    )
    assert "s2" not in renew(drive, "s2", at_most=2).counters, (
        "a scheduler that was judged dead stays out"
    )
    assert sorted(renew(drive, "s4").counters) == ["s1", "s3", "s4"], "0 joins in any case"


def test_the_first_scheduler_is_leader_and_a_join_raises_the_epoch(drive: Driver):
    first = renew(drive, "s1")
    assert (first.leader, first.epoch, first.counters) == ("s1 moved=1", 1, {"s1": LIFE + 1})
    second = renew(drive, "s2")
    assert (second.leader, second.epoch, second.counters) == (
        "s1 moved=1",
        2,
        {"s1": LIFE + 1, "s2": 2 * LIFE + 1},
    )
    third = renew(drive, "s1")
    assert (third.leader, third.epoch, third.counters) == (
        "s1 moved=2",
        2,
        {"s1": LIFE + 2, "s2": 2 * LIFE + 1},
    )


def test_a_leader_that_stood_still_is_replaced_and_one_that_moved_is_not(drive: Driver):
    renew(drive, "s1")
    seen = renew(drive, "s2").leader
    renew(drive, "s1")
    assert renew(drive, "s2", seen).leader == "s1 moved=2"
    assert renew(drive, "s2", "s1 moved=2").leader == "s2 moved=1"
    assert renew(drive, "s1").leader == "s2 moved=1"


def test_a_leader_that_leaves_makes_room(drive: Driver):
    renew(drive, "s1")
    renew(drive, "s2")
    left = renew(drive, "s1", stay=False)
    assert (left.leader, left.counters, left.epoch) == ("", {"s2": 2 * LIFE + 1}, 3)
    assert renew(drive, "s2").leader == "s2 moved=1"


def test_a_member_that_stood_still_is_removed_and_one_that_moved_is_not(drive: Driver):
    renew(drive, "s1")
    still = renew(drive, "s2").counters["s2"]
    moved = renew(drive, "s2").counters["s2"]
    assert renew(drive, "s1", lost=f"s2 {still}").counters == {"s1": LIFE + 2, "s2": moved}
    gone = renew(drive, "s1", lost=f"s2 {moved}")
    assert (gone.counters, gone.epoch) == ({"s1": LIFE + 3}, 3)
    assert renew(drive, "s1", lost=f"s2 {moved}").epoch == 3


def test_a_late_judgement_does_not_remove_a_scheduler_that_has_joined_again(drive: Driver):
    renew(drive, "s1")
    renew(drive, "s2")
    judged = f"s2 {renew(drive, 's2').counters['s2']}"
    renew(drive, "s1", lost=judged)
    renew(drive, "s2")
    again = renew(drive, "s2").counters["s2"]
    assert renew(drive, "s1", lost=judged).counters["s2"] == again


def test_a_schedulers_own_report_expires(drive: Driver):
    drive.run(drive.commands.renew_scheduler("s1", stats={"placed": 7, "conflicts": 0}))
    assert drive.store.hash(drive.keys.stats("s1")) == {"placed": "7", "conflicts": "0"}
    assert drive.store.client.ttl(drive.keys.stats("s1")) > 0
    renew(drive, "s1", stay=False)
    assert not drive.store.client.exists(drive.keys.stats("s1"))


def test_half_a_pair_of_stats_changes_nothing(drive: Driver):
    call = drive.commands.renew_scheduler("s1", stats={"placed": 7})
    before = dump(drive.store)
    with pytest.raises(BrokenContract):
        drive.run(type(call)(call.script, call.keys, call.args[:-1], call.read))
    assert dump(drive.store) == before


def test_dealt_does_not_grow_as_labels_come_and_go(drive: Driver):
    sizes = set()
    for turn in range(20):
        for i in range(3):
            deal(drive, f"n{i}", f"build:{turn}", slots=2, score=0.1 * i)
        sizes.add(len(drive.store.hash(drive.keys.shared("dealt"))))
    assert len(sizes) == 1, sizes
    for i in range(3):
        deal(drive, f"n{i}", "", slots=0)
    assert not drive.store.hash(drive.keys.shared("dealt"))


@pytest.mark.parametrize("garbage", ["0", "-3", "nonsense"])
def test_a_leader_removes_the_sums_that_earlier_versions_left(drive: Driver, garbage: str):
    deal(drive, "n1", "zone:a", slots=2, score=1.5)
    sound = drive.store.hash(drive.keys.shared("dealt"))
    drive.store.client.hset(drive.keys.shared("dealt"), "class:3:zone:old", garbage)
    Janitor(drive.store, 1, 10.0).work(lambda: 0.0, {})
    assert drive.store.hash(drive.keys.shared("dealt")) == sound

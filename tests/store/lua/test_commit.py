"""commit judges each claim by itself: the first claim on a slot wins, and the loser learns why."""

from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.errors import DamagedState
from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.store.runner import Runner
from parsync_redis.wire.doorbell import read_doorbell
from tests.kit.driver import Driver, dump


def test_a_claim_that_wins_holds_the_slot_and_rings(drive: Driver):
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", "1@1", slots=(1,), needs="slots=1 gpu=1")
    assert drive.bits() == "10000000"
    assert drive.hash("left") == {"n1": "gpu=1"}
    assert drive.hash("slots") == {"n1/1": f"a 1@1 p0 n1/1 inc=1 gpu=1 since={place.since_ms}"}
    assert [read_doorbell(data) for data in drive.inbox()] == [place]
    assert drive.inbox() == [place.text.encode()]
    assert drive.run(drive.commands.read_partition(0)).version == 2


def test_the_first_claim_on_a_slot_wins_and_the_other_learns_who_has_it(drive: Driver):
    drive.node("n1", 2)
    claims = [drive.claim("a"), drive.claim("b", "1@2"), drive.claim("c", "1@3", slots=(1,))]
    judged = drive.run(drive.commands.commit(0, claims))
    assert [(v.word, v.detail) for v in judged.verdicts if not v.won] == [
        (ClaimOutcome.CONFLICT, "a")
    ]
    assert [v.word for v in judged.verdicts] == ["held", "conflict", "held"]
    assert sorted(drive.hash("slots")) == ["n1/0", "n1/1"]


def test_a_claim_that_loses_changes_nothing(drive: Driver):
    drive.node("n1", 2, {"gpu": 1})
    drive.held("a")
    good = drive.claim("b", "1@2", slots=(1,))
    for claim, word in (
        (drive.claim("b", "1@2"), "conflict"),
        (drive.claim("b", "1@2", slots=(1, 0)), "conflict"),
        (drive.claim("b", "1@2", slots=(2,)), "conflict"),
        (drive.claim("b", "1@2", slots=(90_000_000,)), "conflict"),
        (good._replace(epoch=0), "changed"),
        (good._replace(epoch=good.epoch + 1), "changed"),
        (good._replace(asked="gpu=2"), "short"),
        (good._replace(asked="mem=1"), "short"),
        (good._replace(asked="gpu=1 mem=1"), "short"),
    ):
        judged = drive.unchanged_by(drive.commands.commit(0, [claim]))
        assert judged.verdicts[0].word == word, claim


def test_asked_again_it_answers_yours_and_rings_no_second_time(drive: Driver):
    drive.node("n1", 3, {"gpu": 1})
    claim = drive.claim("a", slots=(0, 2), needs="slots=2 gpu=1")
    first = drive.run(drive.commands.commit(0, [claim])).verdicts[0]
    again = drive.unchanged_by(drive.commands.commit(0, [claim])).verdicts[0]
    assert (again.word, again.detail) == ("yours", first.detail)
    assert len(drive.inbox()) == 1


def test_another_attempt_of_the_same_task_is_a_conflict(drive: Driver):
    drive.node("n1", 1)
    drive.held("a", "1@1")
    verdict = drive.unchanged_by(drive.commands.commit(0, [drive.claim("a", "2@1")])).verdicts[0]
    assert (verdict.word, verdict.detail) == ("conflict", "a")


@pytest.mark.parametrize(
    "change", ["registered again", "another registered", "drained", "suspect", "lost"]
)
def test_claim_names_epoch(drive: Driver, change: str):
    """The nodes have changed since the scheduler read them, so the scheduler must read them again."""
    drive.node("n1", 2, labels={"gpu": "a100"})
    held = drive.claim("a")
    claim = drive.claim("b", "1@2", slots=(1,))
    since = drive.run(drive.commands.commit(0, [held])).verdicts[0].detail
    if change in ("registered again", "another registered"):
        drive.node("n1" if change == "registered again" else "n2", 2)
    elif change == "lost":
        drive.lose("n1")
    else:
        drive.run(drive.commands.set_node(0, "n1", "drain" if change == "drained" else "suspect"))
    judged = drive.unchanged_by(drive.commands.commit(0, [claim, held]))
    epoch = drive.hash("meta")["epoch"]
    assert judged.verdicts == [("changed", epoch), ("yours", since)], "what is held stays held"


def test_claims_of_two_epochs_hold_nothing(drive: Driver):
    """The epochs differ, and a call names one epoch only: the claims of the other epoch are refused."""
    drive.node("n1", 2)
    claims = [drive.claim("a"), drive.claim("b", "1@2", slots=(1,))]
    claims[1] = claims[1]._replace(epoch=claims[0].epoch + 1)
    judged = drive.unchanged_by(drive.commands.commit(0, claims))
    assert [verdict.word for verdict in judged.verdicts] == ["changed", "changed"]


def test_a_claim_in_a_partition_without_nodes_is_of_another_epoch(drive: Driver):
    assert drive.commit("a") == ("changed", "0")


def test_an_inbox_of_another_type_undoes_the_doorbells_of_the_others(drive: Driver):
    for name in ("n1", "n2", "n3"):
        drive.node(name, 2)
    first = drive.held("a")
    drive.store.client.set(drive.keys.inbox(0, "n2"), "x")
    claims = [drive.claim(f"b{inc}", node=f"n{inc}", slots=(1,), inc=inc) for inc in (1, 2, 3)]
    before = dump(drive.store)
    with pytest.raises(DamagedState, match="WRONGTYPE"):
        Runner(drive.store.client, drive.keys.cluster).run(drive.commands.commit(0, claims))
    assert drive.inbox() == [first.text.encode()]
    assert dump(drive.store) == before
    judged = drive.run(drive.commands.commit(0, claims))
    assert [verdict.word for verdict in judged.verdicts] == ["held"] * 3, "a Store repairs it"
    assert len(drive.inbox("n2")) == 1


def test_amounts_run_out_before_slots_do(drive: Driver):
    drive.node("n1", 3, {"gpu": 1})
    claims = [drive.claim(id, slots=(slot,), needs="slots=1 gpu=1") for slot, id in enumerate("ab")]
    judged = drive.run(drive.commands.commit(0, claims))
    assert [(v.word, v.detail) for v in judged.verdicts][1] == ("short", "gpu=0")
    assert drive.commit("c", "1@3", slots=(2,)).word == "held"


def test_a_task_takes_all_of_its_slots_or_none(drive: Driver):
    drive.node("n1", 4, {"gpu": 4})
    drive.held("x", "1@9", slots=(2,))
    assert drive.commit("a", slots=(1, 2), needs="slots=2 gpu=2").word == "conflict"
    place = drive.held("a", slots=(1, 3), needs="slots=2 gpu=2")
    assert drive.bits() == "10000000"
    leases = drive.hash("slots")
    assert leases["n1/1"] == leases["n1/3"] == place.text
    assert " n1/1,3 inc=1 gpu=2 " in place.text
    assert drive.release(place) == "freed"
    assert drive.bits() == "11010000"
    assert drive.hash("left") == {"n1": "gpu=4"}


def test_a_claim_of_amount_zero_fits_a_node_without_that_resource(drive: Driver):
    drive.node("n1", 1)
    drive.held("a", needs="slots=1 gpu=0")
    assert drive.hash("left") == {}


def test_a_node_that_takes_no_claims_gets_none(drive: Driver):
    for word in ("drain", "leaving"):
        drive.node("n1", 1)
        drive.run(drive.commands.set_node(0, "n1", word))
        inc = int(drive.hash("nodes")["n1"].split()[1][4:])
        assert drive.commit("a", inc=inc).word == "conflict"
        drive.run(drive.commands.set_node(0, "n1", "undrain"))
    drive.node("n2", 1)
    drive.lose("n2", 3)
    assert drive.commit("a", node="n2", inc=3).word == "conflict"


def test_a_repeated_claim_on_a_draining_node_is_answered_yours(drive: Driver):
    drive.node("n1", 1)
    drive.held("a")
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    assert drive.commit("a").word == "yours"


def test_a_lease_of_more_is_not_the_claim_asked_again(drive: Driver):
    drive.node("n1", 1, {"since": 7})
    drive.held("a", needs="since=7")
    assert drive.commit("a") == ("conflict", "a")


def test_claims_on_several_nodes_ring_each_at_its_own_inbox(drive: Driver):
    for name in ("n1", "n2", "n3"):
        drive.node(name, 2)
    claims = [
        drive.claim(id, f"1@{i}", node=node, slots=(slot,), inc=int(node[1]))
        for i, (id, node, slot) in enumerate(
            (("a", "n3", 0), ("b", "n1", 0), ("c", "n3", 1), ("d", "n2", 0))
        )
    ]
    judged = drive.run(drive.commands.commit(0, claims))
    assert all(verdict.won for verdict in judged.verdicts)
    rung = {
        name: [read_doorbell(data).task for data in drive.inbox(name)]
        for name in ("n1", "n2", "n3")
    }
    assert rung == {"n1": ["b"], "n2": ["d"], "n3": ["c", "a"]}


def test_partitions_do_not_know_of_each_other(drive: Driver):
    drive.node("n1", 1, p=0)
    drive.node("n1", 1, p=7)
    drive.held("a", p=7)
    assert (drive.bits(p=0), drive.bits(p=7)) == ("10000000", "00000000")


def test_a_doorbell_is_rung_again_only_for_a_lease_that_stands(drive: Driver):
    drive.node("n1", 2)
    place = drive.held("a")
    assert drive.unchanged_by(drive.commands.ring(place)) == "waiting"
    first = drive.inbox()
    drive.store.client.delete(drive.keys.inbox(0, "n1"))
    assert drive.run(drive.commands.ring(place)) == "rung"
    assert drive.inbox() == first
    drive.store.client.delete(drive.keys.inbox(0, "n1"))
    drive.release(place)
    assert drive.unchanged_by(drive.commands.ring(place)) == "none"


def test_a_doorbell_names_all_slots_of_its_lease_also_when_rung_again(drive: Driver):
    drive.node("n1", 3)
    place = drive.held("a", slots=(1, 2))
    for _ in range(2):
        (bell,) = drive.inbox()
        assert read_doorbell(bell).slots == (1, 2)
        drive.store.client.delete(drive.keys.inbox(0, "n1"))
        drive.run(drive.commands.ring(place))


@pytest.mark.parametrize(
    "other", [{"task": "b"}, {"attempt": "2@1"}, {"inc": 2}, {"slots": (1, 0)}, {"since_ms": 1}]
)
def test_a_doorbell_is_not_rung_for_another_lease(drive: Driver, other: dict[str, Any]):
    drive.node("n1", 2)
    place = drive.held("a", slots=(0, 1))
    drive.store.client.delete(drive.keys.inbox(0, "n1"))
    assert drive.unchanged_by(drive.commands.ring(replace(place, **other))) == "none"

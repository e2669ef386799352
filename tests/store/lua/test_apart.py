"""Tasks with the same word in `apart` never have leases on one node: commit judges it, by the
node's ledger.
"""

from typing import Any

import pytest

from parsync_redis.model.needs import Resources
from tests.kit.driver import Driver

WEB = "slots=1 apart_web=1"


def test_the_second_task_with_a_word_is_refused_until_the_first_has_released_its_slot(
    drive: Driver,
):
    drive.node("n1", 3)
    drive.node("n2", 3)
    first = drive.held("a", needs=WEB)
    assert drive.hash("left") == {"n1": "apart_web=0"}
    second = drive.claim("b", "1@2", slots=(1,), needs=WEB)
    verdict = drive.unchanged_by(drive.commands.commit(0, [second])).verdicts[0]
    assert (verdict.word, verdict.detail) == ("short", "apart_web=0")
    drive.held("c", "1@3", slots=(1,), needs="slots=1 apart_db=1")
    drive.held("d", "1@4", slots=(2,))
    drive.held("b", "1@2", node="n2", inc=2, needs=WEB)
    assert drive.release(first) == "freed"
    assert drive.hash("left") == {"n1": "apart_db=0", "n2": "apart_web=0"}
    drive.held("e", "1@5", needs=WEB)


def test_a_released_apart_word_leaves_no_trace_and_amounts_stay(drive: Driver):
    drive.node("n1", 2, {"gpu": 2})
    place = drive.held("a", needs="slots=1 apart_web=1 gpu=0.5")
    assert drive.hash("left") == {"n1": "apart_web=0 gpu=1.5"}
    assert drive.release(place) == "freed"
    assert drive.hash("left") == {"n1": "gpu=2"}
    drive.node("n2", 1)
    assert drive.release(drive.held("b", "1@2", node="n2", inc=2, needs=WEB)) == "freed"
    assert drive.hash("left") == {"n1": "gpu=2"}


def test_of_two_claims_in_one_call_the_first_wins(drive: Driver):
    drive.node("n1", 2)
    claims = [drive.claim("a", needs=WEB), drive.claim("b", "1@2", slots=(1,), needs=WEB)]
    verdicts = drive.run(drive.commands.commit(0, claims)).verdicts
    assert [verdict.word for verdict in verdicts] == ["held", "short"]


def test_a_node_that_registers_anew_keeps_what_its_leases_have(drive: Driver):
    drive.node("n1", 2)
    place = drive.held("a", needs=WEB)
    drive.node("n1", 2)
    assert drive.hash("left") == {"n1": "apart_web=0"}
    assert drive.commit("b", "1@2", slots=(1,), inc=2, needs=WEB).word == "short"
    assert drive.release(place) == "freed"
    assert drive.commit("b", "1@2", slots=(1,), inc=2, needs=WEB).won


@pytest.mark.parametrize("text", [None, "apart_web=x"])
def test_a_lost_or_damaged_ledger_is_made_again_of_the_leases(drive: Driver, text: str | None):
    drive.node("n1", 2)
    drive.held("a", needs=WEB)
    client: Any = drive.store.client
    key = drive.store.keys.partition(0, "left")
    client.hset(key, "n1", text) if text else client.delete(key)
    if text:
        assert drive.commit("b", "1@2", slots=(1,), needs=WEB).word == "short", (
            "nobody knows: refused"
        )
    assert drive.run(drive.commands.repair_partition(0, "open"))
    assert drive.hash("left") == {"n1": "apart_web=0"}


def test_lost_leases_do_not_let_a_second_task_in_before_they_are_back(drive: Driver):
    drive.node("n1", 2)
    drive.held("a", needs=WEB)
    client: Any = drive.store.client
    client.delete(drive.store.keys.partition(0, "slots"))
    # damage that lets `shut` repair the partition
    client.hset(drive.store.keys.partition(0, "meta"), "free", "x")
    assert drive.run(drive.commands.repair_partition(0, "shut"))
    assert drive.hash("left") == {"n1": "apart_web=0"}
    assert drive.commit("b", "1@2", slots=(1,), needs=WEB).word == "short"
    drive.run(drive.commands.repair_partition(0, "open"))
    assert drive.hash("left") == {}, "no lease is left: the leader had nothing to put back"


def test_a_word_in_an_offer_is_refused_where_it_enters():
    with pytest.raises(
        ValueError,
        match="resource name 'apart_web' is reserved: names of resources do not begin with",
    ):
        Resources.of(1, {"apart_web": 1})

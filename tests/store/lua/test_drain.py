"""set_node: drains and suspects: which nodes take no claims, until when, and what people read."""

import pytest

from parsync_redis.model.node import deadline_s, drain_terms
from tests.kit.driver import Driver

TEN_MINUTES = drain_terms(600, "a new disk")


def put(drive: Driver, word: str, note: str = "", inc: int | None = None) -> list[str]:
    return list(drive.run(drive.commands.set_node(0, "n1", word, inc, note)))


def note(drive: Driver) -> str:
    return drive.hash("notes").get("n1", "")


def test_a_drain_says_when_it_is_over_and_why(drive: Driver):
    drive.node("n1")
    assert put(drive, "drain", TEN_MINUTES) == ["ok", "up", "1"]
    assert (note(drive), drive.bits()) == ("deadline_s=600: a new disk", "00000000")
    assert deadline_s(note(drive)) == 600.0
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "drain", None, TEN_MINUTES)) == [
        "ok",
        "up",
        "1",
    ]
    assert put(drive, "undrain") == ["ok", "up", "0"]
    assert (note(drive), drive.bits()) == ("", "11000000")


def test_only_the_named_drain_ends_and_only_once(drive: Driver):
    drive.node("n1")
    over = drive.commands.set_node(0, "n1", "over", None, TEN_MINUTES)
    assert drive.unchanged_by(over) == ["ok", "up", "0"]
    put(drive, "drain", drain_terms(60, ""))
    assert drive.unchanged_by(over) == ["ok", "up", "1"], (
        "an operator has given it another deadline"
    )
    put(drive, "drain", TEN_MINUTES)
    assert drive.run(over) == ["ok", "up", "2"]
    assert drive.unchanged_by(over) == ["ok", "up", "2"]
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "drain", None, TEN_MINUTES)) == [
        "ok",
        "up",
        "2",
    ]
    assert drive.run(drive.commands.renew(0, "n1", 1))[2:] == ["up", "2"], "its agent hears of it"
    assert put(drive, "drain", drain_terms(None, "")) == ["ok", "up", "1"]


def test_a_drain_survives_a_restart_and_a_suspicion_does_not(drive: Driver):
    for word, why, left in (
        ("drain", TEN_MINUTES, ["ok", "1", "up", "1"]),
        ("suspect", "why", ["ok", "1", "up", "0"]),
    ):
        drive.store.client.flushall()
        drive.node("n1")
        put(drive, word, why)
        drive.node("n1")
        assert drive.run(drive.commands.renew(0, "n1", 2)) == left


def test_a_suspect_takes_no_claims_and_keeps_its_lease(drive: Driver):
    drive.node("n1")
    place = drive.held("a", "1@1")
    assert put(drive, "suspect", "three tasks did not start", 1) == ["ok", "suspect", "0"]
    assert (note(drive), drive.bits()) == ("three tasks did not start", "00000000")
    assert drive.commit("b", "1@2", slots=(1,)).word == "conflict"
    assert drive.run(drive.commands.renew(0, "n1", 1))[0] == "ok"
    assert drive.release(place) == "freed"
    assert drive.bits() == "00000000"
    assert put(drive, "trust") == ["ok", "up", "0"]
    assert (note(drive), drive.bits()) == ("", "11000000")


@pytest.mark.parametrize("word", ["drain", "undrain", "leaving"])
def test_an_order_of_an_operator_or_the_node_replaces_a_suspicion(drive: Driver, word: str):
    drive.node("n1")
    put(drive, "suspect", "why")
    state, drain = put(drive, word)[1:]
    assert (state, drain) == {
        "drain": ("up", "1"),
        "undrain": ("up", "0"),
        "leaving": ("leaving", "0"),
    }[word]


@pytest.mark.parametrize("before", ["drain", "leaving", "down", "another process"])
def test_only_a_node_that_gets_claims_becomes_suspect(drive: Driver, before: str):
    drive.node("n1")
    if before == "down":
        drive.lose("n1")
    elif before == "another process":
        drive.node("n1")
    else:
        put(drive, before)
    answer = drive.unchanged_by(drive.commands.set_node(0, "n1", "suspect", 1, "why"))
    assert answer[0] == ("gone" if before == "another process" else "ok")


def test_trust_leaves_a_drain_alone(drive: Driver):
    drive.node("n1")
    put(drive, "drain", TEN_MINUTES)
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "trust")) == ["ok", "up", "1"]


def test_the_note_of_a_node_is_deleted_with_the_node(drive: Driver):
    drive.node("n1")
    put(drive, "drain", TEN_MINUTES)
    drive.lose("n1")
    assert drive.run(drive.commands.forget_node(0, "n1", 1)) == "forgotten"
    assert drive.hash("notes") == {}


def test_trust_leaves_the_terms_of_a_drain_whose_record_was_lost(drive: Driver):
    drive.node("n1")
    put(drive, "drain", TEN_MINUTES)
    drive.store.client.hdel(drive.keys.partition(0, "nodes"), "n1")
    drive.node("n1")
    assert put(drive, "trust") == ["ok", "up", "0"]
    drive.run(drive.commands.repair_partition(0))
    assert (note(drive), drive.run(drive.commands.renew(0, "n1", 2))[2:]) == (
        TEN_MINUTES,
        ["up", "1"],
    )


def test_a_drained_node_that_left_stays_known_and_an_undrained_node_is_forgotten_at_once(
    drive: Driver,
):
    drive.node("n1")
    drive.node("n2")
    drive.run(drive.commands.set_node(0, "n1", "drain", note="no deadline: a new disk"))
    for node in ("n1", "n2"):
        inc = drive.store.nodes(0)[node].inc
        drive.run(drive.commands.set_node(0, node, "leaving", inc))
        drive.lose(node, inc)
    assert drive.unchanged_by(drive.commands.forget_node(0, "n1", 1, "left")) == "drained"
    assert drive.run(drive.commands.forget_node(0, "n2", 2, "left")) == "forgotten"
    drive.node("n1")
    assert (drive.store.nodes(0)["n1"].drain, drive.hash("notes")) == (
        1,
        {"n1": "no deadline: a new disk"},
    )
    drive.node("n2")
    assert drive.store.nodes(0)["n2"].inc == 4, "incarnations grow on"

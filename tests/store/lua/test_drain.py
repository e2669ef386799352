"""set_node: drains and suspects: which nodes take no claims, until when, and what people read."""

from typing import Any

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.node import deadline_s, drain_terms
from parsync_redis.model.text import NODE_LINE
from parsync_redis.store.repair.lost_leases import now_ms
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


# -- notices ---------------------------------------------------------------------------------------


def record(drive: Driver, field: str = "until") -> str | None:
    fields = NODE_LINE.read(drive.hash("nodes")["n1"])
    assert fields is not None
    return fields.get(field)


def test_a_node_with_a_notice_takes_claims_until_its_time_has_come(drive: Driver):
    drive.node("n1")
    assert put(drive, "until", "1795806395734") == ["ok", "up", "0"]
    assert (record(drive), drive.bits()) == ("1795806395734", "11000000")
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "over", None, "1795806395735"))
    assert put(drive, "over", "1795806395734") == ["ok", "up", "0"]
    assert (record(drive), drive.bits()) == ("1795806395734,over", "00000000")
    assert drive.run(drive.commands.renew(0, "n1", 1))[2:] == ["up", "3"], "its agent hears of it"
    assert put(drive, "until", "1795806395734") == ["ok", "up", "0"], "the same notice again"
    assert drive.bits() == "00000000"
    assert put(drive, "until", "1795806999999") == ["ok", "up", "0"], "the node stays longer"
    assert (record(drive), drive.bits()) == ("1795806999999", "11000000")


@pytest.mark.parametrize("word", ["until", "undrain"])
def test_a_notice_that_is_withdrawn_leaves_no_trace(drive: Driver, word: str):
    drive.node("n1")
    before = drive.hash("nodes")["n1"]
    put(drive, "until", "1795806395734")
    put(drive, "over", "1795806395734")
    put(drive, word, "0" if word == "until" else "")
    assert (drive.hash("nodes")["n1"], drive.bits()) == (before, "11000000")


@pytest.mark.parametrize(("over", "bits"), [(False, "11000000"), (True, "00000000")])
def test_slots_that_are_freed_on_a_node_with_a_notice_are_open_until_its_time_has_come(
    drive: Driver, over: bool, bits: str
):
    drive.node("n1")
    place = drive.held("a", "1@1")
    put(drive, "until", "1795806395734", 1)
    if over:
        put(drive, "over", "1795806395734,own")
    assert drive.release(place) == "freed"
    assert drive.bits() == bits


def test_the_notice_of_an_operator_survives_a_restart_and_that_of_a_process_does_not(
    drive: Driver,
):
    drive.node("n1")
    put(drive, "until", "1795806395734", 1)
    assert record(drive) == "1795806395734,own"
    drive.node("n1")
    assert record(drive) is None
    put(drive, "until", "1795806395734")
    drive.node("n1")
    assert record(drive) == "1795806395734"
    assert drive.unchanged_by(drive.commands.set_node(0, "n1", "until", 3, "0")) == [
        "ok",
        "up",
        "0",
    ], "a process withdraws only what it told itself"
    drive.run(drive.commands.set_node(0, "n1", "leaving"))
    drive.lose("n1", 3)
    assert drive.run(drive.commands.forget_node(0, "n1", 3, "left")) == "drained"


def test_a_notice_changes_neither_a_drain_nor_a_suspicion(drive: Driver):
    drive.node("n1")
    put(drive, "suspect", "why")
    put(drive, "until", "1795806395734")
    assert put(drive, "over", "1795806395734") == ["ok", "suspect", "0"]
    put(drive, "drain", TEN_MINUTES)
    assert put(drive, "until", "0") == ["ok", "up", "1"]
    assert (note(drive), drive.bits()) == (TEN_MINUTES, "00000000")


def test_a_late_or_repeated_end_of_a_notice_or_drain_leaves_a_suspicion_alone(drive: Driver):
    drive.node("n1")
    put(drive, "until", "1795806395734")
    put(drive, "suspect", "why")
    assert put(drive, "over", "1795806395734") == ["ok", "suspect", "0"]
    for late in ("1795806395734", "1795806999999", TEN_MINUTES):
        over = drive.commands.set_node(0, "n1", "over", None, late)
        assert drive.unchanged_by(over) == ["ok", "suspect", "0"]
    assert note(drive) == "why"


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "1" * 16])
def test_a_notice_is_a_time(drive: Driver, text: str):
    drive.node("n1")
    with pytest.raises(BrokenContract, match="PSARGS"):
        put(drive, "until", text)


def test_people_read_of_notices_in_the_events(drive: Driver):
    drive.node("n1")
    now = now_ms(drive.store)
    put(drive, "until", str(now + 29_500))
    put(drive, "over", str(now + 29_500))
    put(drive, "until", "0")
    client: Any = drive.store.client
    entries = [fields for _, fields in client.xrange(drive.keys.partition(0, "events"))]
    words = [fields[b"event"].decode() for fields in entries]
    assert words == ["registered", "noticed", "notice_over", "stays"]
    assert entries[1][b"why"] in (b"in 30 s", b"in 29 s")

"""Corrupt values are found and repaired, in every line and by every process. Promises 3, 6, 10 of docs/invariants.md."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.node import drain_terms
from parsync_redis.model.place import Place
from parsync_redis.model.task import StoredState
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.scheduler.leader.nodes import are_consistent
from parsync_redis.store.repair import quarantine
from parsync_redis.store.repair.repair import repair_keys, repair_partition
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.store.lua.test_leader_damage import LEASE_S, passes

MANY = "9" * 16
"""A number with more digits than a script can count in."""


def write(drive: Driver, kind: str, field: str, text: str) -> None:
    drive.store.client.hset(drive.keys.partition(0, kind), field, text)


def other_type(drive: Driver, key: str) -> None:
    drive.store.client.delete(key)
    drive.store.client.lpush(key, "x")


def facts(drive: Driver) -> list[str]:
    """Return what the audit says of the partition; a node without a record is at no incarnation
    until it registers.
    """
    return [
        fact
        for fact in audit(drive.store)
        if fact.startswith("p0: ") and "but the node is at 0" not in fact
    ]


def whys(drive: Driver) -> list[str]:
    return [f"{entry.where} {entry.why}" for entry in quarantine.entries(drive.store)]


# -- leases of several slots -----------------------------------------------------------------------


@pytest.fixture
def pair(drive: Driver) -> Driver:
    """Return a task holds slots 0 and 2 of n1 and two GPUs, another slot 1."""
    drive.node("n1", slots=4, resources={"gpu": 4})
    drive.held("two", slots=(0, 2), needs="slots=2 gpu=2")
    drive.held("one", slots=(1,))
    return drive


def garble_the_lead(drive: Driver) -> None:
    write(drive, "slots", "n1/0", "x")


def take_the_lead_away(drive: Driver) -> None:
    drive.store.client.hdel(drive.keys.partition(0, "slots"), "n1/0")


@pytest.mark.dealt
@pytest.mark.parametrize("damage", [garble_the_lead, take_the_lead_away])
@pytest.mark.parametrize("meet", ["its agent", "set_node", "register_node", "reclaim"])
def test_a_slot_whose_lead_is_gone_is_free_again(pair: Driver, damage: Any, meet: str) -> None:
    damage(pair)
    if meet == "its agent":
        damaged: list[str] = []
        pair.store.leases(0, pair.store.nodes(0).values(), damaged)
        assert damaged
        repair_partition(pair.store, 0)
    elif meet == "set_node":
        pair.run(pair.commands.set_node(0, "n1", "undrain"))
        assert pair.bits(4) == "0001", (
            "only the leader opens slots: it has put back lost leases before"
        )
        repair_partition(pair.store, 0)
    elif meet == "register_node":
        pair.node("n1", slots=4, resources={"gpu": 4})
    else:
        pair.lose("n1")
        pair.node("n1", slots=4, resources={"gpu": 4})
    assert list(pair.hash("slots")) == ["n1/1"]
    assert pair.bits(4) == "1011"
    assert pair.hash("left")["n1"] == "gpu=4"
    assert facts(pair) == []


@pytest.mark.parametrize(
    ("old", "new"), [("two", ""), ("n1/0", "n1/1"), ("two", "six"), ("inc=1", "inc=0")]
)
def test_slots_that_are_leased_together_are_freed_together(
    pair: Driver, old: str, new: str
) -> None:
    write(pair, "slots", "n1/2", pair.hash("slots")["n1/2"].replace(old, new))
    repair_partition(pair.store, 0)
    assert list(pair.hash("slots")) == ["n1/1"]
    assert pair.bits(4) == "1011"
    assert facts(pair) == []


def test_a_lease_damaged_to_name_another_slot_is_not_released(
    pair: Driver,
) -> None:
    text = pair.hash("slots")["n1/0"]
    write(pair, "slots", "n1/0", text.replace("n1/0,2", "n1/0,1"))
    assert pair.release(Place.of(text)) == "none"
    assert facts(pair)
    repair_partition(pair.store, 0)
    assert list(pair.hash("slots")) == ["n1/1"]
    assert facts(pair) == []


@pytest.mark.parametrize("slots", ["0,1", "2,0", "0,0,2", "0,02", "0,2,9", "1"])
def test_a_lead_line_with_slots_it_cannot_hold_is_no_lease(pair: Driver, slots: str) -> None:
    text = pair.hash("slots")["n1/0"]
    write(pair, "slots", "n1/0", text.replace("n1/0,2", f"n1/{slots}"))
    pair.run(pair.commands.set_node(0, "n1", "undrain"))
    repair_partition(pair.store, 0)
    assert [line.split()[0] for line in pair.hash("slots").values()] == ["one"]
    assert facts(pair) == []


@pytest.mark.dealt
@pytest.mark.parametrize(
    "text",
    [
        "six 1@1 p1 n1/3 inc=1 since=1",
        "six 1@1 p00 n1/3 inc=1 since=1",
        "six 1@1 p0 n1/3,3 inc=1 since=1",
        "six 1@1 p0 n1/03 inc=1 since=1",
        "six 1@1 p0 n1/3, inc=1 since=1",
        "six 1@1 p0 n2/3 inc=1 since=1",
        "six 1@1 p0 n1/3 inc=01 since=1",
        "six 1@1 p0 n1/3 inc=1 since=01",
        "six 1@1 p0 n1/3 inc=1",
        "six 1@1 p0 n1/3 inc=1 since=1 started=2",
        "six 1@1 p0 n1/3 inc=1  gpu=1 since=1",
        "six 1@1 p0 n1/3 inc=1 gpu=-1 since=1",
        "six 1@1 p0 n1/3 inc=1 gpu since=1",
        "six 1@1 p0 n1/3 inc=1 gpu:1 since=1",
        "six 1 p0 n1/3 inc=1 since=1",
        "s~x 1@1 p0 n1/3 inc=1 since=1",
        "six 1234567890@1 p0 n1/3 inc=1 since=1",
        "six 1@1 p0 n1/3 inc=1 since=1\n",
    ],
)
def test_a_value_that_readers_reject_as_a_lease_is_repaired(pair: Driver, text: str) -> None:
    write(pair, "slots", "n1/3", text)
    damaged: list[str] = []
    pair.store.leases(0, pair.store.nodes(0).values(), damaged)
    assert damaged == ["n1/3"]
    pair.run(pair.commands.set_node(0, "n1", "undrain"))
    assert sorted(pair.hash("slots")) == ["n1/0", "n1/1", "n1/2"]
    assert facts(pair) == []


# -- keys of another type, and numbers of too many digits ------------------------------------------


def test_notes_of_another_type_are_made_anew_and_a_drain_stays_one(drive: Driver) -> None:
    for name in ("n1", "n2", "n3"):
        drive.node(name)
    drive.run(drive.commands.set_node(0, "n1", "drain", note=drain_terms(60, "a disk")))
    drive.run(drive.commands.set_node(0, "n2", "suspect", note="why"))
    other_type(drive, drive.keys.partition(0, "notes"))
    Janitor(drive.store, 1, LEASE_S).work(lambda: 0.0, {})
    assert drive.hash("notes") == {"n1": "no deadline", "n2": "why it is suspect is lost"}
    assert drive.store.nodes(0)["n1"].draining
    assert facts(drive) == []


def test_a_list_of_dead_tasks_of_another_type_is_made_anew_by_the_leader(drive: Driver) -> None:
    drive.node()
    drive.bring(StoredState.DEAD, "a")
    other_type(drive, drive.keys.queue("dead"))
    Janitor(drive.store, 1, LEASE_S).work(lambda: 0.0, {})
    assert drive.index("dead") == ["a"]
    assert any(drive.keys.queue("dead") in why for why in whys(drive))
    assert drive.word(drive.commands.revive(["a"], "again")) == "revived"
    assert drive.state("a") == "pending"


def test_expiries_of_a_wrong_type_are_deleted_and_expired_tasks_end_when_taken(
    drive: Driver,
) -> None:
    drive.submit("a", expiry_ms=-1)
    other_type(drive, drive.keys.queue("expires"))
    assert drive.submit("b", expiry_ms=10**9) == "submitted"
    assert drive.index("expires") == ["b"]
    assert list(drive.take()) == ["b"]
    assert drive.state("a") == "cancelled"


def test_numbers_of_too_many_digits_are_made_anew(drive: Driver) -> None:
    drive.node()
    for field in ("version", "epoch", "slots", "free", "inc"):
        write(drive, "meta", field, MANY)
        drive.node()
        assert len(drive.hash("meta")[field]) < 16
        assert facts(drive) == []
    drive.run(drive.commands.renew_scheduler("s1"))
    drive.store.client.hset(drive.keys.shared("leader"), "epoch", MANY)
    assert drive.run(drive.commands.renew_scheduler("s1")).epoch < 10
    assert repair_keys(drive.store, [drive.keys.shared("leader")]) is False


@pytest.mark.parametrize(
    ("kind", "field", "text"),
    [
        ("alive", "n1", f"inc=1 moved={MANY}"),
        ("slots", "n1/0", f"a 1@1 p0 n1/0 inc={MANY} since=1"),
    ],
)
def test_lines_with_numbers_of_too_many_digits_are_repaired(
    drive: Driver, kind: str, field: str, text: str
) -> None:
    drive.node()
    write(drive, kind, field, text)
    assert repair_partition(drive.store, 0) == 1
    assert repair_partition(drive.store, 0) == 0
    assert facts(drive) == []


# -- records of nodes that somebody made up --------------------------------------------------------


def record(inc: int = 1, state: str = "up", drain: int = 0, first: int = 0, slots: int = 2) -> str:
    return f"{state} inc={inc} drain={drain} first={first} span={slots} score=1.0 slots={slots}"


MADE_UP = [
    ("ghost", record(first=2)),
    ("ghost", record(first=1)),
    ("ghost", record(first=99_999_999)),
    ("ghost", record(state="down", first=2)),
    ("n1", record(first=99_999_999)),
    ("n1", record(state="down")),
    ("n1", record(state="suspect")),
    ("n1", record(drain=1)),
    ("n1", record(drain=2)),
    ("n1", record(drain=7)),
    ("n1", record(inc=99)),
    ("n1", record(inc=0)),
]


@pytest.mark.dealt
@pytest.mark.parametrize(("name", "text"), MADE_UP)
def test_the_leader_brings_a_made_up_record_into_line(drive: Driver, name: str, text: str) -> None:
    drive.node()
    write(drive, "nodes", name, text)
    Janitor(drive.store, 1, LEASE_S).work(lambda: 0.0, {})
    assert facts(drive) == []
    assert drive.store.client.strlen(drive.keys.partition(0, "free")) <= 1
    assert whys(drive)
    assert repair_partition(drive.store, 0) == 0


def test_a_made_up_node_is_down_after_a_lease(drive: Driver) -> None:
    write(drive, "nodes", "ghost", record())
    passes(Janitor(drive.store, 1, LEASE_S))
    assert drive.store.nodes(0)["ghost"].state == "down"


def test_a_made_up_incarnation_ends_no_worker(drive: Driver) -> None:
    inc = drive.node()
    write(drive, "nodes", "n1", record(inc=99))
    assert drive.run(drive.commands.renew(0, "n1", inc))[0] == "ok", (
        "no process has registered as that"
    )
    newer = drive.node(known_inc=inc)
    assert newer < 99
    drive.store.client.hdel(drive.keys.partition(0, "alive"), "n1")
    assert drive.run(drive.commands.renew(0, "n1", inc)) == ["superseded", str(newer)], (
        "by a process that has registered"
    )
    assert drive.run(drive.commands.renew(0, "n1", newer))[0] == "ok"


def test_a_drain_outlives_the_record_of_its_node(drive: Driver) -> None:
    drive.node()
    drive.run(drive.commands.set_node(0, "n1", "drain", note=drain_terms(60, "a disk")))
    write(drive, "nodes", "n1", "x")
    passes(Janitor(drive.store, 1, LEASE_S), 1)
    assert drive.store.nodes(0)["n1"].draining
    drive.node()
    assert drive.store.nodes(0)["n1"].draining
    assert drive.hash("notes") == {"n1": "deadline_s=60: a disk"}
    assert facts(drive) == []


TWO = "two 1@1 p0 n1/0,2 inc=1 gpu=2 since=1"
LINES = {
    "slots": [
        "x",
        TWO,
        TWO.replace("gpu=2", "gpu=1"),
        TWO.replace("0,2", "0,02"),
        TWO.replace("0,2", "2"),
        TWO.replace("p0", "p1"),
        "six 1@1 p0 n1/1,2 inc=1 since=1",
        "six 1@1 p0 n1/3,1 inc=9 since=1",
        f"six 1@1 p0 n1/3 inc={MANY} since=1",
        "six 1@1 p0 n1/3 inc=01 since=1",
        "six 1@1 p0 n9/1 inc=1 since=1",
    ],
    "nodes": ["x", *(text for _, text in MADE_UP)],
    "alive": [
        "x",
        "inc=1 moved=0",
        "inc=1 moved=0 down",
        "inc=1 moved=0 since=5 down",
        "inc=1 moved=0 since=5",
        f"inc=1 moved=0 since={MANY}0 down",
        "inc=9 moved=1",
        f"inc={MANY} moved=0",
    ],
    "notes": ["x", "", "no deadline", "deadline_s=5: why", "deadline_s=5 why"],
    "left": ["x y", "gpu=9", "gpu=0"],
    "meta": ["x", "-1", "0", MANY],
}
FIELDS = {
    "slots": ["n1/0", "n1/1", "n1/2", "n1/3", "n2/0", "n9/1", "/"],
    "meta": ["version", "epoch", "inc"],
}
DAMAGES = [
    (kind, field, text)
    for kind, texts in LINES.items()
    for field in FIELDS.get(kind, ["n1", "n2", "n9", ""])
    for text in texts
]
DAMAGE = st.sampled_from(DAMAGES)


@pytest.mark.unaudited
def test_a_single_repair_clears_any_combination_of_damages(drive: Driver) -> None:
    @given(st.lists(DAMAGE, min_size=1, max_size=5))
    def one(damages: list[tuple[str, str, str]]) -> None:
        client: Any = drive.store.client
        client.flushall()
        drive.node("n1", slots=4, resources={"gpu": 4})
        drive.node("n2")
        drive.held("two", slots=(0, 2), needs="slots=2 gpu=2")
        drive.held("one", slots=(1,))
        drive.run(drive.commands.set_node(0, "n2", "drain", note=drain_terms(60, "a disk")))
        for kind, field, text in damages:
            write(drive, kind, field, text)
        hashes = [
            client.hgetall(drive.keys.partition(0, kind)) for kind in ("nodes", "alive", "notes")
        ]
        seen = are_consistent(*hashes)
        repairs = repair_partition(drive.store, 0)
        assert repairs or seen, "what the leader sees is damage"
        assert facts(drive) == []
        assert repair_partition(drive.store, 0) == 0
        assert are_consistent(
            *(client.hgetall(drive.keys.partition(0, kind)) for kind in ("nodes", "alive", "notes"))
        )

    one()


def test_a_note_by_itself_ends_nothing_that_runs(drive: Driver) -> None:
    inc = drive.node()
    drive.held("a", drive.taken())
    write(drive, "notes", "n1", "deadline_s=60: a disk")
    passes(Janitor(drive.store, 1, LEASE_S), 1)
    assert drive.run(drive.commands.renew(0, "n1", inc))[3] == "1", (
        "no new claims, and what runs goes on"
    )
    assert facts(drive) == []


def test_an_incarnation_is_never_given_out_again_though_the_highest_was_lost(drive: Driver) -> None:
    for _ in range(3):
        inc = drive.node(known_inc=0)
    drive.store.client.hdel(drive.keys.partition(0, "meta"), "inc")
    assert drive.node(known_inc=0) == inc + 1

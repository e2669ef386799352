"""The look piece by piece finds what the look at a whole partition finds. Promises 3, 6, 10 of docs/invariants.md."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.scheduler.leader.damage import REST_FACTOR, PacedCalls
from parsync_redis.store.repair import soundness
from parsync_redis.store.repair.soundness import is_sound
from parsync_redis.wire.keys import PARTITION_KINDS
from tests.kit.driver import Driver
from tests.kit.offenders import none_wrong
from tests.store.lua.test_repair import DAMAGES, other_type, write

ALL = [
    *DAMAGES,
    *(("free", bit, value) for bit in "01234567" for value in "01"),
    *(("lost", node, "") for node in ("n1", "n9")),
    *(
        ("changed", node, score)
        for node in ("", "n1", "n9")
        for score in ("0", "1.5", "-1", "99", "inf")
    ),
    ("changed", "", "removed"),
]


def do(drive: Driver, kind: str, field: str, text: str) -> None:
    """Write a field of a hash, a bit, or a member of a set."""
    client: Any = drive.store.client
    if kind == "free":
        client.setbit(drive.keys.partition(0, kind), int(field), int(text))
    elif text == "removed":
        client.zrem(drive.keys.partition(0, kind), field)
    elif kind == "changed":
        client.zadd(drive.keys.partition(0, kind), {field: float(text)})
    elif kind == "lost":
        client.sadd(drive.keys.partition(0, kind), field)
    else:
        write(drive, kind, field, text)


def cluster(drive: Driver) -> None:
    """Start with two nodes: n1 runs a task of two slots and two GPUs and one of one slot; n2 is
    drained.
    """
    drive.store.client.flushall()
    drive.node("n1", slots=4, resources={"gpu": 4})
    drive.node("n2")
    drive.held("two", slots=(0, 2), needs="slots=2 gpu=2")
    drive.held("one", slots=(1,))
    drive.run(drive.commands.set_node(0, "n2", "drain", note="deadline_s=60: a disk"))
    drive.node("n3")
    drive.held("three", node="n3")
    drive.run(drive.commands.reclaim(0, "n3", drive.store.nodes(0)["n3"].inc, 0, 0))


def disagree(drive: Driver, damages: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Say for which sizes of a piece the look piece by piece finds other damage than the look at
    the whole.
    """
    cluster(drive)
    for damage in damages:
        do(drive, *damage)
    damaged = drive.run(drive.commands.repair_partition(0, "look"))
    for piece in (1, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(soundness, "SLOTS_PER_LOOK", piece)
            if is_sound(drive.store, 0) != (not damaged):
                yield f"{damages} in pieces of {piece}: {damaged}"


@pytest.mark.unaudited
def test_pieces_tell_each_damage_as_the_whole_does(drive: Driver) -> None:
    wrong = [why for damage in ALL for why in disagree(drive, [damage])]
    none_wrong("pieces tell each damage as the whole does", wrong)


@pytest.mark.unaudited
def test_pieces_tell_several_damages_as_the_whole_does(drive: Driver) -> None:
    @given(st.lists(st.sampled_from(ALL), max_size=4))
    def one(damages: list[tuple[str, str, str]]) -> None:
        assert not [*disagree(drive, damages)]

    one()


@pytest.mark.dealt
@pytest.mark.unaudited
@pytest.mark.parametrize("kind", [kind for kind in PARTITION_KINDS if kind != "events"])
@pytest.mark.parametrize("damage", ["deleted", "other type"])
def test_the_audit_in_pieces_detects_a_missing_key_or_a_wrong_type(
    drive: Driver, kind: str, damage: str
) -> None:
    cluster(drive)
    if damage == "deleted":
        drive.store.client.delete(drive.keys.partition(0, kind))
    else:
        other_type(drive, drive.keys.partition(0, kind))
    assert not is_sound(drive.store, 0)


def test_a_pass_pauses_four_times_the_length_of_each_call_until_its_deadline() -> None:
    now = [10.0]
    rests = list[float]()
    pacer = PacedCalls(lambda: now[0], 10.5, rests.append)
    for took in (0.01, 0.02, 0.1, 0.5):
        now[0] += took
        pacer.rest()
    assert rests == pytest.approx([REST_FACTOR * 0.01, REST_FACTOR * 0.02, 10.5 - 10.13])

"""commit hands out devices by their indexes; each script that frees slots gives these back.

Promise 3, per device.
"""

import random
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from parsync_redis.model.claim import Claim
from parsync_redis.model.needs import Resources, parse_needs, read_amounts
from parsync_redis.model.node import Node
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission, Taken
from parsync_redis.scheduler.core.partition import PartitionCopy
from parsync_redis.store import Store
from parsync_redis.store.repair.repair import repair_partition
from tests.kit.driver import Driver, dump
from tests.kit.oracle.audit import audit

WHOLE = "slots=1 gpu=1"
HALF = "slots=1 gpu=0.5 gpu.mem=8"
MEMORY = "slots=1 gpu.mem=16"


def gpus(
    drive: Driver,
    *indexes: int,
    node: str = "n1",
    slots: int = 8,
    mem: int = 24,
    known_inc: int = 0,
) -> str:
    """Register a node with these GPUs; return what is left there."""
    offer = Resources.of(slots, {"mem": 100}, None, (), {"gpu": indexes}, {"gpu.mem": mem}).text
    drive.store.run(drive.commands.register_node(0, node, known_inc, 1.0, offer))
    return drive.hash("left")[node]


def test_commit_hands_out_indexes_and_release_gives_them_back(drive: Driver) -> None:
    before = gpus(drive, 0, 1)
    one = drive.held("a", "1@1", slots=(0,), needs=WHOLE)
    assert one.asked == "gpu@0=1"
    assert one.devices == {"gpu": [0]}
    two = drive.held("b", "1@2", slots=(1,), needs=HALF + " mem=40")
    assert two.asked == "gpu.mem@1=8 gpu@1=0.5 mem=40"
    assert drive.lease("n1/1") == two
    assert drive.inbox()[0] == two.text.encode(), "the doorbell has the devices"
    three = drive.held("c", "1@3", slots=(2,), needs=MEMORY)
    assert three.asked == "gpu.mem@1=16 gpu@1=0.001", "it asks no share, so it holds the smallest"
    assert drive.hash("left") == {"n1": "gpu.mem@0=24 gpu.mem@1=0 gpu@0=0 gpu@1=0.499 mem=60"}
    for place in (two, one, three):
        assert drive.release(place) == "freed"
    assert drive.hash("left") == {"n1": before}


def test_a_claim_beyond_the_amount_left_changes_nothing_and_is_told_that_amount(
    drive: Driver,
) -> None:
    gpus(drive, 0, 1, mem=24)
    for slot in (0, 1):
        drive.held(f"a{slot}", f"1@{slot}", slots=(slot,), needs="slots=1 gpu=0.8 gpu.mem=16")
    for needs in (
        "gpu=1",
        "gpu=0.3",
        "gpu.mem=16",
        "gpu=2",
        "gpu=1.5",
        "gpu.mem=8 nic=1",
        "gpu.rate=1",
    ):
        claim = drive.claim("b", "1@9", slots=(2,))._replace(asked=needs)
        verdict = drive.unchanged_by(drive.commands.commit(0, [claim])).verdicts[0]
        assert (verdict.word, verdict.detail) == (
            "short",
            "gpu.mem@0=8 gpu.mem@1=8 gpu@0=0.2 gpu@1=0.2 mem=100",
        ), needs


def test_claims_of_one_call_share_the_amount_left(drive: Driver) -> None:
    gpus(drive, 0, 1, 2)
    claims = [
        drive.claim(f"t{at}", f"1@{at}", slots=(at,), needs="slots=1 gpu=2") for at in range(2)
    ]
    claims += [
        drive.claim(f"t{at}", f"1@{at}", slots=(at,), needs="slots=1 gpu=0.5") for at in range(2, 5)
    ]
    judged = drive.run(drive.commands.commit(0, claims))
    assert [(v.word, v.held) for v in judged.verdicts] == [
        ("held", "gpu@0=1 gpu@1=1"),
        ("short", ""),
        ("held", "gpu@2=0.5"),
        ("held", "gpu@2=0.5"),
        ("short", ""),
    ]


def test_asked_again_it_answers_yours_with_the_devices(drive: Driver) -> None:
    gpus(drive, 0, 1)
    claim = drive.claim("a", slots=(0, 2), needs="slots=2 gpu=1")
    first = drive.run(drive.commands.commit(0, [claim])).verdicts[0]
    again = drive.unchanged_by(drive.commands.commit(0, [claim])).verdicts[0]
    assert (again.word, again.since_ms, again.held) == ("yours", first.since_ms, "gpu@0=1")
    other = drive.unchanged_by(drive.commands.commit(0, [claim._replace(attempt="2@1")])).verdicts[
        0
    ]
    assert (other.word, other.detail) == ("conflict", "a")


def test_a_task_with_devices_goes_through_its_life(drive: Driver) -> None:
    before = gpus(drive, 0, 1)
    attempt = drive.taken("a", {"resources": {"gpu": 0.5, "gpu.mem": 8}})
    place = drive.held("a", attempt, needs=HALF)
    assert drive.confirm(place) == "placed"
    assert drive.start(place) == "ok"
    assert drive.finish(place) == "ok"
    assert drive.release(place) == "freed"
    assert drive.hash("left") == {"n1": before}


def test_a_node_back_with_other_devices_keeps_the_devices_its_leases_hold(
    drive: Driver,
) -> None:
    gpus(drive, 0, 1)
    gone, kept = (drive.held(f"a{at}", f"1@{at}", slots=(at,), needs=WHOLE) for at in range(2))
    assert (gone.asked, kept.asked) == ("gpu@0=1", "gpu@1=1")
    assert gpus(drive, 1, 2, known_inc=1) == "gpu.mem@1=24 gpu.mem@2=24 gpu@1=0 gpu@2=1 mem=100"
    assert drive.lease("n1/1") == kept, "the run there goes on"
    other = drive.held("b", "1@9", slots=(2,), inc=2, needs=WHOLE)
    assert other.asked == "gpu@2=1"
    for place in (gone, kept, other):
        assert drive.release(place) == "freed"
    assert drive.hash("left") == {"n1": "gpu.mem@1=24 gpu.mem@2=24 gpu@1=1 gpu@2=1 mem=100"}


@pytest.mark.parametrize(
    "left", ["gpu@0=1 gpu@1=1", "x", "gpu.mem@0=24 gpu.mem@1=24 gpu@0=0 gpu@1=0.5 mem=100"]
)
def test_repair_counts_each_device(drive: Driver, left: str) -> None:
    gpus(drive, 0, 1)
    drive.held("a", "1@1", slots=(0,), needs=WHOLE)
    drive.held("b", "1@2", slots=(1,), needs="slots=1 gpu=0.5")
    right = drive.hash("left")
    drive.store.client.hset(drive.keys.partition(0, "left"), "n1", left)
    before = dump(drive.store)
    is_wrong = left != right["n1"]
    assert any(" left, but by its leases " in fact for fact in audit(drive.store)) == is_wrong
    repair_partition(drive.store, 0)
    assert drive.hash("left") == right
    assert is_wrong or dump(drive.store) == before


def test_a_lost_line_is_made_anew_without_the_devices(drive: Driver) -> None:
    gpus(drive, 0, 1, 2)
    for id, asked in (("a", {"gpu": 2, "gpu.mem": 8}), ("b", {"gpu": 0.5, "mem": 2})):
        needs = Resources.needed(1, asked)
        message = b'{"headers": {"task": "work"}}'
        assert drive.submit(id, {"resources": asked}, message=message) == "submitted"
        place = drive.held(id, drive.take()[id], slots=(0 if id == "a" else 1,), needs=needs.text)
        assert drive.start(place) == "ok"
        drive.store.client.hdel(drive.keys.in_shard_of("tasks", id), id)
        drive.run(drive.commands.repair_task(id, "a test"))
        assert drive.line(id).kind == f"work {needs.text}"


def test_a_task_that_is_kept_apart_holds_its_word_beside_its_device(drive: Driver) -> None:
    before = gpus(drive, 0, 1)
    place = drive.held("a", "1@1", slots=(0,), needs="slots=1 apart_web=1 gpu=0.5")
    assert place.asked == "apart_web=1 gpu@0=0.5"
    assert drive.hash("left") == {
        "n1": "apart_web=0 gpu.mem@0=24 gpu.mem@1=24 gpu@0=0.5 gpu@1=1 mem=100"
    }
    assert drive.commit("b", "1@2", slots=(1,), needs="slots=1 apart_web=1 gpu=0.5").word == "short"
    assert (
        drive.held("c", "1@3", slots=(1,), needs="slots=1 apart_db=1 gpu=1").asked
        == "apart_db=1 gpu@1=1"
    )
    assert drive.release(place) == "freed"
    drive.store.client.hdel(drive.keys.partition(0, "slots"), "n1/1")
    repair_partition(drive.store, 0)
    assert drive.hash("left") == {"n1": before}


def test_a_lease_that_is_put_back_holds_its_devices_and_no_other(drive: Driver) -> None:
    gpus(drive, 0, 1)
    drive.held("a", "1@1", slots=(0,), needs=WHOLE)
    place = drive.held("b", "1@2", slots=(1,), needs=HALF)
    right = drive.hash("left")
    drive.store.client.hdel(drive.keys.partition(0, "slots"), "n1/1")
    drive.store.client.hset(
        drive.keys.partition(0, "left"), "n1", "gpu.mem@0=24 gpu.mem@1=24 gpu@0=0 gpu@1=1 mem=100"
    )
    assert drive.run(drive.commands.restore(0, [place])) == ["back"]
    assert drive.hash("left") == right
    assert audit(drive.store) == []


def test_an_offer_that_is_corrected_counts_what_the_leases_hold_of_each_device(
    drive: Driver,
) -> None:
    gpus(drive, 0, 1)
    drive.held("a", "1@1", slots=(0,), needs=HALF)
    offer = Resources.of(8, devices={"gpu": [0, 5]}, of_devices={"gpu.mem": 16}).text
    assert drive.run(drive.commands.set_node(0, "n1", "offer", 1, f"1.0 {offer}")) == [
        "ok",
        "up",
        "0",
    ]
    assert drive.hash("left") == {"n1": "gpu.mem@0=8 gpu.mem@5=16 gpu@0=0.5 gpu@5=1"}
    assert audit(drive.store) == []


# -- a storm ---------------------------------------------------------------------------------------

NODES = 20
GPUS = 8
TASKS = 10_000
KINDS: list[tuple[dict[str, Any], int]] = [
    ({"gpu": 1}, 4),
    ({"gpu": 0.5}, 4),
    ({"gpu": 0.25, "gpu.mem": 6}, 3),
    ({"gpu.mem": 10}, 2),
    ({"gpu": 2, "gpu.mem": 16}, 1),
    ({"gpu": 8}, 1),
]


class Storm:
    """Two planners with stale copies, workers that start and end tasks, and a leader that reclaims
    what is killed.
    """

    def __init__(self, store: Store, seed: int) -> None:
        self.drive = Driver(store)
        self.store = store
        self.commands = store.commands
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.copies = [PartitionCopy(0), PartitionCopy(0)]
        self.alive: dict[str, int] = {}
        self.running: dict[str, Place] = {}
        self.waiting: deque[Taken] = deque()
        self.seen: Counter[str] = Counter()

    def offer(self) -> str:
        return Resources.of(100, {}, None, (), {"gpu": range(GPUS)}, {"gpu.mem": 24}).text

    def register(self, name: str) -> None:
        self.alive[name] = self.store.run(
            self.commands.register_node(0, name, 0, 1.0, self.offer())
        )[0]

    def kill(self) -> None:
        """Lose a node: its runs are dead, the leader gives the tasks back, and then the slots; it
        comes back.
        """
        name = self.random.choice(sorted(self.alive))
        inc = self.alive.pop(name)
        self.running = {id: place for id, place in self.running.items() if place.node != name}
        if self.random.random() < 0.5:
            self.drive.lose(name, inc)
        else:
            self.register(name)  # before the leader has seen that it was gone
        while lost := self.store.run(self.commands.reclaim(0, name))[1]:
            places = [lease.place for lease in lost]
            self.store.run(
                self.commands.requeue(
                    [(place, "its node was lost") for place in places], "", [None] * len(places)
                )
            )
            self.release(places)
        self.register(name)
        self.seen["kills"] += 1

    def read(self, copy: PartitionCopy) -> None:
        nodes = self.store.nodes(0)
        snapshot = self.store.run(self.commands.read_partition(0))
        copy.set_nodes(nodes.values(), snapshot.epoch)
        copy.set_free(snapshot.bits or b"", snapshot.left, snapshot.version)

    def claims(self, copy: PartitionCopy, tasks: list[Taken]) -> tuple[list[Claim], list[Taken]]:
        claims = []
        seatless = []
        by_needs: dict[str, list[Taken]] = {}
        for task in tasks:
            by_needs.setdefault(task.kind.needs, []).append(task)
        for text, some in by_needs.items():
            needs = parse_needs(text)
            seats = copy.seats(needs)
            chosen = self.rng.permutation(len(seats.leads))[: len(some)]
            seated = some[: len(chosen)]
            seatless += some[len(chosen) :]
            if not seated:
                continue
            for task, (node, slots) in zip(
                seated, copy.reserve(seats, chosen, needs).claim(len(seated)), strict=True
            ):
                claims.append(self.claim_of(task, node, slots, copy.epoch))
        return claims, seatless

    def claim_of(self, task: Taken, node: Node, slots: tuple[int, ...], epoch: int) -> Claim:
        return Claim(
            task.id,
            task.attempt,
            0,
            node.name,
            slots,
            node.inc,
            parse_needs(task.kind.needs).asked,
            node.first,
            epoch,
        )

    def place(self, copy: PartitionCopy) -> None:
        """Claim by a copy that may be stale; start what is held, and judge that no device has too
        much.
        """
        tasks = [self.waiting.popleft() for _ in range(min(200, len(self.waiting)))]
        claims, seatless = self.claims(copy, tasks)
        self.waiting += seatless
        by_id = {task.id: task for task in tasks}
        judged = self.store.run(self.commands.commit(0, claims))
        again = (
            self.store.run(self.commands.commit(0, claims))
            if self.random.random() < 0.1
            else judged
        )
        assert [v.held for v in again.verdicts if v.word == "yours"] == [
            v.held for v in judged.verdicts if v.won
        ] or again is judged, "asked again it tells the same devices"
        won = [
            claim.won(v.since_ms, v.held)
            for claim, v in zip(claims, judged.verdicts, strict=True)
            if v.won
        ]
        self.seen.update(v.word.value for v in judged.verdicts)
        self.waiting += [
            by_id[c.task] for c, v in zip(claims, judged.verdicts, strict=True) if not v.won
        ]
        answers = self.store.run(self.commands.start(won)) if won else []
        for place, (word, _) in zip(won, answers, strict=True):
            assert word == "ok"
            self.running[place.task] = place
        self.judge_devices(self.running.values())

    def judge_devices(self, places: Any) -> None:
        """Fail if runs have more of a device than there is, or if a run that has a whole device shares it."""
        held: Counter[tuple[str, str]] = Counter()
        sharing: Counter[tuple[str, int]] = Counter()
        whole: set[tuple[str, int]] = set()
        for place in places:
            amounts: Mapping[str, int] = read_amounts(place.asked)
            for name, amount in amounts.items():
                held[place.node, name] += amount
                kind, _, index = name.partition("@")
                if kind == "gpu":
                    sharing[place.node, int(index)] += 1
                    whole |= {(place.node, int(index))} if amount == 1000 else set()
        for (_, name), amount in held.items():
            assert amount <= (1000 if name.startswith("gpu@") else 24_000), (name, amount)
        assert all(sharing[device] == 1 for device in whole), "two runs on one device"

    def end_some(self) -> None:
        ending = [place for place in self.running.values() if self.random.random() < 0.5]
        if ending:
            for place in ending:
                del self.running[place.task]
            words = self.store.run(
                self.commands.finish([(place, "succeeded", "") for place in ending])
            )
            assert set(words) == {"ok"}
            self.release(ending)
            self.seen["ended"] += len(ending)

    def release(self, places: list[Place]) -> None:
        words = self.store.run(self.commands.release(0, places))
        assert words == ["freed"] * len(places)


@pytest.mark.one_server(0)
def test_ten_thousand_tasks_with_kills_never_share_a_device_too_much_and_leak_nothing(
    store: Store,
) -> None:
    storm = Storm(store, 36)
    for at in range(NODES):
        storm.register(f"n{at}")
    whole = dict(storm.drive.hash("left"))
    options = [
        TaskOptions.of({"resources": asked, "max_starts": 1000})
        for asked, weight in KINDS
        for _ in range(weight)
    ]
    ids = [f"t{at}" for at in range(TASKS)]
    for at in range(0, TASKS, 500):
        submissions = [
            Submission(id, "work", b"{}", storm.random.choice(options)) for id in ids[at : at + 500]
        ]
        store.run(store.commands.submit(submissions))
    turn = 0
    while storm.seen["ended"] < TASKS:
        turn += 1
        assert turn < 5000, storm.seen
        copy = storm.copies[turn % 2]
        if copy.version < 0 or storm.random.random() < 0.4:
            storm.read(copy)
        if len(storm.waiting) < 400:
            storm.waiting += storm.drive.take_tasks(limit=100)
            storm.random.shuffle(storm.waiting)
        storm.place(copy)
        storm.end_some()
        if storm.random.random() < 0.15:
            storm.kill()
        if turn % 20 == 0:
            assert not [fact for fact in audit(store) if "amounts" in fact or " left" in fact]
    assert storm.seen["kills"] > 20
    assert storm.seen["short"] > 20, "claims by stale copies met fragmented nodes"
    assert not storm.running
    assert storm.drive.hash("left") == whole, "a leaked share"
    assert not audit(store)
    print(turn, dict(storm.seen))
